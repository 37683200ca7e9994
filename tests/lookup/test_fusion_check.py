"""do_fusion="check": stock's lookup beside the fused one, and instead of it where they differ."""

import collections
import logging
import re

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import columns as cases
from checking import densify, sparse
from columns.test_feature_column import DIMENSION, LOOKUPS, embedding, input_layer, linear_model
from fused_embedding.lookup import checked, fusion_check, run

pytestmark = pytest.mark.one_version

tf1 = tf.compat.v1
IDS = sparse([1, 2, 2, 7, 1], [0, 0, 2, 2, 3], 5)
TABLE = np.random.default_rng(1).uniform(-1, 1, [8, 3]).astype(np.float32)
FAULT = 1e-2
SUMMARY = 'do_fusion="check":'
LOOK_UP = fe.nn.fused_safe_embedding_lookup_sparse


@pytest.fixture(autouse=True)
def log(caplog):
    caplog.set_level(logging.INFO, "fused_embedding")
    return caplog


@pytest.fixture
def stock_calls(monkeypatch):
    """Counts each time that stock's lookup runs, not that it is built."""
    calls = collections.Counter()

    def count(ids):
        calls["stock"] += 1
        return ids

    def counted(function):
        def lookup_of(params, ids, *args, **kwargs):
            values = tf.numpy_function(count, [ids.values], ids.values.dtype)
            values.set_shape(ids.values.shape)
            ids = tf.SparseTensor(ids.indices, values, ids.dense_shape)
            return function(params, ids, *args, **kwargs)

        return lookup_of

    for name in ("_stock_safe", "_stock_unsafe"):
        monkeypatch.setattr(checked, name, counted(getattr(checked, name)))
    return calls


def break_outputs(result):
    return result + tf.cast(FAULT, result.dtype)


@tf.custom_gradient
def break_gradients(result):
    return tf.identity(result), lambda grad: grad * (1 + FAULT)


def seed_fault(monkeypatch, fault, version="v3"):
    good = run.LOOKUPS[version]
    monkeypatch.setitem(run.LOOKUPS, version, lambda *args: fault(good(*args)))


def lines(caplog, level=logging.INFO):
    """Those of single lookups."""
    return [
        r.getMessage()
        for r in caplog.records
        if r.levelno == level and not r.getMessage().startswith(SUMMARY)
    ]


def summaries(caplog):
    return [r for r in caplog.records if r.getMessage().startswith(SUMMARY)]


def train(version, *, function, num_steps=6, ids=IDS, weights=None, **options):
    """Outputs of a lookup and its table while it is trained; "stock" is tf.nn's own."""
    table = tf.Variable(TABLE)

    def look_up():
        if version == "stock":
            return tf.nn.safe_embedding_lookup_sparse([table], ids, weights, **options)
        return LOOK_UP(table, ids, weights, fusion_version=version, name="user", **options)

    def step():
        with tf.GradientTape() as tape:
            output = look_up()
            loss = tf.reduce_sum(output * output)
        gradient = tape.gradient(loss, table)
        assert isinstance(gradient, tf.IndexedSlices)
        table.scatter_sub(tf.IndexedSlices(0.1 * gradient.values, gradient.indices))
        return output

    step = tf.function(step) if function else step
    outputs = [step().numpy() for _ in range(num_steps)]
    return outputs, table.numpy()


BOTH_MODES = pytest.mark.parametrize("function", [False, True], ids=["eager", "function"])


@BOTH_MODES
def test_without_a_fault_training_is_that_of_true(function, log):
    weights = tf.SparseTensor(IDS.indices, [1.0, 0.5, 2.0, 1.0, 3.0], IDS.dense_shape)
    options = {"function": function, "weights": weights, "max_norm": 0.8, "default_id": 3}
    got, want = train("check", **options), train("v3", **options)
    for g, w in zip([*got[0], got[1]], [*want[0], want[1]], strict=True):
        np.testing.assert_array_equal(g, w)
    assert not lines(log, logging.WARNING) + lines(log, logging.ERROR)
    assert len(lines(log)) == 2


@BOTH_MODES
def test_stock_runs_on_one_step_in_n(function, log, stock_calls):
    train(fe.FusionCheck(every=3), function=function, num_steps=7)
    # Once for the outputs and once for the gradients, in steps 1, 4 and 7.
    assert stock_calls["stock"] == 6
    steps = [re.match(r"user, step (\d+): (\w+)", line).groups() for line in lines(log)]
    assert steps == [(str(n), what) for n in (1, 4, 7) for what in ("outputs", "gradients")]


@BOTH_MODES
def test_a_line_of_the_log(function, log):
    train("check", function=function, num_steps=1)
    for what, line in zip(("outputs", "gradients"), lines(log), strict=True):
        number = r"[\d.e+-]+"
        assert re.fullmatch(
            rf"user, step 1: {what} differ by {number} at most, largest value {number}; fused "
            rf"{number} ms, stock {number} ms: {number} times as fast",
            line,
        )
    _, largest = re.findall(r"largest value ([\d.e+-]+);", "".join(lines(log)))
    assert float(largest) == pytest.approx(2 * np.abs(gradient_of_stock()).max(), rel=0.05)


NUMBER = r"[\d.e+-]+"


@BOTH_MODES
def test_one_line_at_the_default_level(function, caplog, monkeypatch):
    """For all lookups of a step, after the second check: those of steps 1 and 4."""
    caplog.set_level(logging.NOTSET, "fused_embedding")
    monkeypatch.setattr(fusion_check, "_summary", fusion_check._Summary())
    tables = [tf.Variable(TABLE), tf.Variable(2 * TABLE)]

    def step():
        for index, table in enumerate(tables):
            fe.nn.fused_safe_embedding_lookup_sparse(
                table, IDS, fusion_version=fe.FusionCheck(every=3), name=f"lookup_{index}"
            )

    run = tf.function(step) if function else step
    for _ in range(4):
        run()
    assert caplog.records == []
    run()
    run()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert re.fullmatch(
        rf"{re.escape(SUMMARY)} 2 lookups checked, largest difference {NUMBER} beside a largest "
        rf"value of {NUMBER}, fused {NUMBER} times as fast as stock; getLogger\(.*\) has "
        "details at level INFO",
        record.getMessage(),
    )


def test_the_line_has_the_largest_value_of_equal_results(caplog, monkeypatch):
    monkeypatch.setattr(fusion_check, "_summary", fusion_check._Summary())
    fusion_check._summary.add("lookup", True, 0.0, 0.5, np.ones(2))
    fusion_check._summary.log()
    assert "largest difference 0 beside a largest value of 0.5," in caplog.records[0].getMessage()


def test_the_line_at_the_end_of_a_process(caplog, monkeypatch):
    monkeypatch.setattr(fusion_check, "_summary", fusion_check._Summary())
    seed_fault(monkeypatch, break_outputs)
    train("check", function=False, num_steps=1)
    fusion_check._summary.log()
    fusion_check._summary.log()
    (record,) = summaries(caplog)
    assert "1 lookups checked, 1 use stock TensorFlow from now on" in record.getMessage()
    assert "in the first step, which is not typical" in record.getMessage()


def gradient_of_stock():
    table = tf.Variable(TABLE)
    with tf.GradientTape() as tape:
        output = tf.nn.safe_embedding_lookup_sparse([table], IDS)
        loss = 0.5 * tf.reduce_sum(output * output)
    return densify(tape.gradient(loss, table), 8)


@BOTH_MODES
def test_a_fault_in_outputs_is_noticed_before_it_does_harm(function, log, monkeypatch):
    want = train("stock", function=function)
    seed_fault(monkeypatch, break_outputs)
    got = train("check", function=function)
    for g, w in zip([*got[0], got[1]], [*want[0], want[1]], strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-6)
    [error] = lines(log, logging.ERROR)
    assert error.startswith(
        "user, step 1: outputs of the fused and the stock lookup differ by 0.01"
    )
    assert "uses stock TensorFlow from now on" in error
    assert lines(log) == []  # gradients of a lookup that is stock's are not compared


@BOTH_MODES
def test_after_a_fault_the_fused_lookup_is_not_run(function, monkeypatch):
    runs = collections.Counter()

    def count(values):
        runs["fused"] += 1
        return values

    seed_fault(monkeypatch, lambda r: tf.numpy_function(count, [r + FAULT], r.dtype))
    ids, table = IDS, tf.Variable(TABLE)

    def call():
        return LOOK_UP(table, ids, fusion_version="check")

    call = tf.function(call) if function else call
    for _ in range(4):
        call()
    assert runs["fused"] == 2  # before and after stock's, in the first step


@BOTH_MODES
def test_a_fault_in_gradients_is_noticed(function, log, monkeypatch, stock_calls):
    seed_fault(monkeypatch, break_gradients)
    outputs, _ = train(fe.FusionCheck(every=2), function=function, num_steps=5)
    [error] = lines(log, logging.ERROR)
    assert error.startswith("user, step 1: gradients of the fused and the stock lookup differ by")
    assert stock_calls["stock"] == 2 + 4
    assert len(outputs) == 5


@BOTH_MODES
def test_a_fault_that_comes_later_is_noticed_at_the_next_check(function, log, monkeypatch):
    fault = tf.Variable(0.0)
    seed_fault(monkeypatch, lambda result: result + fault)
    table = tf.Variable(TABLE)
    check = fe.FusionCheck(every=3)

    def call():
        return LOOK_UP(table, IDS, fusion_version=check)

    call = tf.function(call) if function else call
    want = tf.nn.safe_embedding_lookup_sparse([table], IDS)
    call()
    fault.assign(FAULT)
    differs = [np.abs(call() - want).max() > FAULT / 2 for _ in range(4)]
    assert differs == [True, True, False, False]
    [error] = lines(log, logging.ERROR)
    assert "step 4: outputs" in error


def test_differences_are_judged_beside_the_largest_value(log, monkeypatch):
    small = tf.Variable(1e-6 * TABLE)
    seed_fault(monkeypatch, lambda result: result * (1 + FAULT))
    for tolerance, num_errors in ((2 * FAULT, 0), (FAULT / 2, 1)):
        check = fe.FusionCheck(tolerance=tolerance)
        LOOK_UP(small, IDS, fusion_version=check)
        assert len(lines(log, logging.ERROR)) == num_errors


@BOTH_MODES
def test_weights_have_their_gradient(function, log):
    table, weights = tf.Variable(TABLE), tf.Variable([1.0, 0.5, 2.0, 1.0, 3.0])

    def gradient(version):
        with tf.GradientTape() as tape:
            output = LOOK_UP(table, IDS, weights, combiner="sqrtn", fusion_version=version)
            loss = tf.reduce_sum(output * output)
        return tf.convert_to_tensor(tape.gradient(loss, weights))  # of a conditional: slices

    gradient = tf.function(gradient) if function else gradient
    np.testing.assert_allclose(gradient("check"), gradient("v3"), rtol=1e-6)
    assert not lines(log, logging.ERROR)


def test_nan_where_stock_has_a_number_is_a_difference(log, monkeypatch):
    seed_fault(monkeypatch, lambda result: result * float("nan"))
    outputs, _ = train("check", function=True, num_steps=1)
    assert np.isfinite(outputs[0]).all()
    assert "differ by inf" in lines(log, logging.ERROR)[0]


def test_nan_in_the_table_is_none(log):
    table = tf.Variable(TABLE * np.float32("nan"))
    LOOK_UP(table, IDS, fusion_version="check")
    assert not lines(log, logging.ERROR)


def test_a_table_that_is_written_meanwhile_is_not_compared(log, monkeypatch):
    table = tf.Variable(TABLE)

    def write_after(result):
        table.assign_add(tf.ones_like(TABLE))
        return result

    seed_fault(monkeypatch, write_after)
    LOOK_UP(table, IDS, fusion_version="check", name="user")
    [warning] = lines(log, logging.WARNING)
    assert "user, step 1: outputs were not compared: the table was written meanwhile" in warning
    assert not lines(log, logging.ERROR)


def test_sharded_ragged_and_flattened_lookups(log):
    shards = [tf.Variable(TABLE[:4]), tf.Variable(TABLE[4:])]
    cube = tf.sparse.reshape(IDS, [5, 1, -1])
    ragged = tf.ragged.constant([[1, 2], [], [2, 7], [1]], dtype=tf.int64)
    for params in (shards, tf.constant(TABLE)):
        for name, ids in (("matrix", IDS), ("cube", cube), ("ragged", ragged)):
            got, want = (
                LOOK_UP(params, ids, fusion_version=version, name=name)
                for version in ("check", "v2")
            )
            np.testing.assert_allclose(got, want, rtol=1e-6)
    assert len(lines(log)) == 6
    assert not lines(log, logging.ERROR)


@pytest.mark.parametrize(
    ("partitions", "use_resource"), [(None, True), (None, False), (3, True), (3, False)]
)
def test_columns_train_as_with_true(partitions, use_resource, tmp_path, log):
    columns = [cases.CATEGORICAL[case](tmp_path) for case in ("weighted", "hashed")]
    how = {"partitions": partitions, "use_resource": use_resource}
    got, want = (
        cases.train(
            input_layer(*[embedding(c, do_fusion=f, **LOOKUPS["sqrtn_max_norm"]) for c in columns]),
            **how,
        )
        for f in (fe.FusionCheck(every=1), True)
    )
    cases.assert_same_training(got, want)
    assert not lines(log, logging.ERROR)
    names = {line.split(", step")[0].split("/")[1] for line in lines(log)}
    assert names == {f"{column.name}_embedding" for column in columns}
    assert {re.search(r"step \d+: (\w+)", line)[1] for line in lines(log)} == {
        "outputs",
        "gradients",
    }


def shared(module, **kwargs):
    keys = [cases.identity("ids"), cases.identity("other_ids")]
    return lambda features: tf1.feature_column.input_layer(
        features,
        module.shared_embedding_columns(keys, DIMENSION, initializer=cases.initializer(), **kwargs),
    )


@pytest.mark.parametrize("fault", [None, break_outputs])
def test_shared_columns_fall_back_one_by_one(fault, log, monkeypatch):
    want = cases.train(shared(tf1.feature_column))
    if fault is not None:
        seed_fault(monkeypatch, fault)
    got = cases.train(shared(fe.feature_column, do_fusion=fe.FusionCheck(every=1)))
    cases.assert_same_training(got, want)
    assert len(lines(log, logging.ERROR)) == (0 if fault is None else 2)


def test_linear_model_is_checked(log):
    columns = [cases.identity(), cases.identity("other_ids")]
    want = cases.train(linear_model(columns, {}, tf1.feature_column))
    got = cases.train(linear_model(columns, {}, do_fusion=fe.FusionCheck(every=1)))
    cases.assert_same_training(got, want)
    checked = collections.Counter(re.match(r".* step \d+: \w+", line)[0] for line in lines(log))
    assert len([line for line in checked if "gradients" in line]) >= 2 * 3
    assert not lines(log, logging.ERROR)


def test_a_lookup_that_is_not_safe_is_checked(log, monkeypatch):
    column = embedding(cases.identity(), use_safe_embedding_lookup=False, do_fusion=True)
    want = cases.train(input_layer(column))
    seed_fault(monkeypatch, break_outputs)
    got = cases.train(input_layer(column._replace(do_fusion="check")))
    cases.assert_same_training(got, want)
    assert len(lines(log, logging.ERROR)) == 1


def test_gradients_of_a_graph_are_slices_and_no_variable_is_added():
    with tf.Graph().as_default():
        build = input_layer(embedding(cases.identity(), do_fusion="check"))
        output = build(cases.features())
        [variable] = tf1.global_variables()
        assert tf1.local_variables() == []
        [gradient] = tf1.gradients(cases.weighted_sum(output), [variable])
    assert isinstance(gradient, tf.IndexedSlices)
    assert variable.name == "input_layer/ids_embedding/embedding_weights:0"


def test_in_a_layer_of_all_columns_it_is_by_itself(log):
    columns = [embedding(cases.identity(), do_fusion="check")]
    columns += [embedding(cases.identity("other_ids"), do_fusion=True)]
    build = lambda module: lambda features: module.input_layer(features, columns)  # noqa: E731
    want = cases.train(build(tf1.feature_column))
    got = cases.train(build(fe.feature_column))
    cases.assert_same_training(got, want)
    assert got.ops["FusedEmbeddingResourceGroupLookup"] == 1


def test_dense_features_calls_have_one_state(log, stock_calls):
    column = embedding(cases.identity(), do_fusion=fe.FusionCheck(every=4))
    layer = cases.keras().layers.DenseFeatures([column])
    for _ in range(5):
        layer(cases.features())
    assert stock_calls["stock"] == 2


def test_for_inference_there_is_no_check(log):
    table = tf.Variable(TABLE)

    @tf.function
    def serve():
        return LOOK_UP(table, IDS, fusion_version="check")

    with fe.inference():
        ops = {op.type for op in serve.get_concrete_function().graph.get_operations()}
    assert "FusedEmbeddingResourceGroupLookup" in ops
    assert not {"PyFunc", "If"} & ops
    assert lines(log) == []


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"every": 0}, "every must be >= 1, got 0; 1 checks each step"),
        ({"tolerance": -1.0}, "tolerance must be >= 0, got -1.0"),
        ({"tolerance": float("nan")}, "tolerance must be >= 0, got nan"),
        ({"version": "v4"}, "version must be one of v1, v2, v3, got 'v4'"),
    ],
)
def test_options_are_checked(kwargs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        fe.FusionCheck(**kwargs)


def test_versions_are_checked_by_choice(log, monkeypatch):
    seed_fault(monkeypatch, break_outputs, "v1")
    train(fe.FusionCheck(version="v2"), function=True, num_steps=1)
    assert not lines(log, logging.ERROR)
    train(fe.FusionCheck(version="v1"), function=True, num_steps=1)
    assert lines(log, logging.ERROR)


def test_what_stock_cannot_do_is_refused():
    for options in ({"prune": False}, {"partition_strategy": "hash"}):
        with pytest.raises(
            ValueError, match=r"a check compares with .*; use another fusion_version"
        ):
            LOOK_UP(tf.Variable(TABLE), IDS, fusion_version="check", **options)
    column = fe.feature_column.categorical_column_with_embedding("ids", tf.int64)
    with pytest.raises(ValueError, match="stock TensorFlow has no lookup to compare with"):
        fe.feature_column.embedding_column(column, 4, do_fusion="check")
    table = fe.get_embedding_variable("checked", 3)
    with pytest.raises(ValueError, match="has no lookup in an EmbeddingVariable to compare with"):
        LOOK_UP(table, IDS, fusion_version="check")


@pytest.fixture
def control_flow_of_v1():
    tf1.disable_control_flow_v2()
    yield
    tf1.enable_control_flow_v2()


@pytest.mark.parametrize("use_resource", [True, False])
def test_programs_with_control_flow_of_v1(use_resource, log, control_flow_of_v1):
    column = embedding(cases.identity(), do_fusion=fe.FusionCheck(every=1))
    want, got = (
        cases.train(input_layer(c), use_resource=use_resource)
        for c in (column._replace(do_fusion=True), column)
    )
    cases.assert_same_training(got, want)
    assert "gradients" in "".join(lines(log))
    assert not lines(log, logging.ERROR)


def test_a_placeholder_as_table(log):
    with tf.Graph().as_default(), tf1.Session() as session:
        table = tf1.placeholder(tf.float32, [None, 3])
        ids = tf1.sparse_placeholder(tf.int64, [None, 2])
        output = LOOK_UP(table, ids, fusion_version="check")
        [gradient] = tf1.gradients(output, [table])
        feed = {table: TABLE, ids: ([[0, 0], [2, 0], [2, 1]], [3, 4, 3], [3, 2])}
        session.run([output, gradient], feed)
    assert len(lines(log)) == 2
