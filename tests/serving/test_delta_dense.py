"""Dense variables in deltas: tables and the layers above them change together."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.kerases import KERASES
from serving.serving_cases import Deltas

DIM = 4
KEYS = np.arange(12, dtype=np.int64)[:, None]
NAMES = {"users": "trained/table"}


class Module(tf.Module):
    """A table, a matrix that is read, one of whose rows are gathered, and one nobody names."""

    def __init__(self):
        super().__init__()
        self.table = fe.get_embedding_variable("users", DIM)
        self.layers = [tf.Variable(tf.ones([DIM, 2])), tf.Variable(tf.ones([2, 2]))]
        self.gathered = tf.Variable(tf.zeros([20, 2]), name="layers")

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.int64)])
    def serve(self, keys):
        rows = fe.nn.safe_embedding_lookup_sparse(self.table, tf.sparse.from_dense(keys))
        scores = tf.matmul(tf.matmul(rows, self.layers[0]), self.layers[1])
        return {"scores": scores + tf.gather(self.gathered, keys[:, 0])}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def scale(self, x):
        """Has no table."""
        return {"scaled": x * self.layers[0][0, 0]}

    def step(self, number):
        self.table.upsert(KEYS[: 4 + number, 0], np.full([4 + number, DIM], number, np.float32))
        for i, variable in enumerate([*self.layers, self.gathered]):
            variable.assign(tf.fill(variable.shape, float(10 * number + i)))


def name_of_table(manager):
    """As the last checkpoint has it: Keras chooses the attributes on the way."""
    suffix = "/.ATTRIBUTES/fused_embedding_files"
    names = [name for name, _ in tf.train.list_variables(manager.latest_checkpoint)]
    (name,) = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return name


class Trainer:
    """A model, its saves and its deltas."""

    def __init__(self, folder, model, ops, table="users", **signatures):
        self.model = model
        checkpoint = tf.train.Checkpoint(trained=model)
        self.manager = fe.train.IncrementalCheckpointManager(
            checkpoint, str(folder / "saves"), max_to_keep=100
        )
        self.manager.save()
        self.export = str(folder / "export")
        fe.export_for_serving(model, self.export, ops, **signatures)
        self.loaded = tf.saved_model.load(self.export)
        names = {table: name_of_table(self.manager)}
        self.deltas = Deltas(self.export, folder / "delta", names)

    def follow(self, **options):
        path = self.deltas.write(self.manager.save(), **options)
        self.loaded.signatures["apply_delta"](path=tf.constant(path))

    def answer(self, name="serving_default", **given):
        given = given or {"keys": KEYS}
        function = self.loaded.signatures[name]
        (result,) = function(**{name: tf.constant(x) for name, x in given.items()}).values()
        return result.numpy()


def inferred(model):
    with fe.inference():
        return model.serve.python_function(tf.constant(KEYS))["scores"].numpy()


@pytest.fixture(params=["stock", "fused"])
def trainer(request, tmp_path):
    model = Module()
    signatures = {"serving_default": model.serve, "scale": model.scale}
    return Trainer(tmp_path, model, request.param, signatures=signatures)


def test_dense_variables_change_with_the_tables(trainer):
    for number in range(1, 5):
        trainer.model.step(number)
        trainer.follow()
        np.testing.assert_allclose(trainer.answer(), inferred(trainer.model), rtol=1e-6)
        scaled = trainer.answer("scale", x=np.ones(2, np.float32))
        np.testing.assert_array_equal(scaled, np.full(2, 10 * number, np.float32))


def test_dense_variables_stay_where_a_delta_has_none(trainer):
    trainer.model.step(1)
    trainer.follow()
    dense = [variable.numpy() for variable in [*trainer.model.layers, trainer.model.gathered]]
    for number in (2, 3):
        trainer.model.step(number)
        trainer.follow(dense=False)
        with fe.inference():
            ids = tf.sparse.from_dense(tf.constant(KEYS))
            table = fe.nn.safe_embedding_lookup_sparse(trainer.model.table, ids).numpy()
        want = table @ dense[0] @ dense[1] + dense[2][KEYS[:, 0]]
        np.testing.assert_allclose(trainer.answer(), want, rtol=1e-6)
    trainer.model.step(4)
    trainer.follow()
    np.testing.assert_allclose(trainer.answer(), inferred(trainer.model), rtol=1e-6)


@pytest.mark.parametrize("ops", ["stock", "fused"])
@pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
def test_layers_of_keras(tmp_path, keras, ops):
    ids = keras.Input((1,), dtype="int64", name="keys")
    layer = fe.keras.embedding_layer(keras)(output_dim=DIM, combiner="sum", name="users")
    hidden = keras.layers.BatchNormalization()(keras.layers.Dense(3)(layer(ids)))
    model = keras.Model(ids, keras.layers.Dense(1)(hidden))
    model.compile(fe.keras.wrap(keras.optimizers.Adagrad(0.3)), "mse")
    labels = np.arange(12, dtype=np.float32)[:, None]
    model.fit(KEYS, labels, verbose=0)
    table = model.get_layer("users").table.name.removesuffix(":0")
    trainer = Trainer(tmp_path, model, ops, table)
    before = np.asarray(model(KEYS, training=False))
    for _ in range(3):
        model.fit(KEYS, labels, verbose=0)
        trainer.follow()
        want = np.asarray(model(KEYS, training=False))
        np.testing.assert_allclose(trainer.answer(), want, rtol=1e-5, atol=1e-6)
    assert not np.allclose(want, before)


def test_what_the_checkpoint_does_not_have_is_an_error(trainer, tmp_path):
    other = tf.Module()
    other.table = trainer.model.table
    saves = fe.train.IncrementalCheckpointManager(
        tf.train.Checkpoint(trained=other), str(tmp_path / "others"), max_to_keep=2
    )
    with pytest.raises(ValueError, match=r"has 0 variables 'layers/0'.*dense=False"):
        fe.write_serving_delta(tmp_path / "new", trainer.export, saves.save(), names=NAMES)
    other.gathered = tf.Variable(tf.zeros([3]))
    other.layers = trainer.model.layers
    with pytest.raises(ValueError, match=r"shape \[3\] .* shape \[20, 2\] in the export"):
        fe.write_serving_delta(tmp_path / "new", trainer.export, saves.save(), names=NAMES)
    other.rows = trainer.model.gathered
    names = NAMES | {"gathered": "trained/rows"}
    fe.write_serving_delta(tmp_path / "new", trainer.export, saves.save(), names=names)
    with pytest.raises(ValueError, match=r"names has \['kernel'\], but the export has \['gathered"):
        fe.write_serving_delta(
            tmp_path / "another", trainer.export, saves.save(), names={"kernel": "kernel"}
        )
