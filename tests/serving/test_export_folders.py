"""fe.export_for_serving to a path where there is something already."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe

v1 = tf.compat.v1
DIM = 4
KINDS = {"stock": {}, "fused": {"ops": "fused"}}


def look_up(table, ids):
    return fe.nn.fused_safe_embedding_lookup_sparse(table, tf.sparse.from_dense(ids[:, None]))


def export_session(path, value, **kind):
    with tf.Graph().as_default(), v1.Session() as session:
        ids = v1.placeholder(tf.int64, [None])
        table = fe.get_embedding_variable("users", DIM)
        rows = look_up(table, ids)
        session.run(table.upsert([7], [[value] * DIM]))
        fe.export_for_serving(session, path, inputs={"users": ids}, outputs={"rows": rows}, **kind)


def export_model(path, value, partitions=2, **kind):
    model = tf.Module()
    partitioner = v1.fixed_size_partitioner(partitions)
    model.table = fe.get_embedding_variable("users", DIM, partitioner=partitioner)
    model.table.upsert([7], [[value] * DIM])
    model.serve = tf.function(
        lambda users: {"rows": look_up(model.table, users)},
        input_signature=[tf.TensorSpec([None], tf.int64)],
    )
    fe.export_for_serving(model, path, signatures=model.serve, **kind)


def served(path):
    with tf.Graph().as_default(), v1.Session() as session:
        signature = v1.saved_model.load(session, ["serve"], str(path)).signature_def
        tensors = signature["serving_default"]
        feed = {tensors.inputs["users"].name: [7]}
        return session.run(tensors.outputs["rows"].name, feed)


def assert_serves(path, value):
    np.testing.assert_array_equal(served(path), [[value] * DIM])


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in pathlib.Path(folder).rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("before", KINDS)
@pytest.mark.parametrize("now", KINDS)
def test_a_model_is_written_over_what_is_there(tmp_path, before, now):
    (tmp_path / "note").write_text("mine")
    export_model(tmp_path, 1.0, partitions=3, **KINDS[before])
    with pytest.raises(ValueError, match=r"has a SavedModel.* or pass overwrite=True"):
        export_model(tmp_path, 2.0, **KINDS[now])
    assert_serves(tmp_path, 1.0)
    export_model(tmp_path, 2.0, **KINDS[now], overwrite=True)
    assert_serves(tmp_path, 2.0)
    assert (tmp_path / "note").read_text() == "mine"


@pytest.mark.parametrize("before", KINDS)
@pytest.mark.parametrize("now", KINDS)
def test_a_session_is_written_over_what_is_there(tmp_path, before, now):
    export_model(tmp_path, 1.0, **KINDS[before])
    with pytest.raises(ValueError, match="has a SavedModel"):
        export_session(tmp_path, 2.0, **KINDS[now])
    export_session(tmp_path, 2.0, **KINDS[now], overwrite=True)
    assert_serves(tmp_path, 2.0)


@pytest.mark.parametrize("export", [export_model, export_session])
def test_an_onnx_file_replaces_a_file_and_no_folder(tmp_path, export):
    onnx = pytest.importorskip("onnx", reason="pip install tf2onnx onnx")
    pytest.importorskip("tf2onnx", reason="pip install tf2onnx onnx")
    path = tmp_path / "model.onnx"
    path.write_text("old")
    export(path, 1.0, format="onnx")
    onnx.checker.check_model(onnx.load(path))
    (tmp_path / "folder").mkdir()
    written = files(tmp_path)
    with pytest.raises(ValueError, match=r"folder' is a folder, .*: add the name of a file"):
        export(tmp_path / "folder", 1.0, format="onnx")
    assert files(tmp_path) == written
