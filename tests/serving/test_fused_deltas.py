"""Deltas of exports of fused ops: what requests and deltas have to do with their lock."""

import gc
import threading

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from serving.serving_cases import Deltas
from serving.test_serving_deltas import KEYS, Trainer

v1 = tf.compat.v1
_HANDLE = "EmbeddingVariableHandle"
SECONDS = 60  # until a test says that something hangs


@pytest.fixture
def trainer(tmp_path):
    made = Trainer(tmp_path, "fused")
    made.step(1, KEYS[:300])
    made.export()
    return made


def answer(loaded, keys=KEYS):
    keys = tf.constant(keys, tf.int64)
    return loaded.signatures["serving_default"](keys=keys)["rows"].numpy()


def apply_in_thread(loaded, path):
    """Fails where it takes long."""
    done = []

    def work():
        done.append(int(loaded.signatures["apply_delta"](path=tf.constant(path))["generation"]))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, done


def lock_of(loaded):
    table = loaded.embedding_tables[0]
    return fe.raw_ops.EmbeddingVariableServingLock(resource=table.handle)


def test_copies_of_an_export_do_not_wait_for_each_other(trainer):
    first, second = (tf.saved_model.load(trainer.path) for _ in range(2))
    before = answer(first)
    trainer.step(2, KEYS[:50])
    path = trainer.delta()
    held = lock_of(first)
    thread, done = apply_in_thread(second, path)
    thread.join(SECONDS)
    assert done == [1]
    np.testing.assert_array_equal(answer(second), trainer.want())
    waiting, done = apply_in_thread(first, path)
    waiting.join(0.1)
    assert not done
    np.testing.assert_array_equal(answer(second), trainer.want())
    del held
    waiting.join(SECONDS)
    assert done == [1]
    assert not np.array_equal(before, trainer.want())
    np.testing.assert_array_equal(answer(first), trainer.want())


class Fragile(tf.Module):
    """Fails in its graph for keys that are negative, after or beside its lookup."""

    def __init__(self):
        super().__init__()
        self.table = fe.get_embedding_variable("users", 4)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def serve(self, keys):
        rows = tf.nn.embedding_lookup(self.table, keys)
        with tf.control_dependencies([tf.debugging.assert_non_negative(keys, "bad key")]):
            return {"rows": tf.identity(rows)}


def test_a_request_that_fails_releases_the_tables(tmp_path):
    model = Fragile()
    checkpoint = tf.train.Checkpoint(model=model)
    manager = fe.train.IncrementalCheckpointManager(checkpoint, tmp_path / "saves", max_to_keep=9)
    manager.save()
    fe.export_for_serving(model, tmp_path / "export", "fused", signatures=model.serve)
    loaded = tf.saved_model.load(tmp_path / "export")
    deltas = Deltas(tmp_path / "export", tmp_path / "delta", {"users": "model/table"})
    for number in range(1, 4):
        for _ in range(5):
            with pytest.raises(tf.errors.InvalidArgumentError, match="bad key"):
                answer(loaded, [1, -1])
        model.table.upsert([1], np.full([1, 4], number, np.float32))
        thread, done = apply_in_thread(loaded, deltas.write(manager.save()))
        thread.join(SECONDS)
        assert done == [number]
        assert answer(loaded, [1])[0].tolist() == [number] * 4


def test_a_request_waits_for_no_other(trainer):
    loaded = tf.saved_model.load(trainer.path)
    held = [lock_of(loaded) for _ in range(3)]
    np.testing.assert_array_equal(answer(loaded), trainer.want())
    del held


def test_signatures_outlive_what_was_loaded(trainer):
    signatures = tf.saved_model.load(trainer.path).signatures
    serve, apply = (signatures[name] for name in ("serving_default", "apply_delta"))
    trainer.step(2, KEYS[:50], KEYS[200:220])
    path = tf.constant(trainer.delta())
    del signatures
    gc.collect()
    apply(path=path)
    np.testing.assert_array_equal(serve(keys=tf.constant(KEYS))["rows"], trainer.want())


def test_a_table_goes_with_the_last_signature_that_reads_it(trainer):
    loaded = tf.saved_model.load(trainer.path)
    serve = loaded.signatures["serving_default"]
    copy = tf.identity(loaded.embedding_tables[0].handle)
    fe.raw_ops.EmbeddingVariableStatistics(resource=copy)
    del loaded, serve
    gc.collect()
    with pytest.raises(tf.errors.NotFoundError):
        fe.raw_ops.EmbeddingVariableStatistics(resource=copy)


@pytest.mark.parametrize("ops", ["stock", "fused"])
def test_an_export_that_was_loaded_is_exported_again_without_its_lock(trainer, tmp_path, ops):
    loaded = tf.saved_model.load(trainer.path)
    assert set(loaded.signatures) == {"serving_default", "apply_delta"}
    fe.export_for_serving(loaded, tmp_path / "again", ops)
    again = tf.saved_model.load(tmp_path / "again")
    np.testing.assert_array_equal(answer(again), trainer.want())
    if ops == "fused":
        assert set(again.signatures) == {"serving_default"}
        with pytest.raises(ValueError, match="no tables that deltas change"):
            fe.write_serving_delta(tmp_path / "new", tmp_path / "again", trainer.manager.save())


def test_the_loader_of_tf1_has_both_signatures(trainer):
    trainer.step(2, KEYS[:50], KEYS[200:220])
    path, want = trainer.delta(), trainer.want()
    for _ in range(2):  # a session has tables of its own
        with tf.Graph().as_default(), v1.Session() as session:
            loaded = v1.saved_model.load(session, [tf.saved_model.SERVING], trainer.path)
            serve, apply = (
                loaded.signature_def[name] for name in ("serving_default", "apply_delta")
            )
            request = {serve.inputs["keys"].name: KEYS}
            assert not np.array_equal(session.run(serve.outputs["rows"].name, request), want)
            delta = {apply.inputs["path"].name: path}
            assert session.run(apply.outputs["generation"].name, delta) == 1
            np.testing.assert_array_equal(session.run(serve.outputs["rows"].name, request), want)


def test_a_client_that_gives_up_waiting_leaves_nothing_of_its_delta(trainer):
    trainer.step(2, KEYS[:50], KEYS[200:220])
    path = trainer.delta()
    with tf.Graph().as_default() as graph, v1.Session() as session:
        loaded = v1.saved_model.load(session, [tf.saved_model.SERVING], trainer.path)
        serve, apply = (loaded.signature_def[name] for name in ("serving_default", "apply_delta"))
        request = {serve.inputs["keys"].name: KEYS}
        before = session.run(serve.outputs["rows"].name, request)
        apply_path = {apply.inputs["path"].name: path}
        generation = apply.outputs["generation"].name
        handles = [op.outputs[0] for op in graph.get_operations() if op.type == _HANDLE]
        locks = [fe.raw_ops.EmbeddingVariableServingLock(resource=handle) for handle in handles]
        held = [session.run(v1.get_session_handle(lock)) for lock in locks]
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(generation, apply_path, options=v1.RunOptions(timeout_in_ms=300))
        np.testing.assert_array_equal(session.run(serve.outputs["rows"].name, request), before)
        for handle in held:
            handle.delete()
        assert session.run(generation, apply_path) == 1
        want = trainer.want()
        np.testing.assert_array_equal(session.run(serve.outputs["rows"].name, request), want)


class Nested(tf.Module):
    """Conditionals, a loop, a function of its own, a random op: bodies of their own."""

    def __init__(self):
        super().__init__()
        self.table = fe.get_embedding_variable("users", 4)
        self.scale = tf.Variable(2.0)

    @tf.function
    def _twice(self, keys):
        return self.scale * tf.nn.embedding_lookup(self.table, keys)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int64),
            tf.RaggedTensorSpec([None, None], tf.int64),
        ]
    )
    def serve(self, keys, bags):
        rows = tf.cond(tf.size(keys) > 2, lambda: self._twice(keys), lambda: self._twice(keys) + 1)
        for _ in tf.range(2):
            rows += tf.reduce_sum(self._twice(keys), axis=0)
        looked_up = tf.map_fn(
            lambda key: self._twice(key[None])[0], keys, fn_output_signature=tf.float32
        )
        data = tf.data.Dataset.from_tensor_slices(keys).map(lambda key: key + 1)
        total = data.reduce(tf.constant(0, tf.int64), lambda a, b: a + b)
        bag = fe.nn.safe_embedding_lookup_sparse(self.table, bags.to_sparse(), combiner="sum")
        return {"rows": rows, "each": looked_up, "total": total, "keys": keys, "bag": bag}


def test_bodies_of_all_kinds_are_kept(tmp_path):
    model = Nested()
    model.table.upsert([1, 2, 3], np.ones([3, 4], np.float32))
    bags = tf.ragged.constant([[1, 2], [], [3]], dtype=tf.int64)
    for ops_model, path in ((model, "first"), (None, "second")):
        source = ops_model or tf.saved_model.load(tmp_path / "first")
        keys = tf.constant([1, 2, 9], tf.int64)
        with fe.inference():
            want = {n: v.numpy() for n, v in model.serve.python_function(keys, bags).items()}
        fe.export_for_serving(
            source, tmp_path / path, "fused", signatures=model.serve if ops_model else None
        )
        loaded = tf.saved_model.load(tmp_path / path)
        given = {"bags": bags.values, "bags_1": bags.row_splits}
        got = loaded.signatures["serving_default"](keys=keys, **given)
        assert got.keys() == want.keys()
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-6, err_msg=name)
