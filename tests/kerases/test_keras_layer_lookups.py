"""The Keras layers beside stock: outputs, gradients, forms of ids, dtypes, shapes, errors."""

import doctest
import importlib
import json

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.keras_layers import (
    DIM,
    HOLDERS,
    IDS,
    KINDS,
    NUM_ROWS,
    VALUES,
    WIDTH,
    batch,
    loss_of,
    make_layer,
    padded,
    stock_bag,
    variable_of,
    weights_batch,
)
from cases.kerases import KERASES, is_keras_3, takes_ragged_inputs
from checking import as_indexed_slices, assert_close, densify

EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
EACH_HOLDER = pytest.mark.parametrize("holder", HOLDERS)
EACH_KIND = pytest.mark.parametrize("kind", KINDS)


@EACH_KERAS
@EACH_HOLDER
@EACH_KIND
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_bag_is_stocks_safe_lookup(keras, holder, kind, weighted, combiner):
    want, want_grad, _ = stock_bag(VALUES, weighted, combiner)
    layer = make_layer(keras, "EmbeddingBag", holder, combiner=combiner)
    weights = weights_batch(kind) if weighted else None
    with tf.GradientTape() as tape:
        out = layer(batch(kind), weights=weights)
        loss = loss_of(out)
    grad = tape.gradient(loss, variable_of(layer))
    assert_close(out.numpy(), want.numpy())
    assert isinstance(grad, tf.IndexedSlices)
    ids, _ = as_indexed_slices(grad)
    assert len(set(ids.tolist())) == len(ids), "stock optimizers apply slices one by one"
    assert_close(densify(grad, NUM_ROWS).astype(np.float32), densify(want_grad, NUM_ROWS), terms=32)


@EACH_KERAS
@EACH_HOLDER
@EACH_KIND
def test_weights_have_a_gradient(keras, holder, kind):
    _, _, want = stock_bag(VALUES, True, "mean")
    layer = make_layer(keras, "EmbeddingBag", holder)
    flat = weights_batch("sparse").values
    with tf.GradientTape() as tape:
        tape.watch(flat)
        weights = {
            "dense": lambda: tf.scatter_nd(
                batch("sparse").indices, flat, tf.constant([len(IDS), WIDTH], tf.int64)
            ),
            "sparse": lambda: batch("sparse").with_values(flat),
            "ragged": lambda: batch("ragged").with_flat_values(flat),
        }[kind]()
        loss = loss_of(layer(batch(kind), weights=weights))
    got, want = tape.gradient(loss, flat), tf.convert_to_tensor(want)
    assert_close(got.numpy(), want.numpy(), terms=64)


@EACH_KERAS
@EACH_HOLDER
def test_max_norm_and_default_id(keras, holder):
    want, *_ = stock_bag(VALUES, False, "sum", max_norm=1.5, default_id=4)
    layer = make_layer(keras, "EmbeddingBag", holder, combiner="sum", max_norm=1.5, default_id=4)
    assert_close(layer(batch("ragged")).numpy(), want.numpy())
    without, *_ = stock_bag(VALUES, False, "sum")
    assert not np.allclose(want, without)


@EACH_KERAS
@EACH_HOLDER
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_bags_of_any_rank(keras, holder, dtype):
    layer = make_layer(keras, "EmbeddingBag", holder, combiner="sum")
    ids = np.array([[[1, 2], [-1, -1]], [[3, -7], [0, 0]], [[4, 5], [6, 7]]], dtype)
    want = np.where(ids[..., None] < 0, 0, VALUES[ids]).sum(axis=2)
    assert_close(layer(ids).numpy(), want)
    assert layer(ids[:0]).shape == (0, 2, DIM)
    assert layer(ids[:, :, :0]).numpy().tolist() == np.zeros((3, 2, DIM)).tolist()


@EACH_KERAS
@EACH_HOLDER
@EACH_KIND
def test_embedding_is_stocks(keras, holder, kind):
    """Places of a sparse tensor without an id read row 0."""
    stock = keras.layers.Embedding(NUM_ROWS, DIM)
    stock.build((None, WIDTH))
    stock.set_weights([VALUES])
    layer = make_layer(keras, "Embedding", holder)
    ids = batch(kind, padding=0)
    dense = padded(IDS, 0, np.int64)
    with tf.GradientTape() as tape:
        out = layer(ids)
        flat = out.flat_values if kind == "ragged" else out
        loss = tf.reduce_sum(flat**2)
    grad = densify(tape.gradient(loss, variable_of(layer)), NUM_ROWS)
    if kind == "ragged":
        assert isinstance(out, tf.RaggedTensor)
        assert [len(row) for row in out.to_list()] == [len(row) for row in IDS]
        dense = ids.flat_values.numpy()
        want = VALUES[dense]
    else:
        want = stock(dense).numpy()
    assert_close(flat.numpy(), want)
    counts = np.bincount(dense.ravel(), minlength=NUM_ROWS)
    assert_close(grad.astype(np.float32), 2 * counts[:, None] * VALUES)


@EACH_KERAS
@EACH_HOLDER
@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (2, 3, 2), (0, 3)])
def test_embedding_of_any_rank(keras, holder, shape):
    layer = make_layer(keras, "Embedding", holder)
    ids = np.random.RandomState(0).randint(0, NUM_ROWS, shape)
    assert_close(layer(tf.constant(ids)).numpy(), VALUES[ids])


@EACH_KERAS
@pytest.mark.parametrize("ids", [[NUM_ROWS], [-1]])
def test_ids_outside_of_ordinary_weights_are_errors(keras, ids):
    layer = make_layer(keras, "Embedding", "weights")
    with pytest.raises(tf.errors.InvalidArgumentError, match=str(ids[0])):
        layer(tf.constant(ids))
    bag = make_layer(keras, "EmbeddingBag", "weights")
    if ids[0] > 0:
        with pytest.raises(tf.errors.InvalidArgumentError, match=str(ids[0])):
            bag(tf.constant([ids]))


@EACH_KERAS
def test_mask_zero(keras):
    stock = keras.layers.Embedding(NUM_ROWS, DIM, mask_zero=True)
    ids = batch("dense", padding=0)
    layer = make_layer(keras, "Embedding", "weights", mask_zero=True)
    want = np.array(stock.compute_mask(ids))
    assert np.array_equal(np.array(layer.compute_mask(ids)), want)
    assert make_layer(keras, "Embedding", "weights").compute_mask(ids) is None
    inputs = keras.Input((WIDTH,), dtype="int64")
    model = keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(layer(inputs)))
    got = model.predict(padded([[3, 1], [7, 7, 2]], 0, np.int64), verbose=0)
    assert_close(got, np.stack([VALUES[[3, 1]].mean(0), VALUES[[7, 7, 2]].mean(0)]))


# --- Dtypes ---


@EACH_KERAS
@EACH_HOLDER
@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64"])
@pytest.mark.parametrize("is_in_model", [False, True])
def test_policies_cast_results_and_never_ids(keras, holder, name, policy, is_in_model):
    """2049 and 2050 are one number as float16, 257 and 258 as bfloat16."""
    big = np.array([[2049, 2050], [257, 258]], np.int64)
    options = {"input_dim": 3000} if holder == "weights" else {}
    bag = {"combiner": "sum"} if name == "EmbeddingBag" else {}
    set_policy = getattr(keras, "mixed_precision", keras).set_global_policy
    set_policy(policy)
    try:
        layer = getattr(fe.keras.fused_layers(keras), name)(
            output_dim=DIM, **options, **bag, embeddings_initializer="uniform"
        )
        inputs = keras.Input((2,), dtype="int64")
        model = keras.Model(inputs, layer(inputs))
        with tf.GradientTape() as tape:
            out = (model if is_in_model else layer)(big, training=True)
            loss = tf.reduce_sum(tf.cast(out, tf.float32) ** 2)
        grad = tape.gradient(loss, variable_of(layer))
    finally:
        set_policy("float32")
    compute = {"mixed_float16": tf.float16, "mixed_bfloat16": tf.bfloat16}.get(policy, tf.float64)
    stored = tf.float64 if policy == "float64" else tf.float32
    assert out.dtype == compute
    assert variable_of(layer).dtype == stored
    assert grad.dtype == stored
    assert set(grad.indices.numpy().tolist()) == set(big.ravel().tolist())
    with fe.inference():
        rows = tf.nn.embedding_lookup(variable_of(layer), big)
    want = tf.cast(rows if name == "Embedding" else tf.reduce_sum(rows, 1), compute)
    assert np.array_equal(out.numpy(), want.numpy())


@EACH_KERAS
def test_policies_do_not_cast_weights_of_ids(keras):
    """As float16, 2049 would be 2048."""
    layer = fe.keras.fused_layers(keras).EmbeddingBag(
        4, DIM, combiner="sum", embeddings_initializer="ones", dtype="mixed_float16"
    )
    out = layer(tf.constant([[1, 2]]), weights=tf.constant([[2049.0, -2048.0]]))
    assert np.array_equal(out.numpy(), np.ones((1, DIM), np.float16))


@EACH_KERAS
@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
def test_keras_is_given_a_tensor_of_the_ids_in_an_array(keras, name, monkeypatch):
    """Keras before 3.4 makes floats of an array's integers, which loses the last bit of these."""
    given = []
    monkeypatch.setattr(keras.layers.Layer, "__call__", lambda _, ids: given.append(ids))
    getattr(fe.keras.fused_layers(keras), name)(output_dim=DIM)(np.array([[2**24 + 1]]))
    [ids] = given
    assert isinstance(ids, tf.Tensor)
    assert (ids.dtype, ids.numpy().tolist()) == (tf.int64, [[2**24 + 1]])


# --- Shapes ---


@EACH_KERAS
@EACH_HOLDER
@EACH_KIND
@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
def test_symbolic_shapes_are_the_real_ones(keras, holder, kind, name):
    options = {"input_dim": NUM_ROWS} if holder == "weights" else {}
    layer = getattr(fe.keras.fused_layers(keras), name)(output_dim=DIM, **options)
    shape = (None,) if kind == "ragged" else (WIDTH,)
    flag = {} if kind == "dense" else {kind: True}
    if kind == "ragged" and not takes_ragged_inputs(keras):
        pytest.skip(f"keras.Input of Keras {keras.__version__} cannot be ragged")
    inputs = keras.Input(shape, dtype="int64", **flag)
    symbolic = layer(inputs)
    want = layer.compute_output_shape((None, *shape))
    assert tuple(symbolic.shape) == tuple(want)
    real = keras.Model(inputs, symbolic)(batch(kind, padding=0))
    assert len(real.shape) == len(want)
    for symbol, size in zip(want, real.shape, strict=True):
        assert symbol in (None, size)
    is_ragged = kind == "ragged" and name == "Embedding"
    assert isinstance(real, tf.RaggedTensor) == is_ragged
    if is_keras_3(keras) and takes_ragged_inputs(keras):
        assert symbolic.ragged == is_ragged


# --- Configurations ---


@EACH_KERAS
@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
def test_configurations_make_the_same_layer(keras, name):
    cls = getattr(fe.keras.fused_layers(keras), name)
    assert cls is getattr(fe.keras.fused_layers(keras), name)
    bag = {"combiner": "sqrtn", "max_norm": 2.0, "default_id": 3}
    option = fe.EmbeddingVariableOption(
        filter_option=fe.CounterFilter(2),
        init_option=fe.InitializerOption(keras.initializers.Constant(2.0)),
        max_capacity=100_000,
        eviction="lru",
    )
    for options in (
        {"input_dim": 7, "embeddings_initializer": keras.initializers.RandomUniform(-1, 1, seed=3)}
        | {"embeddings_regularizer": keras.regularizers.L2(0.1)}
        | {"embeddings_constraint": keras.constraints.NonNeg()},
        {"ev_option": option, "dtype": "mixed_float16"},
        {"input_dim": 7, "ev_option": option, "embeddings_initializer": "ones"},
    ):
        more = bag if name == "EmbeddingBag" else {"mask_zero": True}
        layer = cls(output_dim=DIM, name="ids", **options, **more)
        # As a file of Keras has it.
        config = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
        copy = keras.saving.deserialize_keras_object(config)
        assert type(copy) is cls
        assert copy.get_config() == layer.get_config()
        assert copy.ev_option == layer.ev_option or (
            copy.ev_option.init_option.initializer.get_config()
            == option.init_option.initializer.get_config()
        )
        for key, value in more.items():
            assert getattr(copy, key) == value
        same = cls.from_config(layer.get_config())
        assert same.get_config() == layer.get_config()


@EACH_KERAS
def test_ev_option_makes_a_table_of_ordinary_arguments(keras):
    option = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(2))
    layer = fe.keras.fused_layers(keras).Embedding(3, DIM, ev_option=option)
    layer(tf.constant([1 << 60]), training=True)
    assert int(layer.table.total_count()) == 0
    layer(tf.constant([1 << 60]), training=True)
    assert int(layer.table.total_count()) == 1


@EACH_KERAS
@pytest.mark.parametrize(
    "initializer", ["ones", 2.5, np.arange(DIM, dtype=np.float32), fe.DebugInitializer()]
)
def test_initializers_of_tables(keras, initializer):
    layer = fe.keras.fused_layers(keras).Embedding(
        output_dim=DIM, embeddings_initializer=initializer
    )
    want = {str: 1.0, float: 2.5, np.ndarray: initializer}.get(type(initializer), 7.0)
    assert np.array_equal(layer(tf.constant([7])).numpy(), np.broadcast_to(want, (1, DIM)))


@EACH_KERAS
def test_regularizer_and_constraint_of_ordinary_weights(keras):
    layer = fe.keras.fused_layers(keras).EmbeddingBag(
        4,
        DIM,
        combiner="sum",
        embeddings_initializer="ones",
        embeddings_regularizer=keras.regularizers.L2(0.5),
        embeddings_constraint=keras.constraints.NonNeg(),
    )
    layer(tf.constant([[1]]))
    assert float(sum(layer.losses)) == 0.5 * 4 * DIM
    assert layer.embeddings.constraint is not None


# --- Errors ---


@EACH_KERAS
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"output_dim": None}, ValueError, r"output_dim must be .* got None; .*output_dim=16"),
        ({"output_dim": 0}, ValueError, "output_dim must be an integer > 0, got 0"),
        ({"input_dim": 0}, ValueError, "input_dim must be an integer > 0, got 0"),
        ({"input_dim": 2.5}, ValueError, "input_dim must be an integer > 0, got 2.5"),
        ({"combiner": "max"}, ValueError, "combiner must be one of 'mean', 'sqrtn' or 'sum'"),
        ({"max_norm": 0.0}, ValueError, "max_norm must be > 0"),
        ({"default_id": 1.5}, ValueError, "default_id must be an integer"),
        ({"ev_option": 3}, TypeError, "ev_option must be an fe.EmbeddingVariableOption, got 3"),
        ({"embeddings_regularizer": "l2"}, ValueError, "has no input_dim.*leave them out"),
        ({"embeddings_constraint": "non_neg"}, ValueError, "has no input_dim.*leave them out"),
    ],
)
def test_errors_of_arguments(keras, arguments, error, message):
    make = fe.keras.fused_layers(keras).EmbeddingBag
    with pytest.raises(error, match=message):
        make(**{"output_dim": DIM, **arguments})


@EACH_KERAS
@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
def test_errors_of_ids(keras, name):
    layer = make_layer(keras, name, "weights")
    message = (
        r"ids of dtype float32.*give an Input its dtype: keras.Input\(shape, dtype=\"int64\"\)"
    )
    with pytest.raises(TypeError, match=message):
        layer(tf.constant([[1.0]]))
    with pytest.raises(TypeError, match=message):
        layer(keras.Input((3,)))
    with pytest.raises(AttributeError, match=r"has input_dim = 12 and so no EmbeddingVariable"):
        _ = layer.table
    if name == "EmbeddingBag":
        with pytest.raises(ValueError, match=r"shape \(3,\), but \[batch, ids in a row\]"):
            layer(tf.constant([1, 2, 3]))


@EACH_KERAS
def test_errors_of_weights(keras):
    layer = make_layer(keras, "EmbeddingBag", "weights")
    for ids, weights in (
        (batch("dense"), weights_batch("sparse")),
        (batch("ragged"), weights_batch("dense")),
        (batch("sparse"), weights_batch("ragged")),
        (batch("dense"), tf.ones([2, WIDTH])),
    ):
        with pytest.raises(ValueError, match="pass a weight for each id, in the same way"):
            layer(ids, weights=weights)


@EACH_KERAS
def test_embedding_layer_makes_both(keras):
    layers, make = fe.keras.fused_layers(keras), fe.keras.embedding_layer(keras)
    each = make(DIM, initializer="ones", name="ids")
    bag = make(DIM, "sum", max_norm=2.0, default_id=3)
    assert (type(each), type(bag)) == (layers.Embedding, layers.EmbeddingBag)
    assert (bag.combiner, bag.max_norm, bag.default_id) == ("sum", 2.0, 3)
    assert np.array_equal(each(tf.constant([1 << 60])).numpy(), np.ones((1, DIM)))


def test_layers_of_tf_keras_are_found_by_name():
    for name in ("Embedding", "EmbeddingBag"):
        assert getattr(fe.keras.layers, name) is getattr(fe.keras.fused_layers(), name)
        assert issubclass(getattr(fe.keras.layers, name), tf.keras.layers.Layer)
    with pytest.raises(AttributeError, match="no attribute 'Bag'"):
        _ = fe.keras.layers.Bag


def test_docstring_example():
    module = importlib.import_module("fused_embedding.keras.layers")
    results = doctest.testmod(module, extraglobs={"fe": fe, "tf": tf})
    assert (results.attempted, results.failed) == (2, 0)
