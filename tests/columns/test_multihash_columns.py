"""Multi-hash columns beside graphs of stock ops on the rows of each id."""

import contextlib
import doctest

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import columns as cases
from checking import assert_close, sparse
from fused_embedding.columns import composed_api

tf1 = tf.compat.v1
FC = fe.feature_column
CATEGORICAL = FC.categorical_column_with_multihash
LOOKUP_OPS = ("FusedEmbeddingResourceGroupLookup", "FusedEmbeddingGroupLookup")
PREFIX = "input_layer/user_embedding/embedding_weights"
VALUES = np.array([0, 7, 7, 3, 11, 4])
WEIGHTS = np.array([0.5, 2.0, 1.0, 3.0, 0.25, 4.0], np.float32)
DIMS = (3, 4)
ROW_DIMS = {"concat": (2, 3), "add": (3, 3), "mul": (3, 3)}


def batch(values=VALUES):
    """Rows of several ids, of none and of one; ids 0 and 3 share a row, as do 7, 3 and 11."""
    return sparse(values, [0, 0, 1, 1, 1, 3], 4, values.dtype)


def values_of(operation):
    rng = np.random.default_rng(1)
    dims = zip(DIMS, ROW_DIMS[operation], strict=True)
    return [rng.standard_normal(shape).astype(np.float32) for shape in dims]


def joined(quotients, remainders, operation):
    if operation == "concat":
        return tf.concat([quotients, remainders], axis=1)
    return quotients * remainders if operation == "mul" else quotients + remainders


def stock_layer(parts, operation, sp_weights, **how):
    """What the column gives, by stock ops on the row of each pair."""
    rows = [tf.gather(parts[0], VALUES // 4), tf.gather(parts[1], VALUES % 4)]
    pairs = batch(np.arange(len(VALUES)))
    return tf.nn.safe_embedding_lookup_sparse(joined(*rows, operation), pairs, sp_weights, **how)


def ours_layer(make_layer, operation, sp_weights, do_fusion=None, **how):
    categorical = CATEGORICAL("user", DIMS, operation=operation)
    features = {"user": batch()}
    if sp_weights is not None:
        categorical = tf.feature_column.weighted_categorical_column(categorical, "weights")
        features["weights"] = sp_weights
    column = FC.embedding_column(categorical, ROW_DIMS[operation], do_fusion=do_fusion, **how)
    return make_layer(features, [column])


def adagrad(output, variables):
    """Dense gradients, and a step."""
    optimizer = tf1.train.AdagradOptimizer(0.1)
    pairs = optimizer.compute_gradients(cases.weighted_sum(output**2), variables)
    return [tf.convert_to_tensor(grad) for grad, _ in pairs], optimizer.apply_gradients(pairs)


@pytest.mark.parametrize(
    ("operation", "combiner", "is_weighted", "max_norm"),
    [
        ("concat", "mean", False, None),
        ("concat", "sqrtn", True, None),
        ("concat", "mean", True, 0.8),
        ("add", "sum", True, None),
        ("mul", "mean", True, None),
        ("mul", "sum", False, 0.8),
    ],
)
def test_columns_train_as_stock_ops(operation, combiner, is_weighted, max_norm):
    how = {"combiner": combiner, "max_norm": max_norm}
    with tf.Graph().as_default(), tf1.Session() as session:
        sp_weights = batch(WEIGHTS) if is_weighted else None
        ours = ours_layer(FC.input_layer, operation, sp_weights, **how)
        parts = tf1.trainable_variables()
        name = "user_weighted_by_weights" if is_weighted else "user"
        prefix = f"input_layer/{name}_embedding/embedding_weights"
        assert [part.op.name for part in parts] == [f"{prefix}_q", f"{prefix}_r"]
        values = values_of(operation)
        dense = [tf1.get_variable(f"dense{i}", initializer=v) for i, v in enumerate(values)]
        stock = stock_layer(dense, operation, sp_weights, **how)
        made = [adagrad(output, of) for output, of in ((ours, parts), (stock, dense))]
        grads, steps = zip(*made, strict=True)
        session.run(tf1.global_variables_initializer())
        session.run([part.assign(v) for part, v in zip(parts, values, strict=True)])
        for _ in range(5):
            assert_close(*session.run([ours, stock]), 64)
            for got, want in zip(*session.run(grads), strict=True):
                assert_close(got, want, 128)
            session.run(steps)
        for got, want in zip(*session.run([parts, dense]), strict=True):
            assert_close(got, want, 128)


@contextlib.contextmanager
def in_scope():
    """DeepRec's input_layer over columns of a scope."""
    with fe.compat.install(), tf1.feature_column.group_embedding_column_scope("users"):
        yield tf1.feature_column.input_layer


LAYERS = {
    "ours": (lambda: contextlib.nullcontext(FC.input_layer), None),
    "stock": (lambda: contextlib.nullcontext(tf1.feature_column.input_layer), True),
    "v2": (lambda: contextlib.nullcontext(tf1.feature_column.input_layer), "v2"),
    "scope": (in_scope, None),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_columns_of_a_layer_share_an_op(kind):
    layer_of, do_fusion = LAYERS[kind]
    ids = np.array([[0], [7], [11]])
    with tf.Graph().as_default() as graph, tf1.Session() as session, layer_of() as make_layer:
        columns = [
            FC.embedding_column(CATEGORICAL(f"c{i}", (3, 4)), (2, 3), do_fusion=do_fusion)
            for i in range(3)
        ]
        output = make_layer(
            {f"c{i}": tf1.placeholder_with_default(ids, [3, 1]) for i in range(3)}, columns
        )
        session.run(tf1.global_variables_initializer())
        got, *parts = session.run([output, *tf1.trainable_variables()])
        types = [op.type for op in graph.get_operations()]
    want = [rows[ids[:, 0] // 4 if i % 2 == 0 else ids[:, 0] % 4] for i, rows in enumerate(parts)]
    np.testing.assert_array_equal(got, np.concatenate(want, axis=1))
    # "v2" asks for a lookup of each column alone.
    assert sum(map(types.count, LOOKUP_OPS)) == (3 if kind == "v2" else 1)


def test_weighted_bags_in_three_partitions():
    with tf.Graph().as_default(), tf1.Session() as session:
        categorical = CATEGORICAL("tags", (3, 3), operation="add", partition_num=3)
        weighted = tf.feature_column.weighted_categorical_column(categorical, "w")
        ids, rows = [1, 5, 5, 2], [0, 0, 1, 2]
        weights = sparse([1.0, 3.0, 2.0, 0.5], rows, 4, np.float32)
        column = FC.embedding_column(weighted, 2, combiner="mean")
        output = FC.input_layer({"tags": sparse(ids, rows, 4), "w": weights}, [column])
        session.run(tf1.global_variables_initializer())
        got, values = session.run([output, tf1.trainable_variables()])
    assert len(values) == 6
    quotients, remainders = np.concatenate(values[:3]), np.concatenate(values[3:])
    of_id = {i: quotients[i // 3] + remainders[i % 3] for i in ids}
    want = [(of_id[1] + 3 * of_id[5]) / 4, of_id[5], of_id[2], np.zeros(2)]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_an_id_that_does_not_fit_is_named():
    with tf.Graph().as_default(), tf1.Session() as session:
        column = FC.embedding_column(CATEGORICAL("user", (3, 4)), (2, 2))
        output = FC.input_layer({"user": tf.constant([[12]])}, [column])
        session.run(tf1.global_variables_initializer())
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"feature 'user'.*weights_q.*id 3"
        ):
            session.run(output)


@pytest.mark.parametrize("num_parts", [None, 2])
@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "stock"])
def test_layers_of_keras_train_all_parts(is_ours, num_parts, tmp_path):
    """In a tf.function; a layer that is made of a configuration restores what another wrote."""
    stock = cases.keras().layers.DenseFeatures
    make = FC.DenseFeatures if is_ours else stock
    categorical = CATEGORICAL("user", DIMS, operation="mul", partition_num=num_parts)
    layer = make([FC.embedding_column(categorical, 3)], name="x")
    layer({"user": batch()})
    trained = layer.trainable_weights
    halves = len(trained) // 2
    assert halves == (num_parts or 1)
    dense = [tf.Variable(tf.concat(half, 0)) for half in (trained[:halves], trained[halves:])]
    # Stock's slots need no partitions, or a graph.
    optimizers = {None: tf1.train.AdagradOptimizer, 2: tf1.train.GradientDescentOptimizer}

    @tf.function
    def gradients():
        with tf.GradientTape(persistent=True) as tape:
            ours = tf.reduce_sum(layer({"user": batch()}) ** 2)
            by_stock = tf.reduce_sum(stock_layer(dense, "mul", None) ** 2)
        return tape.gradient(ours, trained), tape.gradient(by_stock, dense)

    for variables, i in ((trained, 0), (dense, 1)):
        optimizer = optimizers[num_parts](0.1)
        for _ in range(3):
            optimizer.apply_gradients(zip(gradients()[i], variables, strict=True))
    after = layer({"user": batch()})
    assert_close(after, stock_layer(dense, "mul", None), 256)
    path = tf.train.Checkpoint(layer=layer).write(str(tmp_path / "layer"))
    again = make.from_config(layer.get_config())
    again({"user": batch()})
    tf.train.Checkpoint(layer=again).read(path).assert_consumed()
    np.testing.assert_array_equal(again({"user": batch()}), after)


def test_a_checkpoint_of_three_partitions_is_restored_into_one(tmp_path):
    def save_or_restore(num_parts, path=None):
        with tf.Graph().as_default(), tf1.Session() as session:
            categorical = CATEGORICAL("user", (6, 7), partition_num=num_parts)
            column = FC.embedding_column(categorical, (2, 3))
            output = FC.input_layer({"user": tf.constant([[1], [20], [41]])}, [column])
            train = tf1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(output))
            session.run(tf1.global_variables_initializer())
            saver = tf1.train.Saver()
            if path is None:
                session.run(train)
                return saver.save(session, str(tmp_path / "model")), session.run(output)
            saver.restore(session, path)
            return path, session.run(output)

    path, want = save_or_restore(3)
    names = [name for name, _ in tf.train.list_variables(path)]
    assert names == sorted(
        n + slot for n in (f"{PREFIX}_q", f"{PREFIX}_r") for slot in ("", "/Adagrad")
    )
    np.testing.assert_array_equal(save_or_restore(None, path)[1], want)


# --- DeepRec's columns ---


def test_rows_are_numbered_as_deeprec_numbers_them():
    """dims (5, 3), ids 0 .. 9: six distinct pairs of ten in DeepRec, ten of ten in fe."""
    ids = np.arange(10)

    def rows_of(make):
        with tf.Graph().as_default(), tf1.Session() as session:
            column = FC.embedding_column(make("user", dims=(5, 3)), (1, 1))
            output = FC.input_layer({"user": tf.constant(ids[:, np.newaxis])}, [column])
            parts = tf1.trainable_variables()
            session.run(tf1.global_variables_initializer())
            session.run(
                [part.assign(tf.range(part.shape[0] * 1.0)[:, tf.newaxis]) for part in parts]
            )
            return session.run(output).astype(int).tolist()

    assert rows_of(CATEGORICAL) == [[i // 3, i % 3] for i in ids]
    with fe.compat.deeprec.install():
        by_deeprec = rows_of(tf1.feature_column.categorical_column_with_multihash)
    assert by_deeprec == [[i // 5, i % 3] for i in ids]
    assert len(set(map(tuple, by_deeprec))) == 6


@pytest.mark.parametrize("operation", ["concat", "add", "mult"])
def test_parts_are_joined_after_they_are_combined(operation):
    """By stock's lookups of each part, with the weights for both and max_norm for each."""
    how = {"combiner": "mean", "max_norm": 0.8}
    with fe.compat.deeprec.install(), tf.Graph().as_default(), tf1.Session() as session:
        columns = tf1.feature_column
        user = columns.categorical_column_with_multihash("user", (5, 4), operation=operation)
        operation = user.operation
        weighted = tf.feature_column.weighted_categorical_column(user, "weights")
        column = columns.embedding_column(weighted, dimension=ROW_DIMS[operation], **how)
        features = {"user": batch(), "weights": batch(WEIGHTS)}
        output = columns.input_layer(features, [column])
        parts = tf1.trainable_variables()
        pooled = [
            tf.nn.safe_embedding_lookup_sparse(part, batch(rows), batch(WEIGHTS), **how)
            for part, rows in zip(parts, (VALUES // 5, VALUES % 4), strict=True)
        ]
        want = joined(*pooled, operation)
        session.run(tf1.global_variables_initializer())
        assert_close(*session.run([output, want]), 64)


def test_products_are_of_each_id_in_fe_and_of_pooled_parts_in_deeprec():
    def value(make):
        with tf.Graph().as_default(), tf1.Session() as session:
            column = FC.embedding_column(make("user", (2, 2), operation="mul"), 1, combiner="mean")
            output = FC.input_layer({"user": sparse([0, 3], [0, 0], 1)}, [column])
            quotients, remainders = tf1.trainable_variables()
            session.run(tf1.global_variables_initializer())
            session.run([quotients.assign([[1.0], [3.0]]), remainders.assign([[1.0], [5.0]])])
            return session.run(output).item()

    assert value(CATEGORICAL) == 8
    with fe.compat.deeprec.install():
        assert value(tf1.feature_column.categorical_column_with_multihash) == 6


# --- Errors ---


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: CATEGORICAL("u", (3, 3), dtype=tf.string),
            "Input type must be a integer.*'u' is string",
        ),
        (lambda: CATEGORICAL("u", (3,)), "dims of 'u'"),
        (lambda: CATEGORICAL("u", (3, 3), "R"), "complementary_strategy of 'u'"),
        (
            lambda: CATEGORICAL("u", (3, 3), operation="mult"),
            "operation of 'u' must be one of add, mul, concat",
        ),
        (lambda: CATEGORICAL("u", (3, 3), partition_num=0), "partition_num must be >= 1"),
        (
            lambda: FC.embedding_column(CATEGORICAL("u", (3, 3)), 4),
            "dimension of column 'u'.*d_q, d_r",
        ),
        (
            lambda: FC.embedding_column(CATEGORICAL("u", (3, 3)), (2, 0.5)),
            "dimension of column 'u'",
        ),
        (
            lambda: FC.embedding_column(CATEGORICAL("u", (3, 3), operation="add"), None),
            "a number, or two equal ones, > 0, got None",
        ),
        (
            lambda: FC.embedding_column(CATEGORICAL("u", (3, 3), operation="add"), (4, 3)),
            "two equal ones",
        ),
        (
            lambda: FC.shared_embeddings([CATEGORICAL("u", (3, 3))], 4),
            "'u' was given to shared columns",
        ),
        (
            lambda: FC.input_layer(
                {"u": tf.constant([["a"]])},
                [FC.embedding_column(CATEGORICAL("u", (3, 3)), (2, 2))],
            ),
            "column 'u' has dtype int64, but the feature is string",
        ),
    ],
)
def test_errors(make, message):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: FC.linear_model({"u": tf.constant([[1]])}, [CATEGORICAL("u", (3, 3))]),
            "number of buckets of column 'u'",
        ),
        (
            lambda: FC.embedding_column(
                CATEGORICAL("u", (3, 3)), (2, 2), ckpt_to_load_from="path", tensor_name_in_ckpt="t"
            ),
            "'path' was given, but the table of 'u_embedding' cannot start",
        ),
    ],
)
def test_what_such_columns_do_not_have(make, message):
    with tf.Graph().as_default(), pytest.raises(NotImplementedError, match=message):
        make()


def test_a_column_survives_its_config():
    column = CATEGORICAL("u", (3, 4), operation="add", partition_num=2)
    assert type(column).from_config(column.get_config()) == column


def test_examples_of_the_docstrings():
    results = doctest.testmod(composed_api, extraglobs={"fe": fe})
    assert (results.attempted, results.failed) == (5, 0)
