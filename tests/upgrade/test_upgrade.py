"""Files of earlier commits: loaded by this one they compute, and train, as they did there."""

import json
import pathlib
import tarfile
import zipfile

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.kerases import major_and_minor
from cases.tiers import needs_rocksdb
from upgrade.models import GRAPHS, LARGE_KEYS, NUM_STEPS, Training, follow, keras_follow

v1 = tf.compat.v1
FOLDER = pathlib.Path(__file__).parent
COMMITS = sorted({archive.parent.name for archive in FOLDER.glob("*/*.tar.xz")})
NAMES = {"users": "model/users", "items": "model/items"}


@pytest.fixture(params=COMMITS)
def unpack(request, tmp_path):
    """Puts the files of a case into `tmp_path`; returns what they must compute."""

    def unpacked(name):
        with tarfile.open(FOLDER / request.param / f"{name}.tar.xz") as tar:
            tar.extractall(tmp_path, filter="data")
        return dict(np.load(tmp_path / "expected.npz"))

    return unpacked


def assert_same(got, want):
    assert got.keys() == want.keys()
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("kind", GRAPHS)
def test_a_saved_graph_is_restored_and_trained(unpack, tmp_path, kind):
    want = unpack(f"graph_{kind}")
    path = str(tmp_path / f"model-{NUM_STEPS}")
    with tf.Graph().as_default(), v1.Session() as session:
        v1.train.import_meta_graph(f"{path}.meta").restore(session, path)
        assert_same(follow(session), want)


def test_a_checkpoint_is_restored_and_trained(unpack, tmp_path):
    want = unpack("checkpoint")
    training = Training()
    tf.train.Checkpoint(training=training).read(str(tmp_path / "model")).assert_consumed()
    assert_same(training.follow(), want)


@needs_rocksdb
def test_a_checkpoint_of_tables_on_an_ssd_is_restored_and_trained(unpack, tmp_path):
    want = unpack("tier")
    option = fe.StorageOption(
        fe.StorageType.DRAM_SSD, storage_path=tmp_path / "rows", storage_size=[16 << 20]
    )
    training = Training(storage_option=option)
    tf.train.Checkpoint(training=training).read(str(tmp_path / "model")).assert_consumed()
    assert_same(training.follow(), want)


def test_incremental_saves_are_restored_and_continued(unpack, tmp_path):
    want = unpack("increments")
    training = Training()
    checkpoint = tf.train.Checkpoint(training=training)
    manager = fe.train.IncrementalCheckpointManager(checkpoint, str(tmp_path), max_to_keep=1)
    manager.restore_or_initialize()
    assert_same(training.follow(), want)
    saved, want = manager.save(), training.scores()
    again = Training()
    tf.train.Checkpoint(training=again).restore(saved).assert_consumed()
    assert_same(again.scores(), want)


def test_a_saved_model_is_loaded(unpack, tmp_path):
    want = unpack("saved_model")
    loaded = tf.saved_model.load(tmp_path / "model")
    assert_same(loaded.signatures["serving_default"](ids=tf.constant(LARGE_KEYS)), want)


def version_of_file(path):
    """Of the Keras that wrote a file."""
    with zipfile.ZipFile(path) as file:
        return json.loads(file.read("metadata.json"))["keras_version"]


@pytest.mark.parametrize("name", ["keras", "tf_keras"])
def test_a_file_of_keras_is_loaded_and_trained(unpack, tmp_path, name):
    keras = pytest.importorskip(name)
    want = unpack(name)
    if not hasattr(keras, "Variable") and name == "keras":
        pytest.skip(f"Keras {keras.__version__} does not load files of Keras 3")
    written_by = version_of_file(tmp_path / "model.keras")
    if name == "keras" and major_and_minor(keras.__version__) < major_and_minor(written_by):
        pytest.skip(f"Keras {keras.__version__} does not load files of a newer Keras")
    fe.keras.fused_layers(keras)  # tells Keras of the layers
    model = keras.models.load_model(tmp_path / "model.keras")
    assert_same(keras_follow(model), want)


@pytest.mark.parametrize("ops", ["stock", "fused"])
def test_an_export_applies_its_deltas(unpack, tmp_path, ops):
    want = unpack(f"serving_{ops}")
    third = str(tmp_path / "delta-3")
    fe.write_serving_delta(
        third,
        tmp_path / "export",
        tf.train.latest_checkpoint(tmp_path / "saves"),
        continues=tmp_path / "delta-2",
        names=NAMES,
    )
    loaded = tf.saved_model.load(tmp_path / "export")
    for state in range(4):
        if state:
            loaded.signatures["apply_delta"](path=tf.constant(str(tmp_path / f"delta-{state}")))
        got = loaded.signatures["serving_default"](ids=tf.constant(LARGE_KEYS))
        assert_same(got, {name: values[state] for name, values in want.items()})
