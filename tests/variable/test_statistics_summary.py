"""fe.summarize_statistics: what TensorBoard would read."""

import collections
import contextlib

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from fused_embedding.variable.embedding_variable import STATISTICS, TIER_STATISTICS

v1 = tf.compat.v1
IN_DRAM = [name for name in STATISTICS if name not in TIER_STATISTICS]


def written(folder):
    """Tag -> {step: value} of all event files of a folder."""
    scalars = collections.defaultdict(dict)
    for path in sorted(folder.glob("events*")):
        for event in v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                is_tensor = value.HasField("tensor")
                assert not is_tensor or value.metadata.plugin_data.plugin_name == "scalars"
                number = tf.make_ndarray(value.tensor) if is_tensor else value.simple_value
                scalars[value.tag][event.step] = float(number)
    return dict(scalars)


def tags(*names):
    return {f"{name}/{statistic}" for name in names for statistic in IN_DRAM}


def numbers(variable):
    return {name: float(np.float32(value)) for name, value in variable.statistics().items()}


def partitioned(name):
    return fe.get_embedding_variable(
        name, 4, partitioner=v1.fixed_size_partitioner(2), initializer=fe.DebugInitializer()
    )


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "function"])
def test_v2_summaries(wrap, tmp_path):
    users, items = fe.get_embedding_variable("users", 4), partitioned("items")
    ids = tf.sparse.from_dense(tf.constant([[5, 6, 7]], tf.int64))

    @wrap
    def step(number):
        tf.nn.embedding_lookup(users, [1, 2])
        fe.nn.safe_embedding_lookup_sparse(items, ids)
        fe.summarize_statistics([users, items], step=number)

    with tf.summary.create_file_writer(str(tmp_path)).as_default():
        for number in range(2):
            step(tf.constant(number, tf.int64))
    got = written(tmp_path)
    assert set(got) == tags("users", "items")
    assert got["users/size"] == {0: 2.0, 1: 2.0}
    assert got["users/hits"] == {0: 0.0, 1: 2.0}
    assert got["items/size"] == {0: 3.0, 1: 3.0}
    last = {statistic: got[f"items/{statistic}"][1] for statistic in IN_DRAM}
    assert last == {statistic: numbers(items)[statistic] for statistic in IN_DRAM}


@pytest.mark.parametrize("partitioner", [None, v1.fixed_size_partitioner(2)])
def test_those_of_a_tier_are_written_where_there_is_one(partitioner, tmp_path):
    storage = fe.StorageOption(fe.StorageType.DRAM_SSD, tmp_path)
    option = fe.EmbeddingVariableOption(storage_option=storage)
    with tf.Graph().as_default():  # makes no table
        users = fe.get_embedding_variable("users", 4, ev_option=option, partitioner=partitioner)
        summaries = fe.summarize_statistics(users)
    assert [tensor.op.name for tensor in summaries] == [f"users/{name}" for name in STATISTICS]


def test_the_step_of_tf_summary(tmp_path):
    users = fe.get_embedding_variable("users", 4)
    tf.summary.experimental.set_step(11)
    with tf.summary.create_file_writer(str(tmp_path)).as_default():
        fe.summarize_statistics(users)
    tf.summary.experimental.set_step(None)
    assert written(tmp_path)["users/size"] == {11: 0.0}


def test_a_monitored_session_writes_them(tmp_path):
    with tf.Graph().as_default():
        with v1.variable_scope("tower"):
            users, items = fe.get_embedding_variable("users", 4), partitioned("items")
            with v1.name_scope("metrics"):
                fe.summarize_statistics([users, items])
        step = v1.train.get_or_create_global_step()
        rows = tf.nn.embedding_lookup(users, tf.reshape(step, [1]))
        with tf.control_dependencies([rows]):
            train = v1.assign_add(step, 1)
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), save_summaries_steps=1, save_checkpoint_secs=None
        ) as session:
            for _ in range(3):
                session.run(train)
    got = written(tmp_path)
    assert set(got) >= tags("tower.users", "tower.items")
    assert max(got["tower.users/size"].values()) >= 2.0


def test_a_partition_alone_has_its_own_name(tmp_path):
    with tf.summary.create_file_writer(str(tmp_path)).as_default():
        fe.summarize_statistics(list(partitioned("items")), step=0)
    assert set(written(tmp_path)) == tags("items/part_0", "items/part_1")


@pytest.mark.parametrize("is_graph", [False, True])
def test_each_table_has_a_section(is_graph, tmp_path):
    """TensorBoard's sections are what precedes the first slash of a tag."""
    names = {
        "users": "users",
        "tower/users": "tower.users",
        "tower/items": "tower.items",
        "input_layer/ad_embedding/embedding_weights": "input_layer.ad_embedding.embedding_weights",
        "shops/embeddings": "shops/embeddings",  # as a layer of Keras names its table
        "tower/shops/embeddings": "tower.shops/embeddings",
    }
    if is_graph:
        with tf.Graph().as_default(), v1.Session() as session:
            fe.summarize_statistics([fe.get_embedding_variable(name, 4) for name in names])
            with contextlib.closing(v1.summary.FileWriter(str(tmp_path))) as writer:
                writer.add_summary(session.run(v1.summary.merge_all()))
    else:
        with tf.summary.create_file_writer(str(tmp_path)).as_default():
            fe.summarize_statistics([fe.get_embedding_variable(n, 4) for n in names], step=0)
    got = set(written(tmp_path))
    assert got == tags(*names.values())
    sections = collections.Counter(tag.partition("/")[0] for tag in got)
    assert sections == {name.partition("/")[0]: len(IN_DRAM) for name in names.values()}


def test_partitions_share_a_section(tmp_path):
    with tf.summary.create_file_writer(str(tmp_path)).as_default():
        fe.summarize_statistics([*partitioned("tower/items"), partitioned("tower/ads")], step=0)
    parts = ("tower.items/part_0", "tower.items/part_1")
    assert set(written(tmp_path)) == tags(*parts, "tower.ads")


def test_other_variables_are_an_error():
    with pytest.raises(TypeError, match=r"must be EmbeddingVariables, got .*tf\.Variable"):
        fe.summarize_statistics([tf.Variable([1.0], name="dense")])
