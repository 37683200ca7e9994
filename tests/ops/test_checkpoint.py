"""EmbeddingVariableSave, -SaveIncrement, -Restore and -ReadRows. See also tests/checkpoint."""

import os
import threading

import numpy as np
import pytest
import tensorflow as tf
from table_cases import DIM, apply, export, int64, lookup, make_table, upsert, values_of

import oracle.lookup
from checking import VALUE_DTYPES, dtype_name
from fused_embedding import raw_ops
from stages import INT64_MAX, INT64_MIN, SHAPE_ERROR

KEYS = [7, INT64_MIN, -1, INT64_MAX, 0, 3]


def save(table, path):
    raw_ops.EmbeddingVariableSave(resource=table, path=str(path))


def restore(table, *paths, **attrs):
    raw_ops.EmbeddingVariableRestore(resource=table, paths=[*map(str, paths)], **attrs)


def assert_same_content(got, want, dtype=tf.float32):
    want = export(want, dtype)
    for name, value in export(got, dtype)._asdict().items():
        np.testing.assert_array_equal(value, getattr(want, name), name)


def filled_table(dtype=tf.float32, keys=KEYS, **attrs):
    table = make_table(dtype, **attrs)
    lookup(table, keys, range(1, len(keys) + 1), step=11, dtype=dtype)
    upsert(table, keys[:1], [[0.5, 1.5, -2.5]], dtype)
    grad = tf.cast(np.arange(len(keys) * DIM).reshape(-1, DIM) / 4, dtype)
    apply(table, keys, grad, "adagrad", [0.5, 0.0, 0.25], slot_prefix="A")
    apply(table, keys[:2], grad[:2], "rmsprop", [0.5, 0.5, 0.5, 1.0], slot_prefix="B")
    return table


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"initializer": "uniform", "initializer_b": 1.0, "seed": 9},
        {"initializer": "matrix", "initializer_matrix": np.ones([2, DIM], np.float32).tobytes()},
        {"admission": "counter", "min_frequency": 4},
        {"admission": "bloom", "min_frequency": 4, "bloom_counters": 1000, "bloom_hashes": 3},
        {"max_capacity": 10, "eviction": "lru"},
    ],
    ids=["plain", "uniform", "matrix", "counter", "bloom", "bounded"],
)
def test_a_restore_is_what_was_saved(attrs, tmp_path):
    saved = filled_table(**attrs)
    save(saved, tmp_path / "table")
    restored = make_table(**attrs)
    lookup(restored, [1000, 1001, 7], [9, 9, 9])  # goes
    restore(restored, tmp_path / "table")
    assert_same_content(restored, saved)
    assert os.listdir(tmp_path) == ["table"]


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_every_dtype(dtype, tmp_path):
    saved, restored = filled_table(dtype), make_table(dtype)
    save(saved, tmp_path / "table")
    restore(restored, tmp_path / "table")
    assert_same_content(restored, saved, dtype)


def test_no_rows(tmp_path):
    save(make_table(), tmp_path / "table")
    restored = filled_table()
    restore(restored, tmp_path / "table")
    assert_same_content(restored, make_table())


def test_a_save_replaces_a_file(tmp_path):
    save(filled_table(), tmp_path / "table")
    saved, restored = filled_table(keys=[5, 6]), make_table()
    save(saved, tmp_path / "table")
    restore(restored, tmp_path / "table")
    assert_same_content(restored, saved)


@pytest.mark.parametrize("strategy", ["hash", "mod_ev"])
@pytest.mark.parametrize("num_saved", [1, 2, 3])
@pytest.mark.parametrize("num_restored", [1, 2, 3])
def test_any_number_of_partitions_into_any(num_saved, num_restored, strategy, tmp_path):
    keys = np.random.default_rng(0).integers(INT64_MIN, INT64_MAX, 1000)
    attrs = {"admission": "counter", "min_frequency": 5}
    whole = filled_table(keys=keys, **attrs)
    save(whole, tmp_path / "whole")

    def partition(index, count, *paths):
        table = make_table(**attrs)
        restore(
            table,
            *paths,
            partition_index=index,
            num_partitions=count,
            partition_strategy=strategy,
        )
        return table

    paths = [tmp_path / f"part_{index}" for index in range(num_saved)]
    for index, path in enumerate(paths):
        save(partition(index, num_saved, tmp_path / "whole"), path)
    parts = [partition(index, num_restored, *paths) for index in range(num_restored)]
    for name in ("keys", "filtered_keys"):
        got = [getattr(export(part), name).numpy() for part in parts]
        want = getattr(export(whole), name).numpy()
        owned, _ = oracle.lookup.partition(want, [0] * num_restored, strategy)
        for g, w in zip(got, owned, strict=True):
            np.testing.assert_array_equal(g, w)


DAMAGE = {
    "empty": lambda content: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "last_byte_gone": lambda content: content[:-1],
    "a_byte_more": lambda content: content + b"\0",
    "not_a_table": lambda content: b"x" * len(content),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_an_error_that_names_it(kind, tmp_path):
    path = tmp_path / "table"
    save(filled_table(), path)
    path.write_bytes(DAMAGE[kind](path.read_bytes()))
    table = filled_table(keys=[70, 71])
    with pytest.raises(tf.errors.DataLossError, match=str(path)):
        restore(table, path)
    assert_same_content(table, filled_table(keys=[70, 71]))


def test_any_flipped_byte_is_an_error(tmp_path):
    path = tmp_path / "table"
    save(filled_table(), path)
    content = path.read_bytes()
    table = filled_table(keys=[70, 71])
    for position in range(0, len(content), 7):
        changed = bytearray(content)
        changed[position] ^= 0x10
        path.write_bytes(changed)
        with pytest.raises(tf.errors.OpError, match=str(path)):
            restore(table, path)
    assert_same_content(table, filled_table(keys=[70, 71]))


def test_a_file_that_is_not_there(tmp_path):
    table = filled_table()
    with pytest.raises(tf.errors.OpError, match=str(tmp_path / "nothing")):
        restore(table, tmp_path / "nothing")
    with pytest.raises(tf.errors.OpError, match=str(tmp_path / "no_folder" / "table")):
        save(table, tmp_path / "no_folder" / "table")
    assert_same_content(table, filled_table())


def test_a_table_is_not_ready_while_it_is_restored(tmp_path):
    def is_ready():
        return raw_ops.EmbeddingVariableIsInitialized(resource=table).numpy()

    def restore_until_seen():
        while not seen.is_set():
            restore(table, tmp_path / "table")

    table, seen = filled_table(keys=int64(range(10_000))), threading.Event()
    save(table, tmp_path / "table")
    assert is_ready()
    thread = threading.Thread(target=restore_until_seen)
    thread.start()
    while is_ready():
        assert thread.is_alive()
    assert lookup(table, [7], insert=False).embeddings.shape == (1, DIM)  # as before
    seen.set()
    thread.join()
    assert is_ready()
    (tmp_path / "table").write_bytes(b"damaged")
    with pytest.raises(tf.errors.OpError):
        restore(table, tmp_path / "table")
    assert is_ready()


@pytest.mark.parametrize("attrs", [{"dim": 4}, {"dtype": tf.float64}, {"dtype": tf.bfloat16}])
def test_a_table_of_another_shape_is_an_error(attrs, tmp_path):
    save(filled_table(), tmp_path / "table")
    other = make_table(**attrs)
    dtype = attrs.get("dtype", tf.float32)
    lookup(other, [1], dtype=dtype)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"dim|float"):
        restore(other, tmp_path / "table")
    assert export(other, dtype).keys.numpy().tolist() == [1]


@pytest.mark.parametrize("paths", [[], "x", [["x"]]])
def test_wrong_paths(paths):
    table = filled_table()
    with pytest.raises(tf.errors.OpError):
        raw_ops.EmbeddingVariableRestore(resource=table, paths=tf.constant(paths, tf.string))
    assert_same_content(table, filled_table())
    with pytest.raises(tf.errors.InvalidArgumentError, match="path"):
        raw_ops.EmbeddingVariableSave(resource=table, path=tf.constant(["a", "b"]))


def test_first_values_are_the_saved_tables(tmp_path):
    attrs = {"initializer": "uniform", "initializer_b": 1.0}
    saved = make_table(seed=1, **attrs)
    save(saved, tmp_path / "table")
    restored = make_table(seed=2, **attrs)
    before = values_of(restored, KEYS)
    restore(restored, tmp_path / "table")
    np.testing.assert_array_equal(values_of(restored, KEYS), values_of(saved, KEYS))
    assert (values_of(restored, KEYS) != before).all()


@pytest.mark.parametrize("attrs", [{"partition_index": 1}, {"num_partitions": 0}])
def test_wrong_partitions(attrs, tmp_path):
    save(filled_table(), tmp_path / "table")
    with pytest.raises(tf.errors.InvalidArgumentError, match="partition"):
        restore(make_table(), tmp_path / "table", **attrs)


def test_shape_functions():
    @tf.function
    def step(path, paths):
        raw_ops.EmbeddingVariableSave(resource=make_table(), path=path)
        raw_ops.EmbeddingVariableRestore(resource=make_table(), paths=paths)

    string = tf.string
    step.get_concrete_function(tf.TensorSpec([], string), tf.TensorSpec([None], string))
    for path, paths in [([2], [None]), ([], [])]:
        with pytest.raises(ValueError, match=SHAPE_ERROR):
            step.get_concrete_function(tf.TensorSpec(path, string), tf.TensorSpec(paths, string))


def test_lookups_go_on_beside_a_save(tmp_path):
    table = make_table()
    keys = np.arange(100_000)
    lookup(table, keys)

    @tf.function
    def both():
        raw_ops.EmbeddingVariableSave(resource=table, path=str(tmp_path / "table"))
        return lookup(table, int64(keys[:1000])).embeddings

    for _ in range(5):
        both()
    restored = make_table()
    restore(restored, tmp_path / "table")
    content = export(restored)
    np.testing.assert_array_equal(content.keys, keys)
    np.testing.assert_array_equal(content.values.numpy()[:, 0], keys % 100_000)


def save_increment(table, path, base_paths, link_paths):
    raw_ops.EmbeddingVariableSaveIncrement(
        resource=table,
        path=str(path),
        base_paths=tf.constant([*map(str, base_paths)], tf.string),
        link_paths=tf.constant([*map(str, link_paths)], tf.string),
    )


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_a_series_has_what_changed(dtype, tmp_path):
    table = filled_table(dtype)
    save_increment(table, tmp_path / "a", [], [])
    upsert(table, [5, 7], [[1, 2, 3], [4, 5, 6]], dtype)
    raw_ops.EmbeddingVariableErase(resource=table, keys=int64([3]))
    save_increment(table, tmp_path / "b", [tmp_path / "a"], [tmp_path / "linked"])
    restored = make_table(dtype)
    series = tf.constant([[str(tmp_path / name)] for name in ("linked", "b")])
    raw_ops.EmbeddingVariableRestore(resource=restored, paths=series)
    assert_same_content(restored, table, dtype)
    path = str(tmp_path / "b")
    rows = raw_ops.EmbeddingVariableReadRows(path=path, dtype=dtype, embedding_dim=DIM)
    values = dict(zip(rows.keys.numpy().tolist(), rows.values.numpy().tolist(), strict=True))
    assert values == {5: [1, 2, 3], 7: [4, 5, 6]}
    assert rows.removed_keys.numpy().tolist() == [3]
    assert bool(rows.is_incremental)
    assert rows.seed == raw_ops.EmbeddingVariableSeed(resource=table)
    with pytest.raises(tf.errors.InvalidArgumentError, match="embedding_dim 3"):
        raw_ops.EmbeddingVariableReadRows(path=path, dtype=dtype, embedding_dim=DIM + 1)
    with pytest.raises(tf.errors.FailedPreconditionError, match="does not know what changed"):
        save_increment(restored, tmp_path / "c", [tmp_path / "b"], [tmp_path / "d"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="link_paths"):
        save_increment(table, tmp_path / "c", [tmp_path / "b"], [])


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (["x", "x"], "link_paths must differ, but several are .*/x"),
        (["x", "y\0z"], "the path of a checkpoint must be the name of a file"),
    ],
)
def test_links_of_a_series_are_files_of_their_own(links, message, tmp_path):
    table = filled_table(tf.float32)
    save_increment(table, tmp_path / "a", [], [])
    save_increment(table, tmp_path / "b", [tmp_path / "a"], [tmp_path / "linked"])
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        save_increment(
            table,
            tmp_path / "c",
            [tmp_path / "linked", tmp_path / "b"],
            [f"{tmp_path}/{link}" for link in links],
        )
    assert sorted(os.listdir(tmp_path)) == before


def test_shape_functions_of_increments():
    @tf.function
    def step(path, base_paths, link_paths):
        raw_ops.EmbeddingVariableSaveIncrement(
            resource=make_table(), path=path, base_paths=base_paths, link_paths=link_paths
        )
        return raw_ops.EmbeddingVariableReadRows(path=path, dtype=tf.float32, embedding_dim=DIM)

    def traced(*shapes):
        return step.get_concrete_function(*(tf.TensorSpec(shape, tf.string) for shape in shapes))

    # Wrong shapes first: a trace with unknown sizes would serve them.
    for wrong in ([1], [None], [None]), ([], [], [None]), ([], [2], [3]), ([], [None], [2, 2]):
        with pytest.raises(ValueError, match=SHAPE_ERROR):
            traced(*wrong)
    shapes = [output.shape.as_list() for output in traced([], [None], [None]).outputs]
    assert shapes == [[None], [None, DIM], [None], [], []]
