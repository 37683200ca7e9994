"""fe.write_serving_delta and exports tell tables of one dim apart."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.kerases import KERASES
from serving.serving_cases import Deltas

v1 = tf.compat.v1
DIM = 2
KEYS = np.arange(6, dtype=np.int64)
SWAPPED = {"users": "model/items", "items": "model/users"}
# How first values are drawn, and so what seeds tables have: their own, or one for both.
INITIALIZERS = {
    "own_seeds": None,
    "one_seed": tf.keras.initializers.RandomUniform(-1.0, 1.0, seed=3),
    "constant": 0.5,
}


class Model(tf.Module):
    """Two tables and two matrices, each pair of one shape."""

    def __init__(self, initializer=None, names=("users", "items"), partitions=1):
        super().__init__()
        partitioner = v1.fixed_size_partitioner(partitions) if partitions > 1 else None
        self.users, self.items = (
            fe.get_embedding_variable(name, DIM, initializer=initializer, partitioner=partitioner)
            for name in names
        )
        self.wide, self.deep = (tf.Variable(tf.fill([DIM, 1], 1.0 + i)) for i in range(2))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def serve(self, keys):
        ids = tf.RaggedTensor.from_row_lengths(keys, tf.ones_like(keys)).to_sparse()
        tables = (self.users, self.items)
        users, items = (fe.nn.embedding_lookup_sparse(t, ids, None, combiner="sum") for t in tables)
        return {"users": users, "items": items, "sum": users @ self.wide + items @ self.deep}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def small(self, keys):
        return {"users": tf.nn.embedding_lookup(self.users, keys)}

    def step(self, number):
        for i, table in enumerate((self.users, self.items)):
            table.upsert(KEYS[:4], np.full([4, DIM], number + i / 2, np.float32))


class Trainer:
    """A model and its saves; with `export`, what a server loads."""

    def __init__(self, folder, model):
        self.model = model
        self.path = str(folder / "export")
        self.manager = fe.train.IncrementalCheckpointManager(
            tf.train.Checkpoint(model=model), str(folder / "saves"), max_to_keep=9
        )

    def export(self, ops="fused", signature="serve"):
        self.step(1)
        signature = getattr(self.model, signature)
        fe.export_for_serving(self.model, self.path, ops, signatures=signature)

    def step(self, number):
        self.model.step(number)
        self.manager.save()

    def write(self, path, **options):
        """Of the last save."""
        saved = self.manager.latest_checkpoint
        fe.write_serving_delta(path, self.path, saved, **options)
        return str(path)


def assert_serves(loaded, model):
    with fe.inference():
        want = model.serve.python_function(tf.constant(KEYS))
    got = loaded.signatures["serving_default"](keys=tf.constant(KEYS))
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-6, err_msg=name)


def apply(loaded, path):
    loaded.signatures["apply_delta"](path=tf.constant(str(path)))


@pytest.mark.parametrize(
    ("initializer", "partitions"), [*((name, 1) for name in INITIALIZERS), ("one_seed", 2)]
)
def test_swapped_names_are_refused(tmp_path, initializer, partitions):
    trainer = Trainer(tmp_path, Model(INITIALIZERS[initializer], partitions=partitions))
    trainer.export()
    trainer.step(2)
    with pytest.raises(ValueError, match=r"model/items.* 'users'|'users'.*'model/items'"):
        trainer.write(tmp_path / "swapped", names=SWAPPED)
    with pytest.raises(ValueError, match="'users'"):
        trainer.write(tmp_path / "one", names={"users": "model/items"})
    loaded = tf.saved_model.load(trainer.path)
    apply(loaded, trainer.write(tmp_path / "delta"))  # found without names
    assert_serves(loaded, trainer.model)


def test_swapped_names_of_dense_variables_are_refused(tmp_path):
    trainer = Trainer(tmp_path, Model())
    trainer.export()
    trainer.step(2)
    with pytest.raises(ValueError, match="names has 'model/deep' for the variable 'wide'"):
        trainer.write(tmp_path / "delta", names={"wide": "model/deep", "deep": "model/wide"})


@pytest.mark.parametrize("is_restored", [True, False])
def test_a_training_under_other_names_goes_on_from_a_checkpoint(tmp_path, is_restored):
    """What a name, an attribute and a seed say of a table that was restored."""
    Trainer(tmp_path, Model()).export()
    again = Trainer(tmp_path, Model(names=("items", "others")))
    if is_restored:
        again.manager.restore_or_initialize()
    again.step(2)
    if not is_restored:
        with pytest.raises(ValueError, match=r"If the training began anew.* export them again"):
            again.write(tmp_path / "delta")
        return
    loaded = tf.saved_model.load(again.path)
    apply(loaded, again.write(tmp_path / "delta"))
    assert_serves(loaded, again.model)


@pytest.mark.parametrize("ops", ["stock", "fused"])
def test_an_export_checks_a_delta(tmp_path, ops):
    trainer = Trainer(tmp_path, Model())
    trainer.export(ops, "small")
    loaded = tf.saved_model.load(trainer.path)
    trainer.step(2)
    path = trainer.write(tmp_path / "delta")
    own = tf.train.load_checkpoint(path).get_tensor("id").decode()
    bare = own[:32]  # as deltas had before they had identities
    keys, rows = KEYS[:4], np.full([4, DIM], 2.0, np.float32)
    for change, message in (
        ({"id": f"{bare}-{'0' * 16}"}, "of other tables than the export"),
        ({"0/keys": KEYS[[0, 1, 0, 2]]}, "has a key of the table users twice"),
        ({"0/removed_keys": KEYS[[4, 4]]}, "has a key of the table users twice"),
        ({"0/removed_keys": KEYS[:1]}, "has a key of the table users twice"),
        ({"0/values": rows[:3]}, "has rows of the table users of shape"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            apply(loaded, altered(path, tmp_path / "altered", change))
    apply(loaded, altered(path, tmp_path / "bare", {"id": bare}))
    served = loaded.signatures["serving_default"](keys=tf.constant(keys))["users"]
    np.testing.assert_array_equal(served, rows)


def altered(path, copy, change):
    """A copy of a delta with other tensors."""
    reader = tf.train.load_checkpoint(path)
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    assert change.keys() <= tensors.keys()
    tensors |= change
    tf.raw_ops.SaveV2(
        prefix=str(copy),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(map(tf.convert_to_tensor, tensors.values())),
    )
    return copy


@pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
def test_tables_of_keras_are_found_without_names(tmp_path, keras):
    ids = keras.Input((1,), dtype="int64", name="keys")
    layers = [fe.keras.embedding_layer(keras)(DIM, "sum", initializer=0.5) for _ in range(2)]
    model = keras.Model(ids, [layer(ids) for layer in layers])
    manager = fe.train.IncrementalCheckpointManager(
        tf.train.Checkpoint(trained=model), tmp_path / "saves", max_to_keep=9
    )
    manager.save()
    fe.export_for_serving(model, tmp_path / "export", "fused")
    loaded = tf.saved_model.load(tmp_path / "export")
    for i, layer in enumerate(layers):
        layer.table.upsert(KEYS, np.full([len(KEYS), DIM], i + 1, np.float32))
    apply(loaded, Deltas(tmp_path / "export", tmp_path / "delta").write(manager.save()))
    got = loaded.signatures["serving_default"](keys=tf.constant(KEYS[:, None]))
    for i in range(2):
        np.testing.assert_array_equal(got[f"output_{i}"], np.full([len(KEYS), DIM], i + 1))


@pytest.mark.parametrize("initializer", ["own_seeds", "constant"])
def test_swapped_names_of_a_saver_are_refused(tmp_path, initializer):
    with tf.Graph().as_default(), v1.Session() as session:
        keys = v1.placeholder(tf.int64, [None])
        model = Model(INITIALIZERS[initializer])
        outputs = model.serve.python_function(keys)
        saver = fe.train.Saver(incremental=True)
        session.run(v1.global_variables_initializer())
        saver.save(session, str(tmp_path / "save"), global_step=0)
        path = str(tmp_path / "export")
        fe.export_for_serving(session, path, "fused", inputs={"keys": keys}, outputs=outputs)
        saved = saver.save(session, str(tmp_path / "save"), global_step=1)
    names = {"users": "items", "items": "users"}
    with pytest.raises(ValueError, match="'items'"):
        fe.write_serving_delta(tmp_path / "swapped", path, saved, names=names)
    fe.write_serving_delta(tmp_path / "delta", path, saved)
