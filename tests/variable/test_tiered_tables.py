"""Tables with a tier on an SSD train, save and restore as tables in memory do."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.tiers import look_up, make_table, needs_rocksdb, on_ssd, parts_of, rows_of
from checking import assert_same_bits

pytestmark = needs_rocksdb
tf1 = tf.compat.v1
DIM = 32
NUM_KEYS = 140_000  # with their slots three times what a table may have in memory
STEPS, BATCH = 40, 8192

OPTIMIZERS = {
    "adagrad": lambda: tf1.train.AdagradOptimizer(0.1),
    "adam": lambda: tf1.train.AdamOptimizer(0.1),
}


def batches(num_steps=STEPS, seed=0):
    """Arrays of distinct keys in random order, half of them from a twentieth of all."""
    rng = np.random.default_rng(seed)
    for _ in range(num_steps):
        hot = rng.choice(NUM_KEYS // 20, BATCH // 2, replace=False)
        cold = rng.choice(NUM_KEYS, BATCH // 2, replace=False)
        yield rng.permutation(np.unique(np.concatenate([hot, cold]))) * 7919 - 12345


def train(table, optimizer, keys_of_steps):
    for keys in keys_of_steps:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(look_up(table, keys)) ** 2)
        variables = parts_of(table)
        grads = tape.gradient(loss, variables)
        optimizer.apply_gradients(list(zip(grads, variables, strict=True)))


def counters(table):
    return {name: int(value) for name, value in table.statistics().items()}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("num_partitions", [1, 2])
def test_trains_as_in_memory(name, num_partitions, tmp_path):
    tables = [
        make_table("trained", DIM, num_partitions, option)
        for option in (fe.EmbeddingVariableOption(), on_ssd(tmp_path))
    ]
    for table in tables:
        train(table, OPTIMIZERS[name](), batches())
    want, got = (rows_of(table) for table in tables)
    assert len(want["keys"]) > NUM_KEYS / 2
    for part in want:
        assert_same_bits(got[part], want[part])
    counted = counters(tables[1])
    assert counted["demotions"] > 10_000
    assert counted["cold_hits"] > 10_000
    assert counted["cold_bytes_read"] > 0
    # Those of the first step had no slots yet.
    row_bytes = [16 + 4 * DIM * (1 + slots) for slots in (0, {"adagrad": 1, "adam": 2}[name])]
    num_without_slots = len(next(batches()))
    bytes_less = num_without_slots * (row_bytes[1] - row_bytes[0])
    assert counted["cold_bytes_put"] == counted["cold_puts"] * row_bytes[1] - bytes_less
    assert counted["cold_bytes_written"] > 0
    assert counters(tables[0])["demotions"] == 0


@pytest.mark.parametrize(("is_saved_on_ssd", "is_restored_on_ssd"), [(1, 0), (0, 1), (1, 1)])
def test_checkpoints_hold_both_tiers(is_saved_on_ssd, is_restored_on_ssd, tmp_path):
    options = [fe.EmbeddingVariableOption(), on_ssd(tmp_path / "ssd")]
    table = make_table("saved", DIM, 1, options[is_saved_on_ssd])
    optimizer = OPTIMIZERS["adagrad"]()
    train(table, optimizer, batches(15))
    path = tf.train.Checkpoint(table=table).save(str(tmp_path / "ckpt"))
    restored = make_table("restored", DIM, 1, options[is_restored_on_ssd])
    again = OPTIMIZERS["adagrad"]()
    train(restored, again, batches(2, seed=9))  # goes
    tf.train.Checkpoint(table=restored).restore(path).assert_existing_objects_matched()
    want, got = rows_of(table), rows_of(restored)
    for part in want:
        assert_same_bits(got[part], want[part])
    train(table, optimizer, batches(3, seed=4))
    train(restored, again, batches(3, seed=4))
    assert_same_bits(rows_of(restored)["values"], rows_of(table)["values"])


def test_a_session_of_tf1(tmp_path):
    with tf.Graph().as_default():
        table = make_table("in_graph", DIM, 1, on_ssd(tmp_path))
        keys = tf1.placeholder(tf.int64, [None])
        loss = tf.reduce_sum(look_up(table, keys) ** 2)
        step = tf1.train.AdagradOptimizer(0.1).minimize(loss)
        statistics = table.statistics()
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            for batch in batches(15):
                session.run(step, {keys: batch})
            counted = session.run(statistics)
    assert counted["demotions"] > 10_000


# --- Prefetch ---


def clicks(num_steps=20, seed=1):
    return tf.data.Dataset.from_tensor_slices(
        {"item": np.stack([batch[:4000] for batch in batches(num_steps, seed)])}
    )


@pytest.mark.parametrize("num_partitions", [1, 2])
def test_prefetched_rows_need_not_be_waited_for(num_partitions, tmp_path):
    table = make_table("prefetched", DIM, num_partitions, on_ssd(tmp_path))
    train(table, OPTIMIZERS["adagrad"](), batches(20))
    look_up(table, np.arange(10**9, 10**9 + NUM_KEYS))  # others leave memory for these
    before = rows_of(table)
    keys = np.random.default_rng(5).choice(before["keys"], 5000, replace=False)
    fetched = counters(table)["cold_gets"]
    table.prefetch(keys)
    assert counters(table)["cold_gets"] > fetched + 1000
    fetched = counters(table)["cold_gets"]
    with fe.inference():
        look_up(table, keys)
    assert counters(table)["cold_gets"] == fetched
    after = rows_of(table)
    for part in before:
        assert_same_bits(after[part], before[part])


def test_a_pipeline_prefetches(tmp_path):
    on_disk = make_table("pipeline", DIM, 1, on_ssd(tmp_path))
    in_memory = make_table("pipeline", DIM, 1, fe.EmbeddingVariableOption())
    pairs = lambda batch: [(on_disk, batch["item"]), (in_memory, batch["item"])]  # noqa: E731
    ahead = clicks().apply(fe.data.prefetch_embeddings(pairs))
    for table, dataset in ((on_disk, ahead), (in_memory, clicks())):
        train(table, OPTIMIZERS["adagrad"](), (batch["item"] for batch in dataset))
    want, got = rows_of(in_memory), rows_of(on_disk)
    for part in want:
        assert_same_bits(got[part], want[part])
    assert counters(on_disk)["cold_hits"] > 1000


def test_a_pipeline_of_a_session_prefetches(tmp_path):
    with tf.Graph().as_default():
        table = make_table("in_graph", DIM, 1, on_ssd(tmp_path))
        ahead = clicks().apply(fe.data.prefetch_embeddings(lambda x: [(table, x["item"])]))
        iterator = tf1.data.make_initializable_iterator(ahead)
        loss = tf.reduce_sum(look_up(table, iterator.get_next()["item"]) ** 2)
        step = tf1.train.AdagradOptimizer(0.1).minimize(loss)
        statistics = table.statistics()
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            session.run(iterator.initializer)
            for _ in range(20):
                session.run(step)
            with pytest.raises(tf.errors.OutOfRangeError):
                session.run(step)
            counted = session.run(statistics)
    assert counted["size"] > NUM_KEYS / 4
    assert counted["cold_gets"] > 1000


@pytest.mark.parametrize(
    "ids",
    [
        tf.constant([[3, 4], [4, 5]]),
        tf.constant(7, tf.int32),
        tf.ragged.constant([[3], [4, 5]], dtype=tf.int64),
        tf.sparse.from_dense([[0, 3], [4, 5]]),
    ],
    ids=["dense", "scalar", "ragged", "sparse"],
)
def test_elements_come_out_as_they_went_in(ids):
    table = fe.get_embedding_variable("any", DIM)
    batches_of = tf.data.Dataset.from_tensors((ids, {"label": tf.constant(1.0)})).repeat(3)
    through = batches_of.apply(fe.data.prefetch_embeddings(lambda x, y: [(table, x), (table, x)]))
    assert through.element_spec == batches_of.element_spec
    got = list(through)
    assert len(got) == 3
    for same, rest in got:
        tf.nest.assert_same_structure(same, ids, expand_composites=True)
        parts = (tf.nest.flatten(x, expand_composites=True) for x in (same, ids))
        for got_part, part in zip(*parts, strict=True):
            np.testing.assert_array_equal(got_part, part)
        assert float(rest["label"]) == 1.0
    assert int(table.total_count()) == 0


def test_ids_that_are_none():
    table = fe.get_embedding_variable("floats", DIM)
    dataset = tf.data.Dataset.from_tensors(tf.constant([1.5]))
    with pytest.raises(TypeError, match="ids must be integers, got float32"):
        dataset.apply(fe.data.prefetch_embeddings(lambda x: [(table, x)]))
