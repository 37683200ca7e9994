"""A click model of Criteo on EmbeddingVariables: trained, exported in each way, served the same."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from fused_embedding.demo import criteo, table_model
from serving.serving_cases import LIBRARY, OURS, Server, assert_same, assert_served

v1 = tf.compat.v1
DATA = pathlib.Path(__file__).parents[3] / "shared/data/criteo_kaggle"
STEPS, BATCH, NUM_HELD_OUT, EMBEDDING_DIM, COLUMNS = 60, 256, 512, 8, 5


def rows_of(file, max_rows):
    path = DATA / file
    if not path.exists():
        pytest.skip(f"{path} is not there: the data lies outside the repository")
    return criteo.read_rows(str(path), max_rows, max_bad_lines=0)


@pytest.fixture(scope="module")
def trained():
    """A session of the trained model, the model and held out rows."""
    rows = rows_of("train.tsv.gz", max_rows=10_000).first_columns(COLUMNS)
    training, held_out = rows.take(slice(NUM_HELD_OUT, None)), rows.take(slice(NUM_HELD_OUT))
    model = table_model.build(fe.CounterFilter(2), EMBEDDING_DIM, 1, COLUMNS).model
    with v1.Session(graph=model.graph) as session:
        session.run(model.init_op)
        for step in range(STEPS):
            batch = training.take(
                np.arange(step * BATCH, (step + 1) * BATCH) % len(training.labels)
            )
            session.run(model.train_op, feed(model, batch) | {model.labels: batch.labels})
        yield session, model, held_out


def export(session, model, path, **how):
    fe.export_for_serving(
        session,
        path,
        inputs={"integers": model.integers, "categoricals": model.categoricals},
        outputs={"probability": model.probability},
        **how,
    )


def scores(session, model, rows):
    """What is given to a server, and what it has to answer."""
    given = {"integers": rows.integers, "categoricals": rows.categoricals}
    want = {"probability": session.run(model.probability, feed(model, rows))}
    assert np.std(want["probability"]) > 0.01  # it has learned to tell rows apart
    return given, want


@pytest.mark.slow
def test_scores_of_both_exports_are_those_of_the_session(tmp_path, trained):
    session, model, held_out = trained
    # Most of the rarest ids of these rows are unknown.
    given, want = scores(session, model, held_out)
    for ops in ("stock", "fused"):
        export(session, model, tmp_path / ops, ops=ops)
    stock, fused = Server(), Server(LIBRARY)
    assert_served(stock, tmp_path / "stock", given, want)
    got, ops_of_graph = fused.serve(tmp_path / "fused", given, loader="v1")
    assert ops_of_graph & OURS
    assert_same(got, want)
    stock.stop()
    fused.stop()


@pytest.mark.slow
def test_scores_of_an_onnx_file_are_those_of_the_session(tmp_path, trained):
    session, model, held_out = trained
    onnxruntime = pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
    pytest.importorskip("tf2onnx", reason="pip install tf2onnx")
    given, want = scores(session, model, held_out)
    export(session, model, tmp_path / "model.onnx", format="onnx")
    run = onnxruntime.InferenceSession(str(tmp_path / "model.onnx")).run
    assert_same({"probability": run(["probability"], given)[0]}, want)


def feed(model, rows):
    return {model.integers: rows.integers, model.categoricals: rows.categoricals}
