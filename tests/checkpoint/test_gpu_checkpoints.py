"""Files of EmbeddingVariables in a GPU's memory, on the emulation of a GPU: those of DRAM."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from emulated_gpu import emulated_gpu, nodes_of, remove_labels
from gpu_tables import DIM, PLACES, assert_same, content_of, in_place, make_table, option

tf1 = tf.compat.v1


# --- Checkpoints ---


@pytest.mark.parametrize("source", PLACES)
@pytest.mark.parametrize("target", PLACES)
def test_a_checkpoint_is_read_by_tables_anywhere(tmp_path, source, target):
    def saver_of(place):
        table = make_table(place, "a", filter_option=fe.CounterFilter(2))
        rows = tf.nn.embedding_lookup(table, tf.constant([1, 1, 2, 3, 3], tf.int64))
        train_op = fe.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(rows))
        return table, train_op, tf1.train.Saver()

    with in_place(source), tf.Graph().as_default():
        table, train_op, saver = saver_of(source)
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            session.run(train_op)
            prefix = saver.save(session, str(tmp_path / "model"))
            want = session.run(table.export_content()._asdict())
    assert want["keys"].tolist() == [1, 3]
    assert want["filtered_keys"].tolist() == [2]
    with in_place(target), tf.Graph().as_default():
        table, _, saver = saver_of(target)
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            saver.restore(session, prefix)
            assert_same(session.run(table.export_content()._asdict()), want)


def test_first_values_are_those_of_the_checkpoint(tmp_path):
    with emulated_gpu():
        table = make_table(name="a")
        path = tf.train.Checkpoint(table=table).save(str(tmp_path / "model"))
        want = tf.nn.embedding_lookup(table, [7, 8])
        other = fe.get_embedding_variable("b", DIM, initializer=0.5, ev_option=option())
        np.testing.assert_array_equal(tf.nn.embedding_lookup(other, [7]), np.full([1, DIM], 0.5))
        tf.train.Checkpoint(table=other).restore(path).assert_consumed()
        np.testing.assert_array_equal(tf.nn.embedding_lookup(other, [7, 8]), want)


def test_metadata_is_that_of_dram():
    def run(place):
        with in_place(place):
            table = make_table(place)
            tf.nn.embedding_lookup(table, [[1, 2], [1, 1]])
            return table.get_frequency([1, 2, 3]), table.get_version([[1], [3]])

    for got, want in zip(run("hbm"), run("dram"), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_checkpoint_of_objects_comes_back(tmp_path):
    with emulated_gpu():
        table = make_table(name="a")
        table.upsert([3, 1], np.arange(2 * DIM).reshape(2, DIM))
        path = tf.train.Checkpoint(table=table).save(str(tmp_path / "model"))
        other = make_table(name="a")
        other.upsert([7], np.zeros([1, DIM]))
        tf.train.Checkpoint(table=other).restore(path).assert_consumed()
        assert_same(content_of(other), content_of(table))


def test_an_incremental_save_has_all_rows(tmp_path):
    with emulated_gpu(), tf.Graph().as_default():
        table = make_table(name="a")
        key = tf1.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(table, key)
        saver = fe.train.Saver(incremental=True)
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            session.run(rows, {key: [1, 2]})
            saver.save(session, str(tmp_path / "model"), global_step=1)
            session.run(rows, {key: [3]})
            prefix = saver.save(session, str(tmp_path / "model"), global_step=2)
            want = session.run(table.export_content()._asdict())
            session.run(rows, {key: [4]})
            saver.restore(session, prefix)
            assert_same(session.run(table.export_content()._asdict()), want)


def test_rows_expire_when_a_checkpoint_is_saved(tmp_path):
    with emulated_gpu():
        table = make_table(name="a", evict_option=fe.L2WeightEvict(0.5))
        table.upsert([1, 2], [[0.1] * DIM, [0.9] * DIM])
        tf.train.Checkpoint(table=table).save(str(tmp_path / "model"))
        assert table.export().keys.numpy().tolist() == [2]
        assert int(table.statistics()["expirations"]) == 1


def test_partitions_are_saved_and_read_in_any_number(tmp_path):
    def make(partitions):
        return fe.get_embedding_variable(
            "a", DIM, ev_option=option(), partitioner=tf1.fixed_size_partitioner(partitions)
        )

    with emulated_gpu():
        table = make(3)
        table.upsert(tf.range(20), np.arange(20 * DIM).reshape(20, DIM))
        path = tf.train.Checkpoint(table=table).save(str(tmp_path / "model"))
        other = make(2)
        tf.train.Checkpoint(table=other).restore(path)
        assert int(other.total_count()) == 20
        rows = tf.nn.embedding_lookup(other, tf.range(20))
        np.testing.assert_array_equal(rows, np.arange(20 * DIM).reshape(20, DIM))


# --- Serving ---


def test_a_saved_model_has_the_table_in_dram(tmp_path):
    with emulated_gpu():
        model = tf.Module()
        model.table = make_table(name="a")
        model.table.upsert([3, 1], np.arange(2 * DIM).reshape(2, DIM))

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64)])
        def serve(ids):
            return fe.nn.safe_embedding_lookup_sparse(model.table, tf.sparse.from_dense(ids))

        model.serve = serve
        want = serve(tf.constant([[1, 3], [9, 3]], tf.int64)).numpy()
        tf.saved_model.save(model, str(tmp_path))
        remove_labels(tmp_path)
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_allclose(loaded.serve(tf.constant([[1, 3]], tf.int64)), want[:1])
    assert loaded.table.storage_type is fe.StorageType.DRAM


@pytest.mark.parametrize("ops", ["stock", "fused"])
def test_a_session_is_exported_with_the_table_in_dram(tmp_path, ops):
    folder = str(tmp_path / "export")
    with emulated_gpu(), tf.Graph().as_default():
        table = make_table(name="a", filter_option=fe.CounterFilter(2))
        keys = tf1.placeholder(tf.int64, [None, 2], "keys")
        rows = fe.nn.safe_embedding_lookup_sparse(table, tf.sparse.from_dense(keys))
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            session.run(rows, {keys: [[1, 1], [2, 2]]})
            with fe.inference():
                served = fe.nn.safe_embedding_lookup_sparse(table, tf.sparse.from_dense(keys))
            want = session.run(served, {keys: [[1, 9], [2, 1]]})
            fe.export_for_serving(
                session, folder, ops, inputs={"keys": keys}, outputs={"rows": served}
            )
    remove_labels(folder)
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    got = serve(keys=tf.constant([[1, 9], [2, 1]], tf.int64))["rows"]
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_saved_model_of_a_session_has_the_table_in_dram(tmp_path):
    with emulated_gpu(), tf.Graph().as_default():
        table = make_table(name="a")
        keys = tf1.placeholder(tf.int64, [None, 2], "keys")
        with fe.inference():
            rows = fe.nn.safe_embedding_lookup_sparse(table, tf.sparse.from_dense(keys))
        upsert = table.upsert([3, 1], np.arange(2 * DIM).reshape(2, DIM))
        with tf1.Session() as session:
            session.run([tf1.global_variables_initializer(), upsert])
            want = session.run(rows, {keys: [[1, 3]]})
            builder = tf1.saved_model.Builder(str(tmp_path / "model"))
            builder.add_meta_graph_and_variables(session, [tf.saved_model.SERVING])
            builder.save()
    remove_labels(tmp_path / "model")
    # TensorFlow's Python would pass over an attr that the op has not.
    assert not any("hbm_bytes" in node.attr for node in nodes_of(tmp_path / "model"))
    with tf1.Session(graph=tf.Graph()) as session:
        tf1.saved_model.load(session, [tf.saved_model.SERVING], str(tmp_path / "model"))
        (handle,) = [op for op in session.graph.get_operations() if op.type.endswith("Handle")]
        assert handle.type == "EmbeddingVariableHandle"
        assert handle.get_attr("frozen")
        np.testing.assert_array_equal(session.run(rows.name, {"keys:0": [[1, 3]]}), want)
