"""Deltas of exports that store rows in fewer bytes, against rows that an oracle rounds."""

import pathlib
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from oracle.small_rows import rounded_rows
from serving import serving_cases as cases

QUANTIZE = {"users": "int8", "words": "int4"}
GIVEN = {"ids": np.arange(12, dtype=np.int64)}


class Model(tf.Module):
    """A table and a variable that are stored in two formats, and two that are not."""

    def __init__(self):
        super().__init__()
        first = tf.compat.v1.constant_initializer(0.1)
        self.users = fe.get_embedding_variable(
            "users", 7, value_dtype=tf.float16, initializer=first
        )
        self.items = fe.get_embedding_variable("items", 3, initializer=first)
        self.words = tf.Variable(tf.zeros([4, 5]), name="words")
        self.scale = tf.Variable(1.0, name="scale")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="ids")])
    def serve(self, ids):
        return {
            "users": tf.nn.embedding_lookup(self.users, ids),
            "items": tf.nn.embedding_lookup(self.items, ids) * self.scale,
            "words": tf.nn.embedding_lookup(self.words, ids % 4),
        }


class Trainer:
    """A model that is saved incrementally, and what exports of its state read."""

    def __init__(self, folder):
        self.folder, self.model = folder, Model()
        self._rng = np.random.default_rng(0)
        self._keys = set()
        self._manager = fe.train.IncrementalCheckpointManager(
            tf.train.Checkpoint(model=self.model), str(folder / "saves"), max_to_keep=100
        )

    def step(self, keys, removed=(), words=1.0):
        """Sets and removes rows, and sets the variables; the checkpoint."""
        keys, removed = np.array(keys, np.int64), np.array(removed, np.int64)
        for table in (self.model.users, self.model.items):
            numbers = self._rng.normal(size=[len(keys), table.embedding_dim])
            table.upsert(keys, tf.cast(numbers, table.dtype))
            table.erase(removed)
        self._keys = (self._keys | set(keys.tolist())) - set(removed.tolist())
        self.model.words.assign(words * self._rng.normal(size=[4, 5]))
        self.model.scale.assign_add(1.0)
        return self._manager.save()

    def export(self, name, quantize):
        """Writes an export; its signatures, and deltas to be."""
        folder = self.folder / name
        signatures = self.model.serve
        fe.export_for_serving(self.model, folder, signatures=signatures, quantize=quantize)
        loaded = tf.saved_model.load(str(folder))
        return Export(folder, loaded, cases.Deltas(folder, f"{folder}-delta"))

    def want(self, quantize):
        """What a request reads: keys without a row their exact first values."""
        read = cases.inferred(self.model.serve, GIVEN)
        has_row = np.isin(GIVEN["ids"], list(self._keys))[:, None]
        for name, row_format in quantize.items():
            is_stored = has_row if name == "users" else True
            read[name] = np.where(is_stored, rounded_rows(read[name], row_format), read[name])
        return read


class Export(NamedTuple):
    """An export that is loaded."""

    folder: pathlib.Path
    loaded: Any
    deltas: cases.Deltas

    def apply(self, path):
        self.loaded.signatures["apply_delta"](path=tf.constant(str(path)))

    def assert_reads(self, want):
        got = self.loaded.signatures["serving_default"](**cases.tensors(GIVEN))
        for name, rows in want.items():
            assert got[name].numpy().tobytes() == rows.tobytes(), name


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    trainer = Trainer(tmp_path_factory.mktemp("quantized"))
    trainer.step(range(6))
    return trainer, trainer.export("stored", QUANTIZE)


def test_deltas_bring_a_quantized_export_up_to_date(trained):
    trainer, export = trained
    export.assert_reads(trainer.want(QUANTIZE))
    for keys, removed in ((range(4, 9), [1]), ([1, 2], [8]), ([], []), (range(12), [])):
        export.apply(export.deltas.write(trainer.step(keys, removed)))
        export.assert_reads(trainer.want(QUANTIZE))


def test_a_delta_has_rows_as_the_export_stores_them(trained):
    trainer, export = trained
    path = export.deltas.write(trainer.step(range(3)))
    export.apply(path)
    delta = tf.train.load_checkpoint(path)
    shapes, types = delta.get_variable_to_shape_map(), delta.get_variable_to_dtype_map()
    names = [name for name in shapes if types[name] == tf.uint8]
    assert sorted(shapes[name][1] for name in names) == [3 + 4, 7 + 8]
    export.assert_reads(trainer.want(QUANTIZE))


def test_deltas_of_other_formats_are_refused(trained, tmp_path):
    trainer, export = trained
    checkpoint = trainer.step([3])
    model, before = trainer.model, trainer.want(QUANTIZE)
    fe.export_for_serving(model, tmp_path / "plain", signatures=model.serve)
    last = export.deltas.write(checkpoint)
    with pytest.raises(ValueError, match=r"the delta .* has rows in other formats than the export"):
        fe.write_serving_delta(tmp_path / "new", tmp_path / "plain", checkpoint, continues=last)
    assert not list(tmp_path.glob("new*"))
    reader = tf.train.load_checkpoint(last)
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    own = tensors["id"].decode().split("-")
    assert len(own) == 3
    for i, other in enumerate((own[:2], own[:1], [*own[:2], own[1]])):
        path = str(tmp_path / f"other-{i}")
        write_bundle(path, tensors | {"id": "-".join(other)})
        with pytest.raises(tf.errors.InvalidArgumentError, match="has rows in other formats"):
            export.apply(path)
    write_bundle(str(tmp_path / "tables"), tensors | {"id": "-".join([own[0], own[2], own[2]])})
    with pytest.raises(tf.errors.InvalidArgumentError, match="is of other tables"):
        export.apply(tmp_path / "tables")
    export.apply(last)
    export.assert_reads(before)


def write_bundle(path, tensors):
    tf.raw_ops.SaveV2(
        prefix=path,
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(value) for value in tensors.values()],
    )


def test_a_changed_row_that_the_format_does_not_have_is_refused(trained, tmp_path):
    trainer, export = trained
    export.apply(export.deltas.write(trainer.step([])))
    trainer.model.users.upsert([5], [[np.nan] * 7])
    checkpoint = trainer.step([])
    with pytest.raises(ValueError, match="the row of key 5 of 'users' has the number nan"):
        fe.write_serving_delta(tmp_path / "new", export.folder, checkpoint)
    trainer.step([5])
    checkpoint = trainer.step([], words=1e6)
    with pytest.raises(ValueError, match=r"row 0 of 'words' has .* but the format int4"):
        fe.write_serving_delta(tmp_path / "new", export.folder, checkpoint)
    assert not list(tmp_path.iterdir())
    export.apply(export.deltas.write(trainer.step([5])))
    export.assert_reads(trainer.want(QUANTIZE))
