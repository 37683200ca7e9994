import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import fused_embedding as fe
import oracle.lookup
from stages import INT64_MAX, INT64_MIN, SHAPE_ERROR

pytestmark = pytest.mark.usefixtures("device")

SHARD_ROWS = {"even": [4, 4], "uneven": [6, 3, 7], "empty_shards": [0, 5, 0, 4, 0], "one": [9]}


def run(ids, shard_rows, strategy="div", **attrs):
    return fe.raw_ops.PartitionWithPermutation(
        input=np.asarray(ids, np.int64),
        partition_shapes=[np.array([rows, 4], np.int64) for rows in shard_rows],
        partition_strategy=strategy,
        **attrs,
    )


def assert_is_the_partition(ids, shard_rows, strategy):
    """Complete: equal to the oracle, a permutation, each id in its shard, nothing lost."""
    got = run(ids, shard_rows, strategy)
    want = oracle.lookup.partition(ids, shard_rows, strategy)
    values = [v.numpy() for v in got.partitioned_values]
    permutation = got.partition_permutation.numpy()
    for g, w in zip(values, want.values, strict=True):
        np.testing.assert_array_equal(g, w)
    np.testing.assert_array_equal(permutation, want.permutation)
    assert sum(map(len, values)) == len(ids)
    assert len({tuple(p) for p in permutation}) == len(ids)
    for key, (shard, position) in zip(ids, permutation, strict=True):
        assert (shard, values[shard][position]) == oracle.lookup.shard_of(key, shard_rows, strategy)


def legal_ids(shard_rows, strategy):
    """Ids that have a shard."""
    if strategy in ("mod_ev", "hash"):
        return [5, 1003, 0, -1, 2004, -1001, INT64_MAX, INT64_MIN, 5, 17833]
    ids = [
        key
        for key in range(sum(shard_rows) * 3)
        if oracle.lookup.shard_of(key, shard_rows, strategy)
    ]
    return ids[::-1] + ids


@pytest.mark.parametrize("strategy", oracle.lookup.STRATEGIES)
@pytest.mark.parametrize("shard_rows", SHARD_ROWS.values(), ids=SHARD_ROWS.keys())
def test_is_the_partition(shard_rows, strategy):
    assert_is_the_partition(legal_ids(shard_rows, strategy), shard_rows, strategy)


@pytest.mark.parametrize("strategy", oracle.lookup.STRATEGIES)
@pytest.mark.parametrize("shard_rows", [[4, 4], [0, 0], [5]])
def test_no_ids(shard_rows, strategy):
    assert_is_the_partition([], shard_rows, strategy)


@hypothesis.given(data=st.data(), strategy=st.sampled_from(oracle.lookup.STRATEGIES))
def test_is_the_partition_of_random_input(data, strategy):
    shard_rows = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=6))
    legal = legal_ids(shard_rows, strategy)
    ids = data.draw(st.lists(st.sampled_from(legal), max_size=30)) if legal else []
    if strategy in ("mod_ev", "hash"):
        ids += data.draw(st.lists(st.integers(INT64_MIN, INT64_MAX), max_size=30))
    assert_is_the_partition(ids, shard_rows, strategy)


@pytest.mark.parametrize("strategy", oracle.lookup.STRATEGIES)
def test_more_ids_than_deeprec_could(strategy):
    ids = np.random.default_rng(0).permutation(100_000)
    got = run(ids, [50_000, 50_000], strategy)
    values = [v.numpy() for v in got.partitioned_values]
    shard, position = got.partition_permutation.numpy().T
    for p in (0, 1):
        np.testing.assert_array_equal(position[shard == p], np.arange(len(values[p])))
    local = np.where(shard == 0, ids, ids - 50_000) if strategy == "div" else ids
    local = ids // 2 if strategy == "mod" else local
    np.testing.assert_array_equal(
        [values[p][o] for p, o in zip(shard, position, strict=True)], local
    )


def test_largest_id_with_the_largest_shards():
    half = 2**62
    assert_is_the_partition([INT64_MAX - 1, half - 1, half, 0], [half, half - 1], "div")


@pytest.mark.parametrize(
    ("ids", "shard_rows", "strategy", "message"),
    [
        ([3, -1], [4, 4], "div", "id -1 at position 1"),
        ([8], [4, 4], "div", r"id 8 at position 0 is outside \[0, 8\)"),
        ([INT64_MAX], [4, 4], "div", "id 9223372036854775807 at position 0"),
        ([0], [0, 0], "div", "id 0 at position 0"),
        ([-1], [4, 4], "mod", "id -1 at position 0"),
        ([0, 8], [4, 4], "mod", "id 8 at position 1"),
        ([INT64_MIN], [4, 4], "mod", "id -9223372036854775808 at position 0"),
        ([0], [4, -1], "div", r"partition_shapes\[1\]"),
        ([0], [INT64_MAX, 1], "div", r"partition_shapes\[1\]"),
    ],
)
def test_rejects(ids, shard_rows, strategy, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(ids, shard_rows, strategy)


@pytest.mark.parametrize("ids", [3, [[1, 2]]])
def test_rejects_other_ranks_of_ids(ids):
    with pytest.raises(tf.errors.InvalidArgumentError, match="input"):
        run(ids, [4, 4])


@pytest.mark.parametrize("shape", [[], [[4, 4]], 4])
def test_rejects_malformed_partition_shapes(shape):
    with pytest.raises(tf.errors.InvalidArgumentError, match="partition_shapes"):
        fe.raw_ops.PartitionWithPermutation(
            input=np.array([1]), partition_shapes=[[4, 4], np.array(shape, np.int64)]
        )


def test_rejects_partition_axis_other_than_0():
    with pytest.raises(
        (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError), match="partition_axis"
    ):
        run([1], [4, 4], partition_axis=1)


def test_rejects_unknown_strategy():
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match="partition_strategy"):
        run([1], [4, 4], strategy="random")


@pytest.mark.parametrize(
    ("ids", "permutation"), [([None], [None, 2]), ([3], [3, 2]), (None, [None, 2])]
)
def test_shapes(ids, permutation):
    traced = tf.function(
        lambda ids: fe.raw_ops.PartitionWithPermutation(
            input=ids, partition_shapes=[np.array([4, 2], np.int64)] * 3
        )
    )
    got = traced.get_concrete_function(tf.TensorSpec(ids, tf.int64)).structured_outputs
    assert [v.shape.as_list() for v in got[0]] == [[None]] * 3
    assert got[1].shape.as_list() == permutation


@pytest.mark.parametrize("shape", [[], [2, 2]])
def test_shape_function_rejects_other_ranks(shape):
    traced = tf.function(
        lambda ids: fe.raw_ops.PartitionWithPermutation(
            input=ids, partition_shapes=[np.array([4, 2], np.int64)] * 2
        )
    )
    with pytest.raises(ValueError, match=SHAPE_ERROR):
        traced.get_concrete_function(tf.TensorSpec(shape, tf.int64))
