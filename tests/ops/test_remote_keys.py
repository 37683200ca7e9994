"""FusedEmbeddingRemoteKeys against the oracle: messages to servers, and positions of their rows."""

import numpy as np
import pytest
import tensorflow as tf

import group_stages
import remote_stages
from checking import VALUE_DTYPES, dtype_name
from group_stages import Column
from keyed_tables import lists
from oracle.key_message import format_word, packed
from remote_stages import Layout
from stages import INT64_MAX, INT64_MIN, SHAPE_ERROR

InvalidArgumentError = tf.errors.InvalidArgumentError
IN_TWO = Layout(["mod"], [[4, 4]], [[0, 1]], 2)
ONE = [Column(0, [7, 2, 7, 4], [0, 1, 1, 2], 3)]
FORMAT, WITH_COUNTS = format_word(), format_word(count_bytes=1)


def test_the_example_of_remote_keys_h():
    got = remote_stages.ask(ONE, IN_TWO)
    assert lists(got.messages) == [[FORMAT, -1, 1, 2, *packed([1, 2], 4)], [FORMAT, -1, 1, 1, 3]]
    assert got.part_sizes.numpy().tolist() == [2, 1]
    assert lists(got.positions) == [[2, 0, 2, 1]]
    assert got.default_positions.numpy().tolist() == [-1]


def test_the_example_of_key_message_h():
    layout = Layout(["hash", "mod_ev"], [[0], [0]], [[0], [0]], 1, is_keyed=True)
    columns = [Column(0, [7, 3, 3], [0, 0, 1], 2), Column(1, [9] * 5, [0, 1, 1, 0, 0], 2)]
    [message] = remote_stages.ask(columns, layout, step=4).messages
    assert message.numpy().tolist() == [
        WITH_COUNTS,
        4,
        2,
        2,
        1,
        7 + (3 << 32),
        9,
        1 + (2 << 8) + (5 << 16),
    ]


def test_words_of_the_magic_are_readable():
    assert FORMAT.to_bytes(8, "big") == b"FEkeys\x04\x02"
    assert WITH_COUNTS.to_bytes(8, "big") == b"FEkeys\x14\x02"


def assert_is_what_the_oracle_asks(got, columns, layout, step=-1):
    assert lists(got.messages) == remote_stages.want_messages(columns, layout, step)
    assert got.part_sizes.numpy().tolist() == remote_stages.want_part_sizes(columns, layout)
    positions, defaults = remote_stages.want_positions(columns, layout)
    assert lists(got.positions) == positions
    assert got.default_positions.numpy().tolist() == defaults


@pytest.mark.parametrize("is_keyed", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_equals_the_oracle_on_random_columns(seed, is_keyed):
    rng = np.random.default_rng(seed)
    tables = group_stages.random_tables(rng)
    columns = group_stages.random_columns(rng, tables, int(rng.integers(1, 6)))
    layout = remote_stages.random_layout(rng, tables, is_keyed)
    step = int(rng.integers(-1, 5))
    got = remote_stages.ask(columns, layout, step)
    assert_is_what_the_oracle_asks(got, columns, layout, step)


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_weights_of_any_dtype_prune(dtype):
    columns = [
        Column(0, [1, 2, 3], [0, 0, 1], 3, [0.5, -2.0, 0.0], combiner)
        for combiner in ("sum", "mean")
    ]
    layout = Layout(["div"], [[2, 3]], [[1, 0]], 2)
    weights = group_stages.arguments(columns, dtype)["sp_weights"]
    got = remote_stages.ask(columns, layout, dtype=dtype, sp_weights=weights)
    assert_is_what_the_oracle_asks(got, columns, layout)


def test_rows_without_ids_ask_for_row_0_of_ordinary_tables_alone():
    columns = [Column(0, [], [], 2), Column(1, [3], [0], 2, default_id=2), Column(2, [], [], 0)]
    layout = Layout(["mod"] * 3, [[2, 2]] * 3, [[0, 1], [1, 0], [0, 0]], 2)
    got = remote_stages.ask(columns, layout)
    assert lists(got.messages) == [
        [FORMAT, -1, 4, 1, 1, 0, 0, *packed([0, 1], 4)],
        [FORMAT, -1, 2, 0, 1, 1],
    ]
    assert got.default_positions.numpy().tolist() == [-2, 0, -1]
    keyed = layout._replace(strategies=["mod_ev"] * 3, is_keyed=True)
    got = remote_stages.ask(columns, keyed)
    assert lists(got.messages) == [
        [WITH_COUNTS, -1, 4, 0, 1, 0, 0, 3, 1],
        [WITH_COUNTS, -1, 2, 0, 1, 2, 0],
    ]
    assert got.default_positions.numpy().tolist() == [-1, 0, -1]


def test_fill_empty_row_false_asks_for_no_default_id():
    columns = [Column(0, [], [], 2), Column(0, [3], [0], 2, default_id=2)]
    for layout in (IN_TWO, IN_TWO._replace(strategies=["hash"], is_keyed=True)):
        got = remote_stages.ask(columns, layout, fill_empty_row=False)
        assert got.part_sizes.numpy().sum() == 1
        assert got.default_positions.numpy().tolist() == [-1, -1]


def test_every_key_is_legal_without_pruning():
    ids = [INT64_MIN, -1, 0, INT64_MAX, -1]
    layout = Layout(["mod_ev"], [[0, 0]], [[0, 0]], 1, is_keyed=True)
    columns = [Column(0, ids, range(5), 5)]
    got = remote_stages.ask(columns, layout, prune=False)
    even, odd = [INT64_MIN, 0], [-1, INT64_MAX]
    wide = format_word(key_bytes=8, count_bytes=1)
    want = [wide, -1, 2, 2, 2, *even, *odd, *packed([1, 1, 2, 1], 1)]
    assert got.messages[0].numpy().tolist() == want
    assert lists(got.positions) == [[0, 2, 1, 3, 2]]


def test_no_ids_and_servers_without_parts():
    layout = Layout(["div", "mod"], [[3], [2, 1]], [[2], [0, 2]], 4)
    got = remote_stages.ask([Column(0, [], [], 0), Column(1, [], [], 0)], layout)
    assert lists(got.messages) == [
        [FORMAT, -1, 1, 0],
        [FORMAT, -1, 0],
        [FORMAT, -1, 2, 0, 0],
        [FORMAT, -1, 0],
    ]
    assert got.part_sizes.numpy().tolist() == [0, 0, 0]


def test_a_table_without_columns_is_asked_for_nothing():
    layout = Layout(["div"] * 2, [[3], [8]], [[0], [0]], 1)
    [message] = remote_stages.ask([ONE[0]._replace(table=1)], layout).messages
    assert message.numpy().tolist() == [FORMAT, -1, 2, 0, 3, *packed([7, 2, 4], 4)]


@pytest.mark.parametrize("strategy", ["div", "mod", "mod_ev", "hash"])
def test_many_ids_and_threads_give_the_same(strategy):
    """A table that is worth all threads, beside a small one."""
    rng = np.random.default_rng(0)
    columns = [
        Column(table, rng.integers(0, 40_000, n).tolist(), np.arange(n) % 7, 7)
        for table, n in ((0, 60_000), (0, 30_000), (1, 500))
    ]
    is_keyed = strategy in ("mod_ev", "hash")
    layout = Layout([strategy] * 2, [[20_000] * 2] * 2, [[0, 1], [1, 1]], 2, is_keyed)
    # Rows alone: the columns of indices take the helpers long to find.
    batch = {
        "sp_values": [np.array(c.ids) for c in columns],
        "sp_indices": [np.array(c.row_ids) for c in columns],
    }
    bare = [c._replace(ids=[], row_ids=[]) for c in columns]
    got = remote_stages.ask(bare, layout, **batch)
    assert_is_what_the_oracle_asks(got, columns, layout)


@pytest.mark.parametrize(
    ("columns", "arguments", "message"),
    [
        ([ONE[0]._replace(ids=[7, 2, 8, 4])], {}, r"column 0: id 8 at position 2 is outside"),
        (
            [ONE[0], ONE[0]._replace(ids=[7, 2, 8, 4])],
            {"column_names": ["", "feature 'b'"]},
            r"feature 'b': id 8 at position 2 is outside \[0, 8\)",
        ),
        ([ONE[0]._replace(num_rows=4, default_id=8)], {}, "column 0: id 8, which fills row 3"),
        ([ONE[0]._replace(row_ids=[0, 0, 0, 3])], {}, r"column 0: sp_indices\[3, 0\] = 3"),
        ([ONE[0]._replace(ids=[7, 2, -1, 4])], {"prune": False}, "column 0: id -1 at position 2"),
        (ONE, {"part_rows": [4, 2]}, "column 0: id 7 at position 0 is outside"),
        (ONE, {"step": tf.constant([1, 2], tf.int64)}, "step must be a scalar"),
        (ONE, {"num_parts": [1]}, "num_parts and partition_strategies must have one entry"),
        (ONE, {"num_parts": [0, 2]}, "num_parts and partition_strategies must have one entry"),
        (ONE, {"part_rows": [8]}, "part_rows and part_servers one for each part"),
        (ONE, {"part_servers": [0]}, "part_rows and part_servers one for each part"),
        (ONE, {"partition_strategies": []}, "num_parts and partition_strategies must have"),
        (ONE, {"partition_strategies": ["DIV"]}, "div, mod, mod_ev or hash"),
        (ONE, {"part_servers": [0, 2]}, r"part_servers has 2, which is outside \[0, 2\)"),
        (ONE, {"part_servers": [-1, 0]}, r"part_servers has -1, which is outside \[0, 2\)"),
        (ONE, {"part_rows": [4, -1]}, r"partition_shapes\[1\]\[0\] = -1"),
        (ONE, {"part_rows": [INT64_MAX, 1]}, r"partition_shapes\[1\]\[0\] = 1"),
        (ONE, {"num_tables": 2}, "num_parts must have one entry for each of the 2 tables, got 1"),
        (ONE, {"table_of_column": [1]}, "table_of_column has 1"),
        (ONE, {"combiners": []}, "combiners must have one entry for each of the 1 columns"),
        (ONE, {"column_names": ["a", "b"]}, "column_names must have one entry"),
    ],
)
def test_errors(columns, arguments, message):
    with pytest.raises(InvalidArgumentError, match=message):
        remote_stages.ask(columns, IN_TWO, **arguments)


def test_an_id_that_uneven_parts_do_not_have_names_a_column():
    """By mod, ids below the number of rows may belong to no part."""
    columns = [Column(0, [0, 2], [0, 0], 1), Column(0, [1, -1, 3], [0, 0, 0], 1)]
    layout = Layout(["mod"], [[4, 1]], [[0, 0]], 1)
    with pytest.raises(InvalidArgumentError, match=r"column 1: id 3 at position 2 .* prune"):
        remote_stages.ask(columns, layout)


def test_shapes():
    @tf.function
    def traced(values):
        indices = tf.zeros([4, 2], tf.int64)
        return remote_stages.ask(ONE, IN_TWO, sp_values=[values], sp_indices=[indices])

    outputs = traced.get_concrete_function(tf.TensorSpec([4], tf.int64)).outputs
    assert [output.shape.as_list() for output in outputs] == [[None], [None], [2], [4], [1]]
    outputs = traced.get_concrete_function(tf.TensorSpec([None], tf.int32)).outputs
    assert [output.shape.as_list() for output in outputs] == [[None], [None], [2], [None], [1]]


def test_shape_function_rejects_a_step_that_is_no_scalar():
    traced = tf.function(lambda: remote_stages.ask(ONE, IN_TWO, tf.constant([1], tf.int64)))
    with pytest.raises(ValueError, match=SHAPE_ERROR):
        traced.get_concrete_function()
