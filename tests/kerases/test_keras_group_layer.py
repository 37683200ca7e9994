"""EmbeddingGroup against the layers called one by one: results, gradients, masks, files."""

import collections

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.kerases import KERASES, is_keras_3
from checking import assert_close, assert_same_bits, densify

EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
NUM_ROWS = 12
WORDS = tf.constant([["oak", ""], ["elm", "oak"], ["ash", "fir"]])
NUMBERS = tf.constant([[5, -1], [7, 5], [2**40, 0]], tf.int64)
IDS = tf.constant([[3, 1], [0, 3], [7, 11]], tf.int64)
PADDED = tf.constant([[3, 1], [0, -1], [-1, -1]], tf.int32)


def sparse(values):
    """All values but those of the last row."""
    places = [[0, 0], [0, 1], [1, 0], [1, 1]]
    return tf.SparseTensor(places, tf.gather_nd(values, places), [3, 2])


def ragged(values):
    return tf.RaggedTensor.from_row_lengths(tf.reshape(values, [-1]), [0, 4, 2])


def embedding(keras, **options):
    return fe.keras.fused_layers(keras).Embedding(NUM_ROWS, 4, **options)


def bag(keras, **options):
    return fe.keras.fused_layers(keras).EmbeddingBag(NUM_ROWS, 3, **options)


def stock(keras, **options):
    return keras.layers.Embedding(NUM_ROWS, 2, **options)


def hashing(keras, **options):
    return keras.layers.Hashing(NUM_ROWS, **options)


def words(keras, **options):
    return keras.layers.StringLookup(vocabulary=["oak", "elm"], **options)


def numbers(keras, **options):
    return keras.layers.IntegerLookup(vocabulary=[5, 0, 2**40], **options)


# Layers of a feature, and what they are called with.
FEATURES = {
    "matrix": ([embedding], IDS),
    "vector": ([embedding], IDS[:, 0]),
    "column": ([embedding], IDS[:, :1]),
    "cube": ([embedding], tf.reshape(IDS, [3, 1, 2])),
    "scalar": ([embedding], IDS[2, 1]),
    "empty": ([embedding], IDS[:0]),
    "no_width": ([embedding], IDS[:, :0]),
    "array": ([embedding], IDS.numpy()),
    "sparse": ([embedding], sparse(IDS)),
    "ragged": ([embedding], ragged(IDS)),
    "words_embedding": ([hashing, embedding], WORDS),
    "words_ragged": ([hashing, embedding], ragged(WORDS)),
    "words_sparse": ([hashing, embedding], sparse(WORDS)),
    "bag": ([bag], PADDED),
    "bag_cube": ([lambda keras: bag(keras, combiner="sum")], tf.reshape(IDS, [3, 1, 2])),
    "bag_no_width": ([bag], IDS[:, :0]),
    "bag_empty": ([bag], IDS[:0]),
    "bag_sparse": ([lambda keras: bag(keras, combiner="sqrtn", max_norm=0.05)], sparse(IDS)),
    "bag_sparse_cube": ([bag], tf.sparse.expand_dims(sparse(IDS), 1)),
    "bag_ragged": ([lambda keras: bag(keras, default_id=2)], ragged(IDS)),
    "bag_words": ([hashing, bag], WORDS),
    "bag_words_ragged": ([hashing, bag], ragged(WORDS)),
    "bag_words_sparse": ([words, bag], sparse(WORDS)),
    "hashed_numbers": ([hashing, bag], NUMBERS),
    "stock": ([stock], IDS),
    "stock_vector": ([stock], tf.cast(IDS[:, 0], tf.int32)),
    "stock_words": ([words, stock], WORDS),
    "stock_numbers": ([numbers, stock], NUMBERS),
    "stock_int32": ([numbers, stock], tf.cast(PADDED, tf.int32)),
    # What the layers do themselves.
    "stock_floats": ([stock], tf.cast(IDS, tf.float32)),
    "masked_hashing": ([lambda keras: hashing(keras, mask_value=""), bag], WORDS),
    "salted_hashing": ([lambda keras: hashing(keras, salt=3), bag], WORDS),
    "masked_words": ([lambda keras: words(keras, mask_token="ash"), stock], WORDS),
    "oov_words": ([lambda keras: words(keras, num_oov_indices=3), stock], WORDS),
    "int32_hashing": ([lambda keras: hashing(keras, dtype="int32"), embedding], WORDS),
    "another_front": ([lambda keras: keras.layers.Lambda(lambda ids: ids + 1), embedding], PADDED),
    "half": ([lambda keras: embedding(keras, dtype="mixed_float16")], IDS),
    "half_stock": ([lambda keras: stock(keras, dtype="mixed_float16")], IDS),
    "float64": ([lambda keras: bag(keras, dtype="float64")], IDS),
}
OF_KERAS_3 = {  # ids that count from the end
    "stock_negative": ([stock], tf.constant([[-1, 3], [-12, 0], [2, 11]])),
}


def layers_of(keras):
    """For each feature its layers."""
    makes = FEATURES | (OF_KERAS_3 if is_keras_3(keras) else {})
    return {name: [make(keras) for make in of] for name, (of, _) in makes.items()}


def inputs_of(features):
    return {name: (FEATURES | OF_KERAS_3)[name][1] for name in features}


def one_by_one(layers, values):
    for layer in layers:
        values = layer(values)
    return values


def loss_of(results):
    """A sum in which each value has another weight."""
    flat = [tf.cast(getattr(r, "flat_values", r), tf.float32) for r in results.values()]
    parts = (tf.reshape(of, [-1]) for of in flat)
    return tf.add_n(
        [tf.reduce_sum(p * tf.cast(tf.range(1, tf.size(p) + 1), p.dtype)) for p in parts]
    )


def variables_of(layer):
    return [getattr(v, "_value", v) for v in layer.trainable_variables]


@EACH_KERAS
@pytest.mark.parametrize("is_graph", [False, True])
def test_results_and_gradients_are_those_of_the_layers(keras, is_graph):
    features = layers_of(keras)
    inputs = inputs_of(features)
    group = fe.keras.fused_layers(keras).EmbeddingGroup(features)
    group.build()

    def each(inputs):
        return {name: one_by_one(layers, inputs[name]) for name, layers in features.items()}

    results = []
    for call in (group, each):
        call = tf.function(call) if is_graph else call
        with tf.GradientTape() as tape:
            rows = call(inputs)
            loss = loss_of(rows)
        results.append((rows, tape.gradient(loss, variables_of(group))))
    (got, got_grads), (want, want_grads) = results
    assert list(got) == list(features)
    for name in features:
        assert type(got[name]) is type(want[name]), name
        assert got[name].shape.as_list() == want[name].shape.as_list(), name
        if isinstance(got[name], tf.RaggedTensor):
            assert_same_bits(got[name].row_splits, want[name].row_splits, name)
        flat = [getattr(of[name], "flat_values", of[name]) for of in (got, want)]
        assert_same_bits(*flat, name)
    assert len(got_grads) == len(features)
    for got_grad, want_grad in zip(got_grads, want_grads, strict=True):
        assert isinstance(got_grad, tf.IndexedSlices)
        assert isinstance(want_grad, tf.IndexedSlices)
        want_rows = densify(want_grad, NUM_ROWS)
        np.testing.assert_allclose(densify(got_grad, NUM_ROWS), want_rows, rtol=1e-5, atol=1e-6)


@EACH_KERAS
def test_all_columns_are_three_ops(keras):
    """One for ids; one for Embeddings, one for bags; an op of gradients for each of these."""
    pure = ("matrix", "vector", "words_embedding", "bag", "bag_words_ragged", "stock_words")
    features = {name: layers for name, layers in layers_of(keras).items() if name in pure}
    group = fe.keras.fused_layers(keras).EmbeddingGroup(features)
    group.build()

    @tf.function
    def step(inputs):
        with tf.GradientTape() as tape:
            loss = loss_of(group(inputs))
        return tape.gradient(loss, variables_of(group))

    graph = step.get_concrete_function(inputs_of(features)).graph
    types = collections.Counter(op.type for op in graph.get_operations() if "Embedding" in op.type)
    assert types == {
        "FusedEmbeddingColumnKeys": 1,
        "FusedEmbeddingResourceGroupLookup": 2,
        "FusedEmbeddingResourceGroupLookupGrad": 2,
    }


@EACH_KERAS
@pytest.mark.parametrize("kind", ["dense", "sparse", "ragged"])
@pytest.mark.parametrize("has_front", [False, True])
def test_weights_are_those_of_the_ids(keras, kind, has_front):
    convert = {"dense": tf.identity, "sparse": sparse, "ragged": ragged}[kind]
    values = convert(WORDS if has_front else IDS)
    weights = convert(tf.constant([[0.5, 2.0], [1.0, 3.0], [0.25, 1.5]]))
    layers = [hashing(keras)] * has_front + [bag(keras)]
    other = bag(keras)
    group = fe.keras.fused_layers(keras).EmbeddingGroup({"a": layers, "b": other})
    rows = group({"a": values, "b": IDS}, weights={"a": weights, "b": None})
    ids = layers[0](values) if has_front else values
    assert_same_bits(rows["a"], layers[-1](ids, weights=weights))
    assert not np.array_equal(rows["a"], layers[-1](ids))
    assert_same_bits(rows["b"], other(IDS))


@EACH_KERAS
def test_a_shared_layer_is_one_table(keras):
    front, lookup = hashing(keras), bag(keras)
    group = fe.keras.fused_layers(keras).EmbeddingGroup(
        {"ad": [front, lookup], "seen": [front, lookup]}
    )
    group.build()
    assert len(group.weights) == 1
    assert group.sublayers == [front, lookup]
    with tf.GradientTape() as tape:
        rows = group({"ad": WORDS, "seen": ragged(WORDS)})
        loss = loss_of(rows)
    (grad,) = tape.gradient(loss, variables_of(group))
    ids = grad.indices.numpy()
    assert len(set(ids)) == len(ids)  # one sum for each id
    copy = type(group).from_config(group.get_config())
    assert len(copy.sublayers) == 2


@EACH_KERAS
@pytest.mark.parametrize(
    "case", ["vectors", "columns", "bags", "mixed", "called", "half", "halves"]
)
def test_concat_is_that_of_the_results(keras, case):
    options = {"dtype": "mixed_float16"} if case in ("half", "halves") else {}
    layers = {
        "vectors": {"b": ([embedding], IDS[:, 0]), "a": ([hashing, stock], WORDS[:, 0])},
        "columns": {"b": ([embedding], IDS[:, :1]), "a": ([stock], IDS[:, 1:])},
        "bags": {"b": ([bag], PADDED), "a": ([bag], ragged(IDS))},
        "mixed": {"b": ([bag], PADDED), "a": ([stock], IDS[:, 0])},
        "called": {"b": ([bag], PADDED), "a": ([stock], tf.cast(IDS[:, 0], tf.float32))},
        "half": {"b": ([embedding], IDS[:, 0]), "a": ([stock], IDS[:, 0])},
        "halves": {"b": ([embedding], IDS[:, 0]), "a": ([stock], IDS[:, 0])},
    }[case]
    made = {n: [make(keras, **options) for make in of] for n, (of, _) in layers.items()}
    inputs = {name: values for name, (_, values) in layers.items()}
    of_group = {} if case == "halves" else options  # else they become float32
    group = fe.keras.fused_layers(keras).EmbeddingGroup(made, concat=True, **of_group)
    got = group(inputs)
    want = tf.concat([one_by_one(of, inputs[name]) for name, of in made.items()], axis=-1)
    assert_same_bits(got, tf.cast(want, group.compute_dtype))


@EACH_KERAS
def test_tables_of_ids_grow_in_training_alone(keras):
    layers = fe.keras.fused_layers(keras)
    rows, bags = layers.Embedding(output_dim=4), layers.EmbeddingBag(output_dim=4)
    group = layers.EmbeddingGroup({"rows": rows, "bags": bags, "words": [hashing(keras), bags]})
    inputs = {"rows": IDS, "bags": IDS + 100, "words": WORDS}
    group(inputs, training=False)
    sizes = lambda: [int(layer.table.total_count()) for layer in (rows, bags)]  # noqa: E731
    assert sizes() == [0, 0]
    rows.trainable = False
    group(inputs, training=True)
    num_words = len(set(hashing(keras)(WORDS).numpy().ravel()))
    assert sizes() == [0, 5 + num_words]
    got = group(inputs, training=False)
    assert_same_bits(got["bags"], bags(IDS + 100, training=False))
    assert_same_bits(got["rows"], rows(IDS, training=False))
    group.trainable = False
    group(inputs | {"bags": IDS + 200}, training=True)
    assert sizes() == [0, 5 + num_words]
    bags.trainable = True
    layers.EmbeddingGroup({"bags": bags}, trainable=False)({"bags": IDS + 200}, training=True)
    assert sizes() == [0, 5 + num_words]
    layers.EmbeddingGroup({"bags": bags})({"bags": IDS + 200}, training=True)
    assert sizes() == [0, 10 + num_words]


@EACH_KERAS
def test_masks_are_those_of_the_layers(keras):
    features = {
        "a": embedding(keras, mask_zero=True),
        "b": [words(keras), stock(keras, mask_zero=True)],
        "c": stock(keras),
    }
    group = fe.keras.fused_layers(keras).EmbeddingGroup(features)
    rows = group({"a": IDS, "b": WORDS, "c": IDS})
    want = {"a": features["a"](IDS), "b": features["b"][1](features["b"][0](WORDS))}
    for name, of_layer in want.items():
        np.testing.assert_array_equal(rows[name]._keras_mask, of_layer._keras_mask)
    assert getattr(rows["c"], "_keras_mask", None) is None
    with pytest.raises(ValueError, match=r"cannot have the masks .*\['a', 'b'\] make"):
        fe.keras.fused_layers(keras).EmbeddingGroup(features, concat=True)


def model_of(keras, features, concat=True):
    inputs = {"ids": keras.Input((), dtype="int64", name="ids")}
    inputs["words"] = keras.Input((2,), dtype="string", name="words")
    group = fe.keras.fused_layers(keras).EmbeddingGroup(features, concat=concat, name="group")
    rows = group(inputs)
    rows = rows if concat else keras.layers.Concatenate()(list(rows.values()))
    return keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(rows))


BATCH = {"ids": IDS[:, 0], "words": WORDS}
LABELS = np.array([[1.0], [-1.0], [0.5]], np.float32)


@EACH_KERAS
@pytest.mark.parametrize("concat", [False, True])
def test_files_of_keras_hold_the_group(keras, tmp_path, concat):
    front, lookup = words(keras), bag(keras)
    table = fe.keras.fused_layers(keras).Embedding(output_dim=4)
    features = {"ids": table, "words": [front, lookup]}
    model = model_of(keras, features, concat)
    adagrad = fe.keras.fused_optimizers(keras).Adagrad
    model.compile(adagrad(0.5), "mse")
    model.fit(BATCH, LABELS, epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_same_bits(loaded(BATCH), model(BATCH))
    model.save_weights(tmp_path / "model.weights.h5")
    checkpoint = tf.train.Checkpoint(model=model)
    path = checkpoint.save(tmp_path / "checkpoint")
    want = model(BATCH).numpy()
    for restore in (
        lambda: model.load_weights(tmp_path / "model.weights.h5"),
        lambda: checkpoint.restore(path).assert_existing_objects_matched(),
    ):
        model.fit(BATCH, LABELS, verbose=0)
        assert not np.array_equal(model(BATCH), want)
        restore()
        assert_same_bits(model(BATCH), want)
    assert model.get_layer("group").count_params() == 3 * 4 + NUM_ROWS * 3


@EACH_KERAS
def test_three_steps_of_adagrad_are_those_of_the_layers(keras):
    """Ids repeat in a feature and between the features that share a table."""
    initializer = keras.initializers.RandomUniform(-1, 1, seed=5)
    results = []
    for grouped in (True, False):
        shared = embedding(keras, embeddings_initializer=initializer)
        inputs = [keras.Input((2,), dtype="int64", name=name) for name in "ab"]
        if grouped:
            layers = fe.keras.fused_layers(keras)
            group = layers.EmbeddingGroup({"a": shared, "b": shared})
            rows = list(group(dict(zip("ab", inputs, strict=True))).values())
        else:
            rows = [shared(ids) for ids in inputs]
        flat = keras.layers.Flatten()(keras.layers.Concatenate()(rows))
        dense = keras.layers.Dense(1, kernel_initializer="ones")
        model = keras.Model(inputs, dense(flat))
        model.compile(fe.keras.fused_optimizers(keras).Adagrad(0.5), "mse")
        model.fit([IDS, IDS[::-1]], LABELS, epochs=3, batch_size=3, shuffle=False, verbose=0)
        results.append(model.get_weights())
    for got, want in zip(*results, strict=True):
        assert_close(got, want, terms=64)


@EACH_KERAS
def test_a_layer_that_is_not_trained_rests(keras):
    frozen, trained = stock(keras), bag(keras)
    model = model_of(keras, {"ids": frozen, "words": [hashing(keras), trained]})
    frozen.trainable = False
    model.compile(fe.keras.fused_optimizers(keras).SGD(0.5), "mse")
    before = [frozen.get_weights()[0], trained.get_weights()[0]]
    model.fit(BATCH, LABELS, verbose=0)
    np.testing.assert_array_equal(frozen.get_weights()[0], before[0])
    assert not np.array_equal(trained.get_weights()[0], before[1])


@EACH_KERAS
def test_errors_name_layer_and_feature(keras):
    layers = fe.keras.fused_layers(keras)
    group = layers.EmbeddingGroup(
        {"user": embedding(keras), "ads": [hashing(keras), bag(keras)]}, name="group"
    )
    right = {"user": IDS, "ads": WORDS}
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"layer 'group': feature 'user'.*12"):
        group(right | {"user": IDS + 1})
    with pytest.raises(
        ValueError, match=r"'group' was called with \['user'\].*'ads'\] is required"
    ):
        group({"user": IDS})
    with pytest.raises(ValueError, match=r"weights of \['item'\], but its features are \['user'"):
        group(right, weights={"item": LABELS})
    with pytest.raises(TypeError, match="ids of dtype float32, but int32 or int64 is required"):
        group(right | {"user": LABELS})
    with pytest.raises(TypeError, match="weights"):
        group(right, weights={"user": tf.zeros([3, 2])})
    mixed = layers.EmbeddingGroup({"a": stock(keras), "b": bag(keras)}, concat=True)
    with pytest.raises(ValueError, match=r"different ranks, {'a': 3, 'b': 2}"):
        mixed({"a": IDS, "b": IDS})


@EACH_KERAS
@pytest.mark.parametrize("features", [{}, [1], {"a": 3}, {"a": []}, {1: None}, {"a": [None, None]}])
def test_features_must_be_layers(keras, features):
    with pytest.raises(ValueError, match="features"):
        fe.keras.fused_layers(keras).EmbeddingGroup(features)


@EACH_KERAS
def test_a_call_of_ones_own_is_called(keras):
    class Doubled(fe.keras.fused_layers(keras).Embedding):
        def call(self, inputs, training=None):
            return 2 * super().call(inputs, training=training)

    class Last(keras.layers.Hashing):
        def call(self, inputs):
            return 0 * super().call(inputs) + NUM_ROWS - 1

    doubled, plain = Doubled(NUM_ROWS, 4), bag(keras)
    group = fe.keras.fused_layers(keras).EmbeddingGroup({"a": doubled, "b": [Last(5), plain]})
    rows = group({"a": IDS, "b": WORDS})
    assert_same_bits(rows["a"], doubled(IDS))
    assert_same_bits(rows["b"], plain(tf.fill([3, 2], NUM_ROWS - 1)))


@EACH_KERAS
def test_accelerated_programs_run_as_before(keras):
    model = model_of(keras, {"ids": stock(keras), "words": [hashing(keras), bag(keras)]})
    want = model(BATCH).numpy()
    with fe.accelerate(optimizers="lazy"):
        model.compile(keras.optimizers.Adagrad(0.5), "mse")
        assert_same_bits(model(BATCH), want)
        model.fit(BATCH, LABELS, verbose=0)
    assert not np.array_equal(model(BATCH), want)
