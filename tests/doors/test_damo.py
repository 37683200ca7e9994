"""Damo-Embedding's API: its names, its optimizers beside PyTorch's formulas, files, its example."""

import doctest
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.kerases import KERASES
from cases.tiers import needs_rocksdb
from checking import assert_close
from fused_embedding.doors import damo

EACH_KERAS = pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/migration/damo.md"
DIM = 3
IDS = np.array([[1, 5], [5, -9], [2**60, 0], [1, 1], [0, 0], [5, 7]], np.int64)
LABELS = np.linspace(-2, 2, len(IDS))[:, None].astype(np.float32)
OPTIMIZERS = {
    "sgd": {"gamma": 0.125},
    "adagrad": {"gamma": 0.125, "eta": 0.25, "epsilon": 0.001},
    "adam": {"gamma": 0.125, "beta1": 0.75, "beta2": 0.875, "epsilon": 0.01},
    "adamw": {"gamma": 0.125, "beta1": 0.75, "beta2": 0.875, "epsilon": 0.01, "lambda": 0.25},
    "ftrl": {"gamma": 0.125, "beta": 0.5, "lambda1": 0.0625, "lambda2": 0.25},
}


def first(key):
    """First values of the tests: those of DebugInitializer would be too large."""
    return np.full(DIM, (key % 13) / 8.0)


def model_of(keras, optimizer, name="ids", group=-1, **others):
    """The sum of all that a row of ids reads."""
    layer = fe.damo.embedding_class(keras)(DIM, group, optimizer=optimizer, name=name, **others)
    inputs = keras.Input((2,), dtype="int64")
    flat = keras.layers.Flatten()(layer(inputs))
    output = keras.layers.Dense(1, kernel_initializer="ones", trainable=False)(flat)
    model = keras.Model(inputs, output)
    keys = np.unique(IDS[IDS != 0])
    layer.table.upsert(keys, np.stack([first(key) for key in keys]))
    return model, layer


def fit(keras, model, epochs=1):
    model.compile(fe.keras.fused_optimizers(keras).SGD(7.0), "mse")  # not that of the table
    model.fit(IDS, LABELS, batch_size=2, epochs=epochs, shuffle=False, verbose=0)


# --- The optimizers, of PyTorch's documentation and the paper of FTRL ---


def _sgd(n, step, grad, value, _):
    return value - n["gamma"] * grad


def _adagrad(n, step, grad, value, slots):
    slots["sum"] = slots.get("sum", 0) + grad**2
    rate = n["gamma"] / (1 + (step - 1) * n["eta"])
    return value - rate * grad / (np.sqrt(slots["sum"]) + n["epsilon"])


def _adam(n, step, grad, value, slots):
    slots["m"] = n["beta1"] * slots.get("m", 0) + (1 - n["beta1"]) * grad
    slots["v"] = n["beta2"] * slots.get("v", 0) + (1 - n["beta2"]) * grad**2
    m, v = slots["m"] / (1 - n["beta1"] ** step), slots["v"] / (1 - n["beta2"] ** step)
    return value - n["gamma"] * m / (np.sqrt(v) + n["epsilon"])


def _adamw(n, step, grad, value, slots):
    return _adam(n, step, grad, value * (1 - n["gamma"] * n["lambda"]), slots)


def _ftrl(n, step, grad, value, slots):
    before = slots.get("n", 0)
    slots["n"] = before + grad**2
    sigma = (np.sqrt(slots["n"]) - np.sqrt(before)) / n["gamma"]
    z = slots["z"] = slots.get("z", 0) + grad - sigma * value
    shrunk = z - np.sign(z) * n["lambda1"]
    rate = (n["beta"] + np.sqrt(slots["n"])) / n["gamma"] + n["lambda2"]
    return np.where(np.abs(z) <= n["lambda1"], 0, -shrunk / rate)


RULES = {"sgd": _sgd, "adagrad": _adagrad, "adam": _adam, "adamw": _adamw, "ftrl": _ftrl}


def trained_rows(name, epochs):
    """A dict, in float64."""
    rows, slots, step = {}, {}, 0
    for _ in range(epochs):
        for start in range(0, len(IDS), 2):
            step += 1
            grads = {}
            for ids, label in zip(
                IDS[start : start + 2], LABELS[start : start + 2, 0], strict=True
            ):
                keys = [int(key) for key in ids if key != 0]
                values = [rows.setdefault(key, first(key)) for key in keys]
                error = np.sum(values) - label
                for key in keys:
                    grads[key] = grads.get(key, 0) + 2 * error / 2 * np.ones(DIM)
            for key, grad in grads.items():
                rows[key] = RULES[name](
                    OPTIMIZERS[name], step, grad, rows[key], slots.setdefault(key, {})
                )
    return rows


@EACH_KERAS
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_tables_are_trained_by_their_own_optimizer(keras, name):
    model, layer = model_of(keras, {"name": name, **OPTIMIZERS[name]})
    fit(keras, model, epochs=3)
    want = trained_rows(name, epochs=3)
    rows = layer.table.export()
    assert rows.keys.numpy().tolist() == sorted(want)
    assert_close(rows.values.numpy(), np.stack([want[key] for key in sorted(want)]), terms=512)


@EACH_KERAS
def test_without_an_optimizer_the_models_trains(keras):
    model, layer = model_of(keras, None)
    model.compile(fe.keras.fused_optimizers(keras).SGD(0.125), "mse")
    model.fit(IDS, LABELS, batch_size=2, epochs=3, shuffle=False, verbose=0)
    want = trained_rows("sgd", epochs=3)
    assert_close(
        layer.table.export().values.numpy(), np.stack([want[k] for k in sorted(want)]), terms=512
    )


@EACH_KERAS
def test_a_stock_optimizer_is_refused_by_name(keras):
    model, _ = model_of(keras, {"name": "adamw"})
    model.compile(keras.optimizers.Adam(), "mse")
    with pytest.raises(NotImplementedError, match=r"cannot train the EmbeddingVariable.*wrap"):
        model.fit(IDS, LABELS, verbose=0)


@EACH_KERAS
def test_one_op_updates_all_tables_of_a_rule(keras):
    """Two of each, and two that the model's Adam trains."""
    inputs = keras.Input((2,), dtype="int64")
    make = fe.damo.embedding_class(keras)
    optimizers = [*({"name": name} for name in OPTIMIZERS), None]
    parts = [make(DIM, optimizer=optimizer)(inputs) for optimizer in 2 * optimizers]
    merged = keras.layers.Concatenate()(parts)
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(merged)))
    model.compile(fe.keras.fused_optimizers(keras).Adam(), "mse")
    batch = tf.constant(IDS), tf.constant(LABELS)
    graph = tf.function(lambda: model.train_step(batch)).get_concrete_function().graph
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    rules = [n.attr["rule"].s.decode() for n in nodes if n.op == "EmbeddingVariableApply"]
    assert sorted(rules) == sorted(OPTIMIZERS)


# --- The layer ---


@EACH_KERAS
@pytest.mark.parametrize(
    ("initializer", "check"),
    [
        ({"name": "zeros"}, lambda v: not v.any()),
        ({"name": "ones"}, lambda v: (v == 1).all()),
        ({"name": "uniform"}, lambda v: 0.49 < np.abs(v).max() <= 0.5 and abs(v.mean()) < 0.01),
        ({"name": "xavier"}, lambda v: 1.08 < np.abs(v).max() <= np.sqrt(1.2)),
        ({"name": "random_uniform"}, lambda v: 0.99 < np.abs(v).max() <= 1 and v.min() < -0.9),
        ({"name": "random_uniform", "min": 2, "max": 3}, lambda v: 2 <= v.min() < v.max() <= 3),
        ({"name": "random"}, lambda v: abs(v.std() - 1) < 0.02 and np.abs(v).max() > 3),
        ({"name": "random_normal", "mean": 5}, lambda v: abs(v.mean() - 5) < 0.05),
        ({"name": "truncate_normal", "stddev": 3}, lambda v: 5.9 < np.abs(v).max() <= 6),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_initializers(keras, initializer, check):
    layer = fe.damo.embedding_class(keras)(4, initializer=initializer, name="first")
    assert check(layer(tf.range(1, 5001)).numpy())


@EACH_KERAS
def test_zero_is_padding_and_any_other_number_an_id(keras):
    layer = fe.damo.embedding_class(keras)(DIM, initializer={"name": "ones"})
    ids = np.array([[0, 1, -1], [-(2**63), 2**63 - 1, 0]])
    out = layer(ids, training=True).numpy()
    assert np.array_equal(out, np.repeat((ids != 0)[..., None], DIM, axis=2).astype(np.float32))
    assert layer.table.export().keys.numpy().tolist() == sorted(set(ids.ravel()) - {0})
    assert layer(tf.zeros([2, 0], tf.int32)).shape == (2, 0, DIM)
    assert tuple(layer.compute_output_shape((None, 39))) == (None, 39, DIM)
    assert layer(keras.Input((39,), dtype="int64")).shape[1:] == (39, DIM)
    with pytest.raises(TypeError, match=r"dense ids are required, in which 0 is padding"):
        layer(tf.sparse.from_dense(ids))


@EACH_KERAS
def test_configurations(keras):
    cls = fe.damo.embedding_class(keras)
    assert cls is fe.damo.embedding_class(keras)
    option = fe.EmbeddingVariableOption(evict_option=fe.GlobalStepEvict(100))
    layer = cls(
        DIM,
        7,
        initializer={"name": "random", "stddev": 0.5},
        optimizer={"name": "adamw", "lambda": 0.5},
        ev_option=option,
        name="ids",
    )
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(copy) is cls
    assert copy.get_config() == layer.get_config()
    assert (copy.dim, copy.group, copy.ev_option) == (DIM, 7, option)
    assert dict(copy.optimizer) == {"name": "adamw", "lambda": 0.5}
    assert fe.damo.Embedding is fe.damo.embedding_class()
    with pytest.raises(AttributeError, match="no attribute 'Embeddings'"):
        _ = fe.damo.Embeddings


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"group": -2}, "group must be 0 to 65535, or -1 for a group of the layer's own, got -2"),
        ({"group": 65536}, "got 65536"),
        ({"group": "a"}, "got 'a'"),
        ({"dim": 0}, "output_dim must be an integer > 0, got 0"),
        ({"optimizer": {"name": "lion"}}, "use one of sgd, adagrad, adam, adamw, ftrl"),
        ({"optimizer": "adam"}, 'must be a dictionary with a "name", one of sgd, adagrad, adam'),
        ({"optimizer": {"gamma": 0.1}}, 'must be a dictionary with a "name"'),
        (
            {"optimizer": {"name": "adam", "lr": 1}},
            "was given lr, but its entries are: gamma, beta",
        ),
        (
            {"optimizer": {"name": "sgd", "lambda": 0.1}},
            "lambda = 0.1, but a table.*adamw.*lambda = 0",
        ),
        ({"optimizer": {"name": "adam", "lambda": 0.1}}, "use that, or lambda = 0"),
        ({"optimizer": {"name": "adagrad", "lambda": 0.1}}, "use that, or lambda = 0"),
        (
            {"initializer": {"name": "he"}},
            "initializer 'he' is not.*one of zeros, ones, uniform, x",
        ),
        ({"initializer": {"name": "ones", "a": 1}}, "its entries are: none beside its name"),
    ],
)
def test_errors_of_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        fe.damo.Embedding(**{"dim": DIM, **arguments})


# --- Files ---


@EACH_KERAS
@pytest.mark.parametrize("name", ["adamw", "ftrl"])
def test_training_goes_on_from_a_saved_model(keras, name, tmp_path):
    optimizer = {"name": name, **OPTIMIZERS[name]}
    model, layer = model_of(keras, optimizer)
    fit(keras, model)
    fe.damo.save_model(model, tmp_path / "new" / "folder", training=True)
    loaded = fe.damo.load_model(tmp_path / "new" / "folder", keras)
    assert [p.name for p in (tmp_path / "new" / "folder").iterdir()] == ["model.keras"]
    assert loaded.get_layer("ids").table is not layer.table
    for each in (model, loaded):
        each.fit(IDS, LABELS, batch_size=2, epochs=2, shuffle=False, verbose=0)
    got, want = (each.get_layer("ids").table.export() for each in (loaded, model))
    np.testing.assert_array_equal(got.keys, want.keys)
    np.testing.assert_array_equal(got.values, want.values)
    uninterrupted = trained_rows(name, epochs=3)
    assert_close(
        got.values.numpy(), np.stack([uninterrupted[k] for k in sorted(uninterrupted)]), terms=512
    )


def test_errors_of_files(tmp_path):
    keras = tf.keras
    model, _ = model_of(keras, None)
    with pytest.raises(ValueError, match="output_dir must be a folder, got ''"):
        fe.damo.save_model(model, "")
    with pytest.raises(FileNotFoundError, match=r"there is no .*model.keras; fe.damo.load_model"):
        fe.damo.load_model(tmp_path)
    inputs = keras.Input((2,), dtype="int64")
    two = [fe.damo.Embedding(DIM, group=3)(inputs) for _ in range(2)]
    model = keras.Model(inputs, keras.layers.Add()(two))
    with pytest.raises(ValueError, match="the group 3 is that of 2 layers of the model"):
        fe.damo.save_model(model, tmp_path)
    assert not list(tmp_path.iterdir())


def subclassed_model(keras, units=3):
    """A model without a get_config, with a table of its own optimizer and one of the model's."""
    embedding = fe.damo.embedding_class(keras)

    class Subclassed(keras.Model):
        def __init__(self, units):
            super().__init__()
            self.own = embedding(DIM, optimizer={"name": "adamw"})
            self.other = embedding(DIM)
            self.dense = [keras.layers.Dense(units), keras.layers.Dense(1)]

        def call(self, ids, training=None):
            rows = self.own(ids, training=training) + self.other(ids, training=training)
            for layer in self.dense:
                rows = layer(rows)
            return tf.reduce_sum(rows, axis=1)

    return Subclassed(units)


def compiled(keras):
    model = subclassed_model(keras)
    model(IDS[:1], training=False)
    model.compile(fe.keras.fused_optimizers(keras).Adam(0.125), "mse")
    return model


def fit_more(model):
    model.fit(IDS, LABELS, batch_size=2, epochs=2, shuffle=False, verbose=0)


@EACH_KERAS
def test_training_of_a_subclassed_model_goes_on(keras, tmp_path):
    model = compiled(keras)
    fit_more(model)
    fe.damo.save_model(model, tmp_path)
    way_out = r"compile it, and pass it: fe.damo.load_model\('.*', model=model\)"
    with pytest.raises((ValueError, TypeError), match=f"anew.*{way_out}"):
        fe.damo.load_model(tmp_path, keras)
    loaded = fe.damo.load_model(tmp_path, keras, model=compiled(keras))
    assert int(loaded.optimizer.iterations) == 6
    for each in (model, loaded):
        fit_more(each)
    for got, want in ((loaded.own, model.own), (loaded.other, model.other)):
        for got_column, want_column in zip(got.table.export(), want.table.export(), strict=True):
            np.testing.assert_array_equal(got_column, want_column)
    for got, want in zip(loaded.dense, model.dense, strict=True):
        np.testing.assert_array_equal(got.get_weights()[0], want.get_weights()[0])


@EACH_KERAS
def test_a_model_without_weights_is_not_loaded_into(keras, tmp_path):
    fe.damo.save_model(compiled(keras), tmp_path)
    with pytest.raises(ValueError, match="before it has weights; call it on a batch of ids first"):
        fe.damo.load_model(tmp_path, keras, model=subclassed_model(keras))
    other = subclassed_model(keras, units=4)
    other(IDS)
    with pytest.raises(ValueError):  # noqa: PT011 - Keras's
        fe.damo.load_model(tmp_path, keras, model=other)


@EACH_KERAS
def test_a_folder_has_one_file_for_training(keras, tmp_path):
    subclassed = compiled(keras)
    functional, _ = model_of(keras, None)
    for model in (subclassed, functional, subclassed):
        fe.damo.save_model(model, tmp_path)
        assert len(list(tmp_path.iterdir())) == 1
    fe.damo.load_model(tmp_path, keras, model=compiled(keras))


def test_what_a_subclassed_model_is_called_with_is_asked_for(tmp_path):
    model = compiled(tf.keras)
    if hasattr(model, "save_spec"):
        pytest.skip("Keras 2 knows it")
    message = r"'.*' with training=False, but .* give a dummy_input, .* signatures=\.\.\."
    with pytest.raises(ValueError, match=message):
        fe.damo.save_model(model, tmp_path / "served", training=False)
    assert not list(tmp_path.iterdir())


def test_serving_is_export_for_serving(tmp_path, monkeypatch):
    calls = []

    def export(*args, **kwargs):
        calls.append((args, kwargs))

    monkeypatch.setattr(damo, "export_for_serving", export)
    model, _ = model_of(tf.keras, None)
    fe.damo.save_model(model, tmp_path / "served", training=False)
    assert calls == [((model, tmp_path / "served"), {"ops": "stock", "overwrite": True})]


# --- The page ---


def test_example_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # That of ONNX files is run beside their tests.
    example = re.findall("```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    namespace = {"__name__": "example"}
    exec(compile(example, "<example>", "exec"), namespace)  # AutoGraph: no source
    layers = [layer for layer in namespace["model"].layers if hasattr(layer, "table")]
    assert [int(layer.table.total_count()) for layer in layers] == [512 * 39] * 2
    assert int(namespace["model"].optimizer.iterations) == 8
    deep_fm = namespace["DeepFM"]
    given = {"gamma": 0.5, "beta1": 0.6, "beta2": 0.7, "lambda": 0.8, "epsilon": 0.9}
    model = deep_fm(4, 2, [8], 3, [0.1], mean=2.0, stddev=0.0, **given)
    assert model(IDS).shape == (len(IDS), 3)
    for layer, dim in ((model.w, 1), (model.v, 4)):
        assert (layer.dim, layer.optimizer) == (dim, {"name": "adamw", **given})
        assert np.all(layer(IDS[:2]).numpy() == 2.0)
    message = "was given lr, but its entries are: gamma, beta1, beta2, lambda, epsilon"
    with pytest.raises(ValueError, match=message):
        deep_fm(8, 39, lr=0.1)


def test_page_and_docstring_have_all_names():
    page = PAGE.read_text()
    for name in (*OPTIMIZERS, "lion", "zeros", "ones", "uniform", "xavier", "random"):
        assert f"`{name}`" in page
    results = doctest.testmod(damo, extraglobs={"fe": fe, "tf": tf})
    assert (results.attempted, results.failed) == (2, 0)


@EACH_KERAS
def test_a_workdir_is_a_tier_on_an_ssd(keras, tmp_path):
    filtered = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(3))
    ssd = fe.StorageOption(fe.StorageType.DRAM_SSD, str(tmp_path))
    embedding = fe.damo.embedding_class(keras)
    layer = embedding(DIM, workdir=tmp_path, ev_option=filtered)
    assert layer.ev_option.storage_option == ssd
    assert layer.ev_option.filter_option == fe.CounterFilter(3)
    assert embedding(DIM, workdir=str(tmp_path)).ev_option.storage_option == ssd
    assert embedding(DIM).ev_option is None
    copy = embedding.from_config(layer.get_config())
    assert copy.ev_option == layer.ev_option
    with pytest.raises(ValueError, match=r"workdir = '/x' .* both say where rows live"):
        embedding(DIM, workdir="/x", ev_option=layer.ev_option)


@needs_rocksdb
@EACH_KERAS
def test_a_table_in_a_workdir_is_trained_and_saved(keras, tmp_path):
    in_dram, _ = model_of(keras, {"name": "adamw"})
    on_ssd, _ = model_of(keras, {"name": "adamw"}, workdir=tmp_path / "work")
    for model in (in_dram, on_ssd):
        fit(keras, model, epochs=2)
    np.testing.assert_array_equal(on_ssd(IDS), in_dram(IDS))
    fe.damo.save_model(on_ssd, tmp_path / "saved", training=True)
    again = fe.damo.load_model(tmp_path / "saved", keras)
    np.testing.assert_array_equal(again(IDS), on_ssd(IDS))
    names = sorted(path.name for path in (tmp_path / "work").iterdir())
    assert names == ["ids%2Fembeddings", "ids%2Fembeddings~2"]
