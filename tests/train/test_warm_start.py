"""Stock's warm starts, which know dense variables only, meet tables."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe

v1 = tf.compat.v1


def build(num_partitions):
    partitioner = num_partitions and v1.fixed_size_partitioner(num_partitions)
    with v1.variable_scope("tower"):
        table = fe.get_embedding_variable("table", 2, partitioner=partitioner)
        weight = v1.get_variable("weight", initializer=tf.zeros([]), use_resource=True)
    return table, weight


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Checkpoints: of a stock Saver, of ours, and one without the table."""
    folder = str(tmp_path_factory.mktemp("saved"))
    with tf.Graph().as_default(), v1.Session() as session:
        table, weight = build(None)
        session.run([table.upsert([1, 2], [[1.0, 2.0], [3.0, 4.0]]), weight.initializer])
        session.run(weight.assign(5.0))
        return {
            "stock": v1.train.Saver().save(session, f"{folder}/stock"),
            "streamed": fe.train.Saver().save(session, f"{folder}/streamed"),
            "dense": v1.train.Saver({"tower/weight": weight}).save(session, f"{folder}/dense"),
        }


WARM_STARTS = {
    "default": lambda path, table: v1.train.warm_start(path),
    "pattern": lambda path, table: v1.train.warm_start(path, "tower/t.*"),
    "names": lambda path, table: v1.train.warm_start(path, ["tower/weight", "tower/table"]),
    "variables": lambda path, table: v1.train.warm_start(
        path, list(table) if isinstance(table, fe.PartitionedEmbeddingVariable) else [table]
    ),
    "whole": lambda path, table: v1.train.warm_start(path, [table]),
    "all": lambda path, table: v1.train.init_from_checkpoint(path, {"/": "/"}),
    "scope": lambda path, table: v1.train.init_from_checkpoint(path, {"tower/": "tower/"}),
    "name": lambda path, table: v1.train.init_from_checkpoint(path, {"x": "tower/table"}),
    "object": lambda path, table: v1.train.init_from_checkpoint(path, {"tower/table": table}),
}


@pytest.mark.parametrize("num_partitions", [None, 2])
@pytest.mark.parametrize("kind", ["stock", "streamed"])
def test_tables_are_refused_by_name(saved, kind, num_partitions):
    """They would stay empty, which a user sees only in the model's quality."""
    with tf.Graph().as_default():
        table, _ = build(num_partitions)
        for warm_start in WARM_STARTS.values():
            with pytest.raises(NotImplementedError, match="EmbeddingVariable 'tower/table'"):
                warm_start(saved[kind], table)


@pytest.mark.parametrize(
    "warm_start",
    [
        lambda path: v1.train.warm_start(path, "tower/w.*"),
        lambda path: v1.train.warm_start(path, ["tower/weight"]),
        lambda path: v1.train.init_from_checkpoint(path, {"tower/weight": "tower/weight"}),
        lambda path: v1.train.init_from_checkpoint(path, {"tower/": "tower/"}),
    ],
)
def test_dense_variables_beside_a_table(saved, warm_start):
    """Also of a scope with a table that the checkpoint does not have."""
    with tf.Graph().as_default(), v1.Session() as session:
        _, weight = build(None)
        warm_start(saved["dense"])
        session.run(v1.global_variables_initializer())
        assert session.run(weight) == 5.0


@pytest.mark.parametrize("num_partitions", [None, 2])
def test_the_way_that_the_error_names(saved, num_partitions):
    with tf.Graph().as_default(), v1.Session() as session:
        table, weight = build(num_partitions)
        v1.train.warm_start(saved["stock"], "tower/w.*")
        saver = v1.train.Saver({"tower/table": table})
        session.run(v1.global_variables_initializer())
        saver.restore(session, saved["stock"])
        rows = session.run(table.export())
        np.testing.assert_array_equal(rows.keys, [1, 2])
        np.testing.assert_array_equal(rows.values, [[1.0, 2.0], [3.0, 4.0]])
        assert session.run(weight) == 5.0
