"""fe.export_for_serving(quantize=): what exports of stored rows compute, their files and errors.

Rows are compared bit for bit with an oracle; results of lookups with this package's inference of a
twin, a model that has the rounded rows.
"""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import fused_embedding as fe
from cases import kerases
from oracle.small_rows import rounded_rows
from serving import serving_cases as cases

v1 = tf.compat.v1
FORMATS = ("int8", "int4", "bfloat16")
KEYS = np.arange(10, dtype=np.int64)
IDS = tf.TensorSpec([None], tf.int64, name="ids")


def random_rows(num_rows, dim, seed=0):
    return np.random.default_rng(seed).normal(size=[num_rows, dim]).astype(np.float32)


def rounding(row_format):
    return lambda rows: rounded_rows(rows, row_format) if row_format else rows


def served(folder, *requests):
    """What an export that is loaded eagerly answers to each request."""
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    answers = [serve(**cases.tensors(given)).items() for given in requests]
    return [{name: value.numpy() for name, value in answer} for answer in answers]


def served_in_session(folder, given):
    """What a session of TF1 computes."""
    with tf.Graph().as_default(), v1.Session() as session:
        loaded = v1.saved_model.load(session, ["serve"], str(folder))
        signature = loaded.signature_def["serving_default"]
        feed = {signature.inputs[name].name: value for name, value in given.items()}
        return session.run({name: o.name for name, o in signature.outputs.items()}, feed)


def op_types(folder):
    model = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    graph = model.meta_graphs[0].graph_def
    functions = [function.node_def for function in graph.library.function]
    return {node.op for nodes in [graph.node, *functions] for node in nodes}


class Tables(tf.Module):
    """A table in partitions that is looked up with weights and norms."""

    def __init__(self, row_format=None):
        super().__init__()
        rounded = rounding(row_format)
        first = v1.constant_initializer(0.1)
        halves = v1.fixed_size_partitioner(2)
        self.items = fe.get_embedding_variable("items", 5, initializer=first, partitioner=halves)
        self.items.upsert(KEYS, rounded(random_rows(10, 5, 2)))

    @tf.function(input_signature=list(cases.SPECS.values()))
    def serve(self, ids, indices, dense_shape, weights):
        sp_ids = tf.SparseTensor(indices, ids, dense_shape)
        sp_weights = tf.SparseTensor(indices, weights, dense_shape)
        lookup = fe.nn.fused_safe_embedding_lookup_sparse
        return {
            "mean": lookup(self.items, sp_ids, sp_weights, combiner="mean", default_id=3),
            "clipped": lookup(self.items, sp_ids, combiner="sqrtn", max_norm=0.3),
        }


def test_lookups_of_tables_compute_what_inference_does_of_rounded_rows(tmp_path):
    model, twin = Tables(), Tables("int8")
    errors = fe.export_for_serving(model, tmp_path, signatures=model.serve, quantize="int8")
    assert {name: error.rows for name, error in errors.items()} == {"items": 10}
    assert not op_types(tmp_path) & cases.OURS
    given = cases.batch()
    want = cases.inferred(twin.serve, given)
    cases.assert_same(served_in_session(tmp_path, given), want)
    got, got_of_none = served(tmp_path, given, cases.NO_IDS)
    cases.assert_same(got, want)
    cases.assert_same(got_of_none, cases.inferred(twin.serve, cases.NO_IDS))


class Variables(tf.Module):
    """A variable that is looked up in all ways, and variables that are used otherwise too."""

    def __init__(self, row_format=None):
        super().__init__()
        rows = random_rows(12, 7)
        self.words = tf.Variable(rounding(row_format)(rows), name="words")
        self.tied, self.looped = tf.Variable(rows, name="tied"), tf.Variable(rows, name="looped")
        self.kernel = tf.Variable(random_rows(7, 4), name="kernel")
        self.unread = tf.Variable(rows, name="unread")

    @tf.function(input_signature=[IDS])
    def serve(self, ids):
        words, _, looped = self.words, self.unread, self.looped.read_value()
        sp_ids = tf.sparse.from_dense(tf.stack([ids, ids], axis=1) + 1)
        stages, group = (
            fe.nn.fused_safe_embedding_lookup_sparse,
            fe.nn.group_embedding_lookup_sparse,
        )
        for _ in tf.range(2):  # a matrix that a loop changes
            looped = looped * 2.0
        return {
            "matrix": tf.gather(words, [ids, ids]),
            "value": tf.gather(words.read_value(), ids),
            "group": group([words], [sp_ids], ["mean"])[0],
            "tensors": group([words.read_value()], [sp_ids], ["sum"])[0],
            "v1": stages(words, sp_ids, combiner="sum", max_norm=1.0, fusion_version="v1"),
            "v2": stages(words.read_value(), sp_ids, fusion_version="v2"),
            "size": tf.shape(words.read_value())[0],
            "branch": tf.cond(
                tf.size(ids) > 2, lambda: tf.gather(words, ids), lambda: tf.zeros([0, 7])
            ),
            "loop": tf.while_loop(
                lambda i, _: i < 3,
                lambda i, total: (i + 1, total + tf.gather(words, [i])),
                (0, tf.zeros([1, 7])),
            )[1],
            "tied": tf.matmul(tf.gather(self.tied, ids), self.tied, transpose_b=True),
            "columns": tf.gather(self.kernel, ids % 4, axis=1),
            "looped": tf.gather(looped, ids),
        }


@pytest.fixture(scope="module")
def variables():
    return Variables()


def test_lookups_of_variables_compute_what_inference_does_of_rounded_rows(variables, tmp_path):
    """Also in an export of the export."""
    twin = Variables("int4")
    first, second = tmp_path / "1", tmp_path / "2"
    errors = fe.export_for_serving(variables, first, signatures=variables.serve, quantize="int4")
    assert errors.keys() == {"words"}
    given = {"ids": np.array([3, 0, 10])}
    want = cases.inferred(twin.serve, given)
    cases.assert_same(*served(first, given), want)
    fe.export_for_serving(tf.saved_model.load(str(first)), second)
    assert not op_types(second) & cases.OURS
    cases.assert_same(*served(second, given), want)


TABLES = {  # of an export by its format: dim, dtype, initializer
    "int8": (64, tf.float32, v1.constant_initializer(0.1)),
    "int4": (64, tf.float32, None),
    "bfloat16": (5, tf.float64, random_rows(3, 5, seed=9).astype(np.float64)),
}
NUM_ROWS = 2000
KEY_BYTES = 16  # key and position
ROWS = "embedding_tables/0/rows/.ATTRIBUTES/VARIABLE_VALUE"


class Table(tf.Module):
    """A table, and a variable whose rows would not become smaller."""

    def __init__(self, dim, dtype, initializer):
        super().__init__()
        self.table = fe.get_embedding_variable(
            "ads", dim, value_dtype=dtype, initializer=initializer
        )
        self.bias = tf.Variable(random_rows(12, 1).astype(np.float16), name="bias")
        self.table.upsert(np.arange(NUM_ROWS), tf.cast(random_rows(NUM_ROWS, dim), dtype))

    @tf.function(input_signature=[IDS])
    def serve(self, ids):
        bias = tf.gather(self.bias, ids % 12)
        return {"rows": tf.nn.embedding_lookup(self.table, ids), "bias": bias}


@pytest.mark.parametrize("row_format", FORMATS)
def test_rows_are_those_of_the_oracle_and_first_values_are_exact(tmp_path, row_format):
    model = Table(*TABLES[row_format])
    errors = fe.export_for_serving(model, tmp_path, signatures=model.serve, quantize=row_format)
    unknown = cases.UNKNOWN[np.abs(cases.UNKNOWN) >= NUM_ROWS]
    given = {"ids": np.concatenate([np.arange(NUM_ROWS), unknown])}
    want, (got,) = cases.inferred(model.serve, given), served(tmp_path, given)
    assert got["rows"].dtype == want["rows"].dtype
    assert got["rows"][:50].tobytes() == rounded_rows(want["rows"][:50], row_format).tobytes()
    assert got["rows"][NUM_ROWS:].tobytes() == want["rows"][NUM_ROWS:].tobytes()
    assert got["bias"].tobytes() == want["bias"].tobytes()
    assert errors.keys() == {"ads"}
    assert_errors(errors["ads"], row_format, want["rows"][:NUM_ROWS], got["rows"][:NUM_ROWS])
    assert_small(tmp_path / "variables", *TABLES[row_format][:2], row_format)


def assert_errors(got, row_format, rows, read):
    rows = rows.astype(np.float64)
    errors = read.astype(np.float64) - rows
    assert (got.format, got.rows) == (row_format, NUM_ROWS)
    assert got.max_abs == np.abs(errors).max()
    np.testing.assert_allclose(got.rms, np.sqrt(np.mean(errors**2)), rtol=1e-12)
    relative = np.sqrt(np.sum(errors**2) / np.sum(rows**2))
    np.testing.assert_allclose(got.relative, relative, rtol=1e-12)


def assert_small(folder, dim, dtype, row_format):
    """The share of float rows, and that of them with what a key takes."""
    rows = tf.train.load_checkpoint(str(folder / "variables")).get_tensor(ROWS)
    row_bytes = NUM_ROWS * dim * dtype.size
    assert rows.nbytes < {"int8": 0.29, "int4": 0.15, "bfloat16": 0.26}[row_format] * row_bytes
    size = sum(path.stat().st_size for path in folder.iterdir())
    whole = {"int8": 0.34, "int4": 0.21, "bfloat16": 0.51}[row_format]
    assert size < whole * (row_bytes + NUM_ROWS * KEY_BYTES)


@pytest.mark.parametrize(
    ("quantize", "message"),
    [
        ("", r"format '': give one of int8"),
        ("int9", r"format 'int9': give one of int8, int4, bfloat16"),
        ({"words": "fp8"}, r"format 'fp8'"),
        ({"word": "int8"}, r"has 'word', but the export has \['kernel', 'looped', 'tied', 'wo"),
        ({"tied": "int8"}, r"'tied', which is used by the op .* of type MatMul"),
        ({"looped": "int8"}, r"'looped', which is used by the op .* of type .*While"),
        ({"kernel": "int8"}, r"'kernel', which is used by the op .* of type GatherV2"),
        ({"words": "int8", "unread": "int8"}, r"has 'unread', but the export has"),
    ],
)
def test_variables_that_cannot_be_stored_by_row(variables, tmp_path, quantize, message):
    with pytest.raises(ValueError, match=message):
        fe.export_for_serving(variables, tmp_path, signatures=variables.serve, quantize=quantize)
    assert not list(tmp_path.iterdir())


class Odd(tf.Module):
    """A table and variables that cannot be stored by row."""

    def __init__(self):
        super().__init__()
        self.ads = fe.get_embedding_variable("ads", 4)
        self.ads.upsert([7, 8], [[1.0, 2, 3, 4], [1, 7e4, 3, 4]])
        self.words = tf.Variable([[1.0, 2, 3], [3, 4, np.inf]], name="words")
        self.vector = tf.Variable([1.0, 2.0], name="vector")
        self.numbers = tf.Variable([[1, 2], [3, 4]], name="numbers")

    @tf.function(input_signature=[IDS])
    def serve(self, ids):
        tables = (self.ads, self.words, self.vector, self.numbers)
        return [tf.nn.embedding_lookup(table, ids) for table in tables]


@pytest.mark.parametrize(
    ("quantize", "message"),
    [
        ("int4", "the row of key 8 of 'ads' has the number 70000, but the format int4"),
        ("int8", "row 1 of 'words' has the number inf, but the format int8"),
        ({"vector": "int8"}, r"'vector', which is a variable of float32 of shape \(2,\)"),
        ({"numbers": "int8"}, r"'numbers', which is a variable of int32 of shape \(2, 2\)"),
        ({"ads": "int8", "users": "int8"}, r"has 'users', but .* \['ads', 'numbers', 'vector',"),
    ],
)
def test_rows_that_a_format_does_not_have(tmp_path, quantize, message):
    model = Odd()
    with pytest.raises(ValueError, match=message):
        fe.export_for_serving(model, tmp_path, signatures=model.serve, quantize=quantize)
    assert not list(tmp_path.iterdir())


def test_quantize_of_another_type(variables, tmp_path):
    with pytest.raises(TypeError, match=r"must be a format or a dictionary of formats .*, got 8"):
        fe.export_for_serving(variables, tmp_path, signatures=variables.serve, quantize=8)


def test_an_export_without_rows_to_store_is_refused(tmp_path):
    model = tf.Module()
    model.kernel = tf.Variable(random_rows(4, 4))
    model.serve = tf.function(
        lambda x: {"y": tf.matmul(x, model.kernel)},
        input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")],
    )
    with pytest.raises(ValueError, match="quantize is 'int8', but the export has no table"):
        fe.export_for_serving(model, tmp_path, signatures=model.serve, quantize="int8")


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_session(tmp_path, use_resource):
    """Partitions of a variable have the name of the whole."""
    with tf.Graph().as_default(), v1.Session() as session:
        ids = v1.placeholder(tf.int64, [None])
        given = {"use_resource": use_resource}
        with v1.variable_scope("model", partitioner=v1.fixed_size_partitioner(2)):
            words = v1.get_variable("words", [9, 6], **given)
        kernel = v1.get_variable("kernel", [6, 4], **given)
        parts = v1.nn.embedding_lookup(words, ids, partition_strategy="div")
        outputs = {"rows": parts, "dense": tf.matmul(parts, kernel)}
        session.run(v1.global_variables_initializer())
        errors = fe.export_for_serving(
            session, tmp_path, inputs={"ids": ids}, outputs=outputs, quantize="int8"
        )
        numbers, kernel = session.run([tf.concat(list(words), axis=0), kernel])
    assert {name: error.rows for name, error in errors.items()} == {"model/words": 9}
    (got,) = served(tmp_path, {"ids": np.array([8, 0, 4, 5])})
    assert got["rows"].tobytes() == rounded_rows(numbers[[8, 0, 4, 5]], "int8").tobytes()
    np.testing.assert_allclose(got["dense"], got["rows"] @ kernel, rtol=1e-6, atol=1e-6)


def test_a_keras_model(tmp_path):
    keras = kerases.KERASES["keras"]
    words = keras.Input((2,), dtype="int64", name="words")
    layers = [keras.layers.Embedding(9, 6, name="stock"), fe.keras.embedding_layer(keras)(6, "sum")]
    rows = keras.layers.concatenate([keras.layers.Flatten()(layers[0](words)), layers[1](words)])
    model = keras.Model(words, keras.layers.Dense(4, name="last")(rows))
    errors = fe.export_for_serving(model, tmp_path, quantize={"stock/embeddings": "int8"})
    assert errors.keys() == {"stock/embeddings"}
    layers[0].set_weights([rounded_rows(layers[0].get_weights()[0], "int8")])
    ids = np.array([[3, 8], [0, 1]])
    cases.assert_same(*served(tmp_path, {"words": ids}), {"output_0": model(ids, training=False)})
