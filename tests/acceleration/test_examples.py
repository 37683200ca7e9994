"""tf.io.parse_example under fe.accelerate, and where stock's op is built: there and by fe.io."""

import acceleration_cases as cases
import numpy as np
import pytest
import tensorflow as tf

# As programs import it: before fe.accelerate() is called.
from tensorflow.io import parse_example as early_parse_example

import fused_embedding as fe
from cases.examples import SPARSE, entry, example, integers, texts
from fused_embedding.acceleration import examples
from fused_embedding.input import dataset_service

v1 = tf.compat.v1
KIND = "parse_example"
ROWS = [example(entry(b"i", integers(*range(i))), entry(b"s", texts(b"%d" % i))) for i in range(9)]


@pytest.fixture(autouse=True)
def _ends():
    yield
    fe.accelerate(False)


def ops_of(graph):
    """Types of the ops that parse, of a graph and its functions."""
    graph = graph.as_graph_def() if hasattr(graph, "as_graph_def") else graph
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    return {node.op for node in nodes} & {dataset_service.OURS, dataset_service.STOCK}


def graph_of(dataset):
    return v1.GraphDef.FromString(dataset._as_serialized_graph().numpy())


def arrays(results):
    return [leaf.numpy() for leaf in tf.nest.flatten(results, expand_composites=True)]


def assert_same(got, want):
    for a, b in zip(arrays(got), arrays(want), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "parse",
    [tf.io.parse_example, early_parse_example, v1.io.parse_example, v1.parse_example],
    ids=["io", "imported before", "v1.io", "v1"],
)
def test_every_name_is_replaced(parse):
    want = parse(ROWS, SPARSE)
    with fe.accelerate() as acceleration:
        assert_same(parse(ROWS, SPARSE), want)
    assert cases.replaced(acceleration.records) == {KIND}


@pytest.mark.parametrize("parse", [tf.io.parse_single_example, v1.io.parse_single_example])
def test_single_examples_are_replaced(parse):
    want = parse(ROWS[3], SPARSE)
    with fe.accelerate() as acceleration:
        assert_same(parse(ROWS[3], SPARSE), want)
    assert cases.replaced(acceleration.records) == {KIND}


def test_a_tf1_graph_has_our_op():
    with tf.Graph().as_default() as graph:
        serialized = v1.placeholder(tf.string, [None])
        with fe.accelerate():
            v1.parse_example(serialized, SPARSE)
        assert ops_of(graph) == {dataset_service.OURS}


def functions(parse):
    """Functions that parse, by what the graph around them is."""

    @tf.function
    def without_tape(rows):
        return parse(rows, SPARSE)

    @tf.function
    def with_tape(rows):
        with tf.GradientTape():
            return parse(rows, SPARSE)

    return without_tape, with_tape


@pytest.mark.parametrize("is_explicit", [False, True], ids=["accelerate", "fe.io"])
def test_functions_that_may_be_saved_have_stocks_op(is_explicit):
    rows = tf.TensorSpec([None], tf.string)
    with fe.accelerate(not is_explicit) as acceleration:
        without_tape, with_tape = functions((fe.io if is_explicit else tf.io).parse_example)
        assert ops_of(without_tape.get_concrete_function(rows).graph) == {dataset_service.STOCK}
        assert ops_of(with_tape.get_concrete_function(rows).graph) == {dataset_service.OURS}
    if not is_explicit:
        assert "may be saved" in cases.left(acceleration.records)[KIND]


@pytest.mark.parametrize("is_explicit", [False, True], ids=["accelerate", "fe.io"])
def test_a_saved_model_has_stocks_op(is_explicit, tmp_path):
    class Parser(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def parse(self, rows):
            return (fe.io if is_explicit else tf.io).parse_example(rows, SPARSE)["i"].values

    module = Parser()
    with fe.accelerate(not is_explicit):
        tf.saved_model.save(module, str(tmp_path))
    saved = tf.saved_model.load(str(tmp_path))
    assert ops_of(saved.parse.get_concrete_function().graph) == {dataset_service.STOCK}
    assert saved.parse(ROWS[:3]).numpy().tolist() == [0, 0, 1]


@pytest.mark.parametrize("is_explicit", [False, True], ids=["accelerate", "fe.io"])
def test_a_dataset_has_our_op(is_explicit):
    rows = tf.data.Dataset.from_tensor_slices(ROWS).batch(4)
    want = list(rows.map(lambda batch: tf.io.parse_example(batch, SPARSE)))
    with fe.accelerate(not is_explicit) as acceleration:
        parse = (fe.io if is_explicit else tf.io).parse_example
        dataset = rows.map(lambda batch: parse(batch, SPARSE), num_parallel_calls=2)
        nested = rows.map(lambda batch: tf.function(parse)(batch, SPARSE))
    for of_ours in (dataset, nested):
        assert ops_of(graph_of(of_ours)) == {dataset_service.OURS}
        for got, of_stock in zip(of_ours, want, strict=True):
            assert_same(got, of_stock)
    assert is_explicit or cases.replaced(acceleration.records) == {KIND}


def test_a_dataset_in_a_function_that_may_be_saved_has_stocks_op():
    @tf.function
    def first(rows):
        dataset = tf.data.Dataset.from_tensors(rows)
        return next(iter(dataset.map(lambda batch: fe.io.parse_example(batch, SPARSE))))

    graph = first.get_concrete_function(tf.TensorSpec([None], tf.string)).graph
    assert ops_of(graph) == {dataset_service.STOCK}


def test_a_service_gets_stocks_op():
    """Its workers may be processes without this package."""
    rows = tf.data.Dataset.from_tensor_slices(ROWS).batch(4)
    dataset = rows.map(lambda batch: fe.io.parse_example(batch, SPARSE)).prefetch(2)
    changed = dataset_service.with_stock_ops(dataset)
    assert ops_of(graph_of(changed)) == {dataset_service.STOCK}
    assert changed.element_spec == dataset.element_spec
    for got, want in zip(changed, dataset, strict=True):
        assert_same(got, want)
    without = rows.prefetch(2)
    assert dataset_service.with_stock_ops(without) is without


def test_a_dataset_through_a_service(monkeypatch):
    registered = []
    stock_ops = dataset_service.with_stock_ops
    monkeypatch.setattr(
        examples,
        "with_stock_ops",
        lambda d: registered.append(stock_ops(d)) or registered[-1],
    )
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
    rows = tf.data.Dataset.from_tensor_slices(ROWS).batch(4)
    with fe.accelerate():
        dataset = rows.map(lambda batch: tf.io.parse_example(batch, SPARSE))
        distribute = service.distribute(service.ShardingPolicy.OFF, dispatcher.target)
        for got, want in zip(dataset.apply(distribute), dataset, strict=True):
            assert_same(got, want)
    assert ops_of(graph_of(dataset)) == {dataset_service.OURS}
    assert [ops_of(graph_of(each)) for each in registered] == [{dataset_service.STOCK}]
    del worker


def test_fe_disable(monkeypatch):
    monkeypatch.setenv("FE_DISABLE", "parse")
    with tf.Graph().as_default() as graph:
        fe.io.parse_example(v1.placeholder(tf.string, [None]), SPARSE)
        assert ops_of(graph) == {dataset_service.STOCK}


def test_an_export_has_stocks_op(tmp_path):
    """fe.export_for_serving of a TF1 graph that parses."""
    with tf.Graph().as_default() as graph, v1.Session() as session:
        serialized = v1.placeholder(tf.string, [None])
        features = {
            "i": tf.io.VarLenFeature(tf.int64),
            "d": tf.io.FixedLenFeature([1], tf.string, ""),
        }
        ids = fe.io.parse_example(serialized, features)["i"]
        total = tf.sparse.reduce_sum(ids, 1)
        assert ops_of(graph) == {dataset_service.OURS}
        fe.export_for_serving(
            session, tmp_path / "export", inputs={"rows": serialized}, outputs={"total": total}
        )
    saved = tf.saved_model.load(str(tmp_path / "export"))
    function = saved.signatures["serving_default"]
    assert ops_of(function.graph) == {dataset_service.STOCK}
    assert function(rows=tf.constant(ROWS[:4]))["total"].numpy().tolist() == [0, 0, 1, 3]
