"""Deltas of tables of all kinds, by both forms of exports, against inference of the trainer."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from fused_embedding.checkpoint import series
from serving.serving_cases import Deltas

v1 = tf.compat.v1
DIM = 3
KEYS = np.r_[np.arange(60), 10**12, -7, -(2**63), 2**63 - 1].astype(np.int64)
OPTIONS = {
    "plain": {},
    "counter": {"filter_option": fe.CounterFilter(3)},
    "bloom": {"filter_option": fe.CBFFilter(3, 10_000, 0.01)},
    "lru": {"max_capacity": 20, "eviction": "lru", "check_mode": "ignore"},
    "lfu": {"max_capacity": 20, "eviction": "lfu", "check_mode": "ignore"},
    "full": {"max_capacity": 20, "check_mode": "ignore"},
    "expiring": {"evict_option": fe.GlobalStepEvict(2)},
}


class Model(tf.Module):
    """A table."""

    def __init__(self, option, dtype, num_partitions):
        super().__init__()
        self.table = fe.get_embedding_variable(
            "users",
            DIM,
            value_dtype=dtype,
            partitioner=v1.fixed_size_partitioner(num_partitions) if num_partitions > 1 else None,
            ev_option=fe.EmbeddingVariableOption(**option),
        )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def serve(self, keys):
        ids = tf.RaggedTensor.from_row_lengths(keys, tf.ones_like(keys)).to_sparse()
        return {"rows": fe.nn.embedding_lookup_sparse(self.table, ids, None, combiner="sum")}


def train(model, rng, step):
    """Counts, admits, evicts; sets values, expires and erases."""
    is_whole = isinstance(model.table, fe.EmbeddingVariable)
    parts = [model.table] if is_whole else list(model.table)
    model.serve(tf.constant(rng.choice(KEYS, 25)))
    for part in parts:
        rows = part.export()
        part.upsert(rows.keys[::2], tf.cast(rows.values[::2] * 0.5 + step, part.dtype))
        part.expire(step=step)
        part.erase(rng.choice(KEYS, 2))


@pytest.mark.parametrize("ops", ["stock", "fused"])
@pytest.mark.parametrize(
    ("option", "dtype", "num_partitions"),
    [
        *((name, tf.float32, 1) for name in OPTIONS),
        ("plain", tf.float64, 2),
        ("plain", tf.float16, 1),
        ("counter", tf.bfloat16, 3),
        ("lru", tf.float32, 2),
    ],
)
def test_a_server_reads_what_the_trainer_infers(
    tmp_path, monkeypatch, option, dtype, num_partitions, ops
):
    monkeypatch.setattr(series, "MAX_LINKS", 4)  # saves, of which the first is full
    rng = np.random.default_rng(5)
    model = Model(OPTIONS[option], dtype, num_partitions)
    checkpoint = tf.train.Checkpoint(model=model)
    manager = fe.train.IncrementalCheckpointManager(checkpoint, tmp_path / "saves", max_to_keep=9)
    for step in range(3):
        train(model, rng, step)
    manager.save()
    fe.export_for_serving(model, tmp_path / "export", ops, signatures=model.serve)
    loaded = tf.saved_model.load(tmp_path / "export")
    serve, apply = (loaded.signatures[name] for name in ("serving_default", "apply_delta"))
    deltas = Deltas(tmp_path / "export", tmp_path / "delta", {"users": "model/table"})
    for step in range(3, 10):
        train(model, rng, step)
        apply(path=tf.constant(deltas.write(manager.save())))
        with fe.inference():
            want = model.serve.python_function(tf.constant(KEYS))["rows"]
        got = serve(keys=tf.constant(KEYS))["rows"]
        np.testing.assert_allclose(
            tf.cast(got, tf.float64), tf.cast(want, tf.float64), rtol=1e-6, err_msg=str(step)
        )


@pytest.mark.parametrize("ops", ["stock", "fused"])
@pytest.mark.parametrize("use_resource", [False, True])
def test_a_session_and_its_saver(tmp_path, ops, use_resource):
    with tf.Graph().as_default(), v1.Session() as session:
        keys = v1.placeholder(tf.int64, [None])
        table = fe.get_embedding_variable(
            "users",
            DIM,
            partitioner=v1.fixed_size_partitioner(2),
            ev_option=fe.EmbeddingVariableOption(filter_option=fe.CBFFilter(2, 1000, 0.01)),
        )
        kernel = v1.get_variable("kernel", [DIM, 2], use_resource=use_resource)
        ids = tf.RaggedTensor.from_row_lengths(keys, tf.ones_like(keys)).to_sparse()
        scores = tf.matmul(fe.nn.safe_embedding_lookup_sparse(table, ids), kernel)
        step = v1.train.AdagradOptimizer(0.3).minimize(tf.reduce_sum(scores**2))
        with fe.inference():
            rows = fe.nn.safe_embedding_lookup_sparse(table, ids)
            inferred = tf.matmul(rows, kernel)
        outputs = {"rows": rows, "scores": inferred}
        saver = fe.train.Saver(incremental=True)
        session.run(v1.global_variables_initializer())
        for first in range(3):
            session.run(step, {keys: KEYS[first : first + 30]})
        saver.save(session, str(tmp_path / "save"), global_step=0)
        fe.export_for_serving(
            session, tmp_path / "export", ops, inputs={"keys": keys}, outputs=outputs
        )
        deltas, wanted = Deltas(tmp_path / "export", tmp_path / "delta"), []
        for number in range(1, 4):
            for first in range(3):
                session.run(step, {keys: KEYS[10 * number + first : 10 * number + 30]})
            saved = saver.save(session, str(tmp_path / "save"), global_step=number)
            deltas.write(saved)
            wanted.append(session.run(outputs, {keys: KEYS}))
    loaded = tf.saved_model.load(tmp_path / "export")
    for delta, want in zip(deltas.paths, wanted, strict=True):
        loaded.signatures["apply_delta"](path=tf.constant(delta))
        got = loaded.signatures["serving_default"](keys=tf.constant(KEYS))
        np.testing.assert_allclose(got["rows"], want["rows"], rtol=1e-6)
        np.testing.assert_allclose(got["scores"], want["scores"], rtol=1e-5, atol=1e-6)
