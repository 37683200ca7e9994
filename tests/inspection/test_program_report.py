"""fe.report: tables, statistics, time of a step and advice, as text and as a page."""

import doctest
import html.parser
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import columns as cases
from cases.kerases import KERASES, is_keras_3
from fused_embedding.inspection import program_report, report_page, step_time
from fused_embedding.inspection.explain import Explanation, Lookup
from fused_embedding.inspection.program_tables import TableFacts

tf1 = tf.compat.v1
EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
LOOK_UP = fe.nn.fused_safe_embedding_lookup_sparse
FULL_TRACE = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)


def facts_of(report):
    return {table.name: table for table in report.tables}


class Program:
    """Two columns in stock's input_layer, an EmbeddingVariable, and a dense variable."""

    def __init__(self):
        with tf.Graph().as_default() as self.graph:
            self.ad, self.keys = tf1.placeholder(tf.string, [4, 1]), tf1.placeholder(tf.int64, [4])
            hashed = tf.feature_column.categorical_column_with_hash_bucket("ad", 50)
            columns = [
                fe.feature_column.embedding_column(one, 3) for one in (hashed, cases.identity())
            ]
            features = {"ad": self.ad, "ids": self.keys[:, None] % 12}
            inputs = tf1.feature_column.input_layer(features, columns)
            self.table = fe.get_embedding_variable("users", 8)
            rows = LOOK_UP(self.table, tf.sparse.from_dense(self.keys[:, None]), name="user")
            logits = tf.concat([inputs, rows], 1) @ tf1.get_variable("dense", [14, 1])
            self.train = tf1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(logits))
            self.init = tf1.global_variables_initializer()

    def step(self, session, keys, **kwargs):
        session.run(self.train, {self.ad: [["a"]] * 4, self.keys: keys}, **kwargs)


@pytest.fixture(scope="module")
def program():
    return Program()


AD, ID = (f"input_layer/{name}_embedding/embedding_weights" for name in ("ad", "ids"))


def test_a_session_has_tables_slots_statistics_and_time(program):
    with tf1.Session(graph=program.graph) as session:
        session.run(program.init)
        program.step(session, [1, 2, 3, 4])
        metadata = tf1.RunMetadata()
        program.step(session, [1, 2, 3, 5], options=FULL_TRACE, run_metadata=metadata)
        report = fe.report(session, run_metadata=metadata)
        size = session.run(program.table.statistics()["memory_bytes"])
    tables = facts_of(report)
    assert tables.keys() == {AD, ID, "users"}  # neither the dense variable nor slots
    assert tables[AD] == TableFacts(AD, "variable", 50, 3, "float32", 600, 600)
    assert tables[ID][2:] == (12, 3, "float32", 144, 144, None)
    users = tables["users"]
    assert users[:6] == ("users", "EmbeddingVariable", 5, 8, "float32", size)
    assert (users.statistics["hits"], users.statistics["misses"]) == (3, 5)
    assert users.hit_rate == 3 / 8
    assert [table.name for table in report.tables] == ["users", AD, ID]  # the largest first
    assert {(one.path, one.num_columns) for one in report.lookups} == {("stock", 1), ("v3", 1)}
    assert report.step.total_us == report.lookups.update_share.step_us
    assert report.step.microseconds[step_time.LOOKUPS] > 0
    assert report.step.microseconds[step_time.GRADIENTS] > 0
    assert report.step.microseconds[step_time.UPDATES] > 0
    assert 0 < report.step.embedding_share < 1
    text = str(report)
    assert "users" in text
    assert "37.5%" in text
    assert "2 lookups take stock's path" in text
    assert "2 sparse updates by ResourceSparseApplyAdagrad, one each; updates by stock" in text


def test_a_report_reads_counters_and_runs_no_step(program):
    with tf1.Session(graph=program.graph) as session:
        session.run(program.init)
        program.step(session, [1, 2, 3, 4])
        first = fe.report(session)
        num_ops = len(program.graph.get_operations())
        second = fe.report(session)
    assert first.tables == second.tables
    assert first.step is None
    assert len(program.graph.get_operations()) == num_ops  # the counters' op is made once


def test_a_finalized_graph_is_read_as_it_is():
    program = Program()
    program.graph.finalize()
    with tf1.Session(graph=program.graph) as session:
        session.run(program.init)
        assert facts_of(fe.report(session))["users"].statistics is None
    program = Program()
    with program.graph.as_default():
        fe.summarize_statistics(program.table)
        saver = tf1.train.Scaffold(saver=fe.train.Saver())
        with tf1.train.MonitoredSession(tf1.train.ChiefSessionCreator(saver)) as session:
            program.step(session, [1, 2, 3, 4])
            assert program.graph.finalized
            assert facts_of(fe.report(session))["users"].rows == 4


def test_a_graph_alone_has_no_rows_of_an_embedding_variable(program):
    of_graph, of_definition = map(fe.report, (program.graph, program.graph.as_graph_def()))
    tables = facts_of(of_graph)
    assert tables["users"] == TableFacts("users", "EmbeddingVariable", None, 8, "float32", None)
    assert tables[AD].slot_bytes == 600
    assert facts_of(of_definition) == {
        name: table._replace(slot_bytes=None) for name, table in tables.items()
    }
    assert of_graph.lookups == of_definition.lookups


def test_a_function_has_the_tables_that_it_and_its_functions_read():
    names = ("used", "inner", "branch", "unused", "read")
    shapes = {name: [number, 3] for number, name in enumerate(names, 4)}
    variables = {name: tf.Variable(tf.zeros(shape), name=name) for name, shape in shapes.items()}
    table = fe.get_embedding_variable("keys", 3)
    inner = tf.function(
        lambda ids: tf.gather(variables["inner"], ids) + tf.reduce_sum(variables["unused"])
    )

    @tf.function
    def outer(ids):
        rows = fe.nn.group_embedding_lookup([table, variables["used"]], [ids, ids])
        branch = tf.cond(
            tf.size(ids) > 100, lambda: tf.gather(variables["branch"], ids), lambda: rows[1]
        )
        read = tf.gather(tf.identity(variables["read"].read_value()), ids)
        return rows[0] + branch + inner(ids) + read

    ids = tf.constant([1, 2], tf.int64)
    concrete = outer.get_concrete_function(ids)
    concrete(ids)
    tables = facts_of(fe.report(concrete))
    assert tables.keys() == {"used", "inner", "branch", "read", "keys"}
    assert tables["used"] == TableFacts("used", "variable", 4, 3, "float32", 48)
    assert (tables["keys"].rows, tables["keys"].statistics["misses"]) == (2, 2)


def click_model(keras):
    layers = fe.keras.fused_layers(keras)
    inputs = [keras.Input([2], dtype="int64", name=name) for name in ("ad", "user", "item")]
    stock = keras.layers.Embedding(30, 4, name="stock")
    looked_up = [
        stock(inputs[0]),
        layers.Embedding(output_dim=4, name="table")(inputs[1]),
        layers.EmbeddingBag(20, 4, name="bag")(inputs[2])[:, None],
    ]
    rows = keras.layers.Flatten()(keras.layers.Concatenate(axis=1)(looked_up))
    return keras.Model(inputs, keras.layers.Dense(1)(rows), name="clicks")


@EACH_KERAS
def test_a_model_has_layers_tables_and_slots(keras):
    model = click_model(keras)
    uncompiled = facts_of(fe.report(model))
    assert {table.slot_bytes for table in uncompiled.values()} == {None}
    model.compile(fe.keras.fused_optimizers(keras).Adam(), "mse")
    ids = [np.array([[1, 2], [2, 3]])] * 3
    for _ in range(2):
        model.train_on_batch(ids, np.ones([2, 1]))
    report = fe.report(model)
    assert report.title == "Embeddings of the model clicks"
    lookups = sorted((one.name, one.path, one.num_columns) for one in report.lookups)
    assert lookups == [("bag", "v3", 1), ("stock", "stock", 1), ("table", "v3", 1)]
    tables = {name.partition("/")[0]: table for name, table in facts_of(report).items()}
    assert tables.keys() == {"stock", "table", "bag"}
    assert tables["stock"][2:7] == (30, 4, "float32", 480, 960)  # two slots of Adam
    assert tables["bag"][2:7] == (20, 4, "float32", 320, 640)
    assert (tables["table"].rows, tables["table"].hit_rate) == (3, 0.5)
    assert any("fe.keras.group(model)" in advice.change for advice in report.advice)


@EACH_KERAS
def test_a_grouped_model_has_one_lookup(keras):
    if not is_keras_3(keras):
        pytest.skip("fe.keras.group needs Keras 3")
    model = click_model(keras)
    grouped = fe.report(fe.keras.group(model))
    assert [one[1:3] for one in grouped.lookups] == [("v3", 3)]
    assert facts_of(grouped) == facts_of(fe.report(model))
    assert grouped.advice == []


def test_dense_features_are_tables():
    keras = cases.keras()
    column = fe.feature_column.embedding_column(cases.identity(), 3, do_fusion="v2")
    model = keras.Sequential([keras.layers.DenseFeatures([column]), keras.layers.Dense(1)])
    model({"ids": tf.constant([[1], [2]])})
    report = fe.report(model)
    assert [(table.rows, table.dim) for table in report.tables] == [(12, 3)]
    assert [lookup.path for lookup in report.lookups] == ["v2"]


def test_slots_belong_to_the_longest_name():
    with tf.Graph().as_default() as graph:
        for name in ("user", "user/site"):
            variable = tf1.get_variable(name, [6, 3], use_resource=True)
            tf.gather(variable, [1])
            tf1.get_variable(f"{name}/Adagrad", [6, 3], use_resource=True)
        tf1.get_variable("user/wide", [6, 1], use_resource=True)  # of another shape
    tables = facts_of(fe.report(graph))
    assert {name: table.slot_bytes for name, table in tables.items()} == {
        "user": 72,
        "user/site": 72,
    }


@pytest.mark.parametrize(
    ("name", "op", "part"),
    [
        ("input_layer/a_embedding/look/embedding_lookup_sparse/Unique", "Unique", "lookups"),
        ("input_layer/a_embedding/look/SparseFillEmptyRows", "SparseFillEmptyRows", "lookups"),
        ("input_layer/a_embedding/looking/x", "Mul", "the rest"),
        ("gradients/input_layer/a_embedding/look/grad/Mul", "Mul", "gradients of lookups"),
        ("gradients/dense/MatMul", "MatMul", "the rest"),
        ("a", "FusedEmbeddingGroupLookup", "lookups"),
        ("a", "FusedEmbeddingGroupLookupGrad", "gradients of lookups"),
        ("a", "SparseSegmentSum", "lookups"),
        ("a", "SparseSegmentMeanGrad", "gradients of lookups"),
        ("gradients/a", "ResourceGather", "gradients of lookups"),
        ("a", "ResourceGather", "lookups"),
        ("a", "FusedEmbeddingColumnKeys", "features to ids"),
        ("a", "StringToHashBucketFast", "features to ids"),
        ("a", "FusedEmbeddingResourceSparseApply", "updates of tables"),
        ("a", "EmbeddingVariableApply", "updates of tables"),
        ("Adam/update_table/a/mul", "Mul", "updates of tables"),
        ("Adam/update_table/a", "NoOp", "updates of tables"),
        ("Adam/update_table/a2/mul", "Mul", "the rest"),
        ("Adam/update_dense/mul", "Mul", "the rest"),
        ("dense/MatMul", "MatMul", "the rest"),
    ],
)
def test_each_kernel_has_one_part(name, op, part):
    metadata = tf1.RunMetadata()
    device = metadata.step_stats.dev_stats.add(device="/device:CPU:0")
    device.node_stats.add(node_name=name, timeline_label=f"{name} = {op}(x)", op_end_rel_micros=7)
    lookups = ["input_layer/a_embedding/look/embedding_lookup_sparse"]
    times = step_time.step_time(metadata, lookups, ["table/a"])
    assert {one for one, us in times.microseconds.items() if us == 7} == {part}
    assert times.embedding_share == (part != "the rest")


def test_what_is_asked_of_a_trace():
    with pytest.raises(ValueError, match=r"run_metadata has no kernels, .*FULL_TRACE"):
        fe.report(tf.Graph(), run_metadata=tf1.RunMetadata())
    with pytest.raises(TypeError, match=r"run_metadata must be a tf\.compat\.v1\.RunMetadata, got"):
        fe.report(tf.Graph(), run_metadata={})


@pytest.mark.parametrize("value", [3, "graph", tf.function(lambda: 1), np.zeros(3), [3]])
def test_other_things_are_refused(value):
    with pytest.raises(TypeError, match="graph_or_columns must"):
        fe.report(value)


STATISTICS = {"hits": 60, "misses": 40, "refusals": 0, "cold_gets": 0}


def advice_of(*lookups, **changed):
    table = TableFacts("t", "EmbeddingVariable", 5, 8, "float32", 9, None, STATISTICS | changed)
    explanation = Explanation([Lookup("x", path, n, why) for path, n, why in lookups])
    return [tuple(one) for one in program_report._advice(explanation, [table])]


def test_hit_rates():
    table = TableFacts("t", "EmbeddingVariable", 5, 8, "float32", 9, None, STATISTICS)
    assert (table.hit_rate, table.memory_hit_rate) == (0.6, None)
    fetched = table._replace(statistics=STATISTICS | {"cold_gets": 25})
    assert fetched.memory_hit_rate == 0.75
    unused = table._replace(statistics=dict.fromkeys(STATISTICS, 0))
    assert (unused.hit_rate, unused.memory_hit_rate) == (None, None)
    assert table._replace(statistics=None).hit_rate is None


def test_advice():
    assert advice_of(("v3", 26, ""), ("v3", 1, "")) == []
    assert advice_of(("v3", 1, ""), ("v2", 1, ""))[0][0] == "2 fused lookups are an op each"
    [(what, change)] = advice_of(
        ("stock", 1, "its do_fusion is not set; fe.feature_column.input_layer: one op with 3")
    )
    assert what == "1 lookup takes stock's path: its do_fusion is not set"
    assert change.startswith("set do_fusion=True")
    [(what, change)] = advice_of(
        ("stock", 1, "its dtype is int32"), ("stock", 1, "its dtype is int32")
    )
    assert (what[:20], change) == ("2 lookups take stock", "change what the reason names")
    [(what, change)] = advice_of(refusals=1234)
    assert (what, "max_capacity" in change) == ("t is full: 1,234 keys got no row", True)
    assert advice_of(cold_gets=10) == []  # 90 of 100 are in memory
    [(what, change)] = advice_of(cold_gets=20)
    assert what.startswith("t: 80% of its keys are in memory")
    assert "storage_size" in change


def test_nothing_is_said_of_nothing():
    text = str(fe.report(tf.Graph()))
    assert text.split("\n\n") == [
        "Embeddings of a graph",
        "no embedding table was found",
        "no sparse embedding lookup was found",
        "nothing is known that would be faster",
    ]


class Page(html.parser.HTMLParser):
    """Checks that elements nest, and keeps what a browser would ask for elsewhere."""

    EMPTY = ("meta",)

    def __init__(self, text):
        super().__init__()
        self.open, self.addresses, self.tags, self.bars = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "srcset")]
        self.bars += [float(dict(attrs)["width"])] if tag == "rect" else []
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_one_file(program, tmp_path):
    path = tmp_path / "report.html"
    with tf1.Session(graph=program.graph) as session:
        session.run(program.init)
        metadata = tf1.RunMetadata()
        program.step(session, [1, 2, 3, 4], options=FULL_TRACE, run_metadata=metadata)
        report = fe.report(session, run_metadata=metadata)
    report = report._replace(
        title="<b>&", advice=[*report.advice, program_report.Advice("<i>", "")]
    )
    report.save(path)
    text = path.read_text()
    page = Page(text)
    assert page.open == []
    assert page.addresses == []
    assert "http" not in text
    assert "@import" not in text
    assert "script" not in page.tags
    assert "b" not in page.tags
    assert "<h1>&lt;b&gt;&amp;</h1>" in text
    assert "&lt;i&gt;" in text
    assert page.tags.count("svg") == 3  # bytes, hit rates, time
    total = max(table.num_bytes for table in report.tables)
    of_users = 520.0  # the largest bar, and the same slots and values of the others
    sizes = [of_users, 0, *[round(520 * 600 / total, 1)] * 2, *[round(520 * 144 / total, 1)] * 2]
    assert page.bars[:6] == sizes
    assert page.bars[6] == round(520 * facts_of(report)["users"].hit_rate, 1)
    assert abs(sum(page.bars[7:]) - 520) < 1
    empty = tmp_path / "empty.html"
    fe.report(tf.Graph()).save(str(empty))
    assert "svg" not in Page(empty.read_text()).tags
    with pytest.raises(ValueError, match=r"path must end in \.html, got 'a\.png'"):
        report.save("a.png")


def test_example_of_the_docstring():
    results = doctest.testmod(program_report, extraglobs={"fe": fe})
    assert results.attempted
    assert not results.failed


def test_parts_of_a_bar_are_side_by_side():
    svg = report_page.bars("title", [report_page.Bar("a", (1.0, 3.0), "4")])
    rects = re.findall(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)"', svg)
    (first, width), (second, rest) = [tuple(map(float, rect)) for rect in rects]
    assert (second, rest) == (first + width, 3 * width)
    assert svg.index(f'x="{second + rest + 6:.1f}"') < svg.index(">4</text>")


def test_the_example_of_the_documentation(tmp_path, monkeypatch, capsys):
    page = (pathlib.Path(__file__).parents[2] / "docs/inspection.md").read_text()
    page = page[page.index("## report") : page.index("## inspect")]
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    with tf.Graph().as_default(), tf1.Session() as session:
        table = tf1.get_variable("table", [6, 3], use_resource=True)
        loss = tf.reduce_sum(LOOK_UP(table, tf.sparse.from_dense([[1, 2], [3, 0]])))
        train = tf1.train.AdagradOptimizer(0.1).minimize(loss)
        session.run(tf1.global_variables_initializer())
        names = {"fe": fe, "tf": tf, "session": session, "train": train}
        exec(compile(example, "docs/inspection.md", "exec"), names)
    assert "of the traced step's kernels" in capsys.readouterr().out
    assert (tmp_path / "report.html").exists()
