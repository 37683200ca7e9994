import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import fused_embedding as fe
import oracle.lookup
from stages import BATCHES, INT64_MAX, INT64_MIN, SHAPE_ERROR

pytestmark = pytest.mark.usefixtures("device")

TABLES = {"one_shard": [10], "two_shards": [5, 5], "uneven": [6, 1, 3]}


def run(ids, indices, num_rows, shard_rows, *, prune, fill, **attrs):
    return fe.raw_ops.FusedEmbeddingSparsePreLookUp(
        partition_shapes=[np.array([rows, 4], np.int64) for rows in shard_rows],
        sp_values=np.asarray(ids, np.int64),
        sp_indices=np.asarray(indices, np.int64).reshape(-1, 2),
        sp_dense_shape=np.array([num_rows, 9], np.int64),
        prune_invalid_id=prune,
        fill_empty_row=fill,
        **attrs,
    )


def assert_matches_oracle(ids, row_ids, num_rows, shard_rows, *, prune=True, fill=True, **attrs):
    indices = oracle.lookup.as_indices(row_ids)
    got = run(ids, indices, num_rows, shard_rows, prune=prune, fill=fill, **attrs)
    strategy = attrs.pop("partition_strategy", "div")
    values, sent, flags = oracle.lookup.pre_lookup(
        ids, indices, num_rows, shard_rows, prune=prune, fill=fill, strategy=strategy, **attrs
    )
    for p in range(len(shard_rows)):
        np.testing.assert_array_equal(got.partitioned_values[p], values[p], f"values {p}")
        np.testing.assert_array_equal(got.partitioned_indices[p], sent[p], f"indices {p}")
    np.testing.assert_array_equal(got.row_empty_and_invalid_flags, flags, "flags")


@pytest.mark.parametrize("strategy", ["div", "mod", "mod_ev", "hash"])
@pytest.mark.parametrize("default_id", [-1, 0, 9])
@pytest.mark.parametrize("shard_rows", TABLES.values(), ids=TABLES.keys())
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())
def test_matches_oracle(batch, shard_rows, default_id, strategy):
    if strategy == "mod" and shard_rows == TABLES["uneven"]:
        shard_rows = [4, 3, 3]  # the sizes that ids 0 to 9 need
    assert_matches_oracle(
        batch.ids,
        batch.row_ids,
        batch.num_rows,
        shard_rows,
        default_id=default_id,
        partition_strategy=strategy,
    )


@pytest.mark.parametrize("fill", [False, True])
@pytest.mark.parametrize("prune", [False, True])
@pytest.mark.parametrize("strategy", ["div", "hash"])
def test_prune_and_fill_switches(strategy, prune, fill):
    ids = [3, -2, 0, -7, 9] if prune or strategy == "hash" else [3, 2, 0, 7, 9]
    assert_matches_oracle(
        ids, [0, 0, 2, 3, 4], 6, [5, 5], prune=prune, fill=fill, partition_strategy=strategy
    )


@hypothesis.given(data=st.data(), num_rows=st.integers(1, 6))
def test_matches_oracle_on_random_input(data, num_rows):
    row_ids = data.draw(st.lists(st.integers(0, num_rows - 1), max_size=20))
    size = {"min_size": len(row_ids), "max_size": len(row_ids)}
    shard_rows = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    assert_matches_oracle(
        data.draw(st.lists(st.integers(-3, sum(shard_rows) - 1), **size)),
        row_ids,
        num_rows,
        shard_rows,
        fill=data.draw(st.booleans()),
        default_id=data.draw(st.integers(-3, sum(shard_rows) - 1)),
    )


@hypothesis.given(
    ids=st.lists(st.integers(-3, 11), max_size=30),
    strategy=st.sampled_from(["mod", "mod_ev", "hash"]),
)
def test_no_pair_is_lost(ids, strategy):
    """A partition: each valid pair is in one shard, the one of its id, and the sizes add up."""
    row_ids = [3 * k % 7 for k in range(len(ids))]
    indices = oracle.lookup.as_indices(row_ids)
    attrs = {"prune": True, "fill": False, "partition_strategy": strategy}
    got = run(ids, indices, 7, [4, 4, 4], **attrs)
    pairs = []
    for p in range(3):
        values = got.partitioned_values[p].numpy()
        keys = values * 3 + p if strategy == "mod" else values
        assert all(oracle.lookup.shard_of(k, [4, 4, 4], strategy)[0] == p for k in keys.tolist())
        pairs += [(k, *i) for k, i in zip(keys, got.partitioned_indices[p].numpy(), strict=True)]
    want = [(k, *i) for k, i in zip(ids, indices, strict=True) if k >= 0]
    assert sorted(pairs) == sorted(want)


@pytest.mark.parametrize(
    ("ids", "indices", "num_rows", "message"),
    [
        ([1], [[2, 0]], 2, r"sp_indices\[0, 0\] = 2 is outside \[0, num_rows = 2\)"),
        ([1], [[INT64_MIN, 0]], 2, r"sp_indices\[0, 0\] = -9223372036854775808 is outside"),
        ([1, 2], [[0, 0]], 2, "sp_indices"),
        ([1], [[0, 0]], -1, "sp_dense_shape"),
        ([10], [[0, 0]], 2, r"id 10 at position 0 is outside \[0, 10\)"),
        ([0, INT64_MAX], [[0, 0], [0, 1]], 2, "id 9223372036854775807 at position 1"),
    ],
)
def test_rejects(ids, indices, num_rows, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(ids, indices, num_rows, [5, 5], prune=True, fill=True)


def test_rejects_a_negative_id_that_is_not_pruned():
    with pytest.raises(tf.errors.InvalidArgumentError, match="id -3 at position 1"):
        run([1, -3], [[0, 0], [0, 1]], 1, [5, 5], prune=False, fill=True)


def test_rejects_a_default_id_that_no_shard_has():
    with pytest.raises(tf.errors.InvalidArgumentError, match="10"):
        run([1], [[0, 0]], 2, [5, 5], prune=True, fill=True, default_id=10)


def test_rejects_partition_axis_other_than_0():
    with pytest.raises(
        (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError), match="partition_axis"
    ):
        run([1], [[0, 0]], 2, [5, 5], prune=True, fill=True, partition_axis=1)


@pytest.mark.parametrize("shape", [[], [[4, 4]], 4])
def test_rejects_malformed_partition_shapes(shape):
    with pytest.raises(tf.errors.InvalidArgumentError, match="partition_shapes"):
        fe.raw_ops.FusedEmbeddingSparsePreLookUp(
            partition_shapes=[np.array(shape, np.int64)],
            sp_values=np.array([1]),
            sp_indices=np.array([[0, 0]]),
            sp_dense_shape=np.array([1, 1]),
        )


@pytest.mark.parametrize(("nnz", "flags"), [(None, None), (3, None)])
def test_shapes(nnz, flags):
    traced = tf.function(
        lambda v, i, s: tuple(
            fe.raw_ops.FusedEmbeddingSparsePreLookUp(
                partition_shapes=[np.array([4, 2])] * 2, sp_values=v, sp_indices=i, sp_dense_shape=s
            )
        )
    )
    specs = [tf.TensorSpec(shape, tf.int64) for shape in ([nnz], [nnz, 2], [2])]
    got = traced.get_concrete_function(*specs).structured_outputs
    assert [v.shape.as_list() for v in got[0]] == [[None]] * 2
    assert [v.shape.as_list() for v in got[1]] == [[None, 2]] * 2
    assert got[2].shape.as_list() == [flags]


def test_static_number_of_flags():
    traced = tf.function(
        lambda v, i: tuple(
            fe.raw_ops.FusedEmbeddingSparsePreLookUp(
                partition_shapes=[np.array([4, 2])],
                sp_values=v,
                sp_indices=i,
                sp_dense_shape=np.array([7, 5]),
            )
        )
    )
    specs = [tf.TensorSpec([3], tf.int64), tf.TensorSpec([3, 2], tf.int64)]
    assert traced.get_concrete_function(*specs).structured_outputs[2].shape.as_list() == [10]


@pytest.mark.parametrize(
    ("values", "indices"), [([3, 1], [3, 2]), ([3], [4, 2]), ([3], [3, 3]), ([3], [3])]
)
def test_shape_function_rejects(values, indices):
    traced = tf.function(
        lambda v, i: tuple(
            fe.raw_ops.FusedEmbeddingSparsePreLookUp(
                partition_shapes=[np.array([4, 2])],
                sp_values=v,
                sp_indices=i,
                sp_dense_shape=np.array([7, 5]),
            )
        )
    )
    with pytest.raises(ValueError, match=SHAPE_ERROR):
        traced.get_concrete_function(
            tf.TensorSpec(values, tf.int64), tf.TensorSpec(indices, tf.int64)
        )
