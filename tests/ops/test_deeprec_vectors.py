"""DeepRec's own op tests: every vector, and where this library differs from one on purpose.

| vector                             | DeepRec                     | here, and why                 |
|------------------------------------|-----------------------------|-------------------------------|
| v1pre_Partition3_Int64             | div cuts 16 rows evenly     | real shard sizes: rows exist  |
| v1post_Partition3_Sqrtn_MaxNorm200 | CPU ignores max_norm        | clips, as TensorFlow and v2   |
| v1post_Partition2_Sum_Default0     | default_id 0 zeroes a row   | a negative one does, as in v2 |
| v1post_Partition2_Sum_Default0     | a zeroed row counts 1       | counts 0, as in v2            |
| v1grad_Partition2_Sum_NoDefault    | default_id -1 keeps its row | a default id >= 0 does        |
| v2pf_NothingHappend                | is_row_empty unset          | always set                    |

Differences that no vector shows: a weighted mean divides by sum(w) and a weighted sqrtn by
sqrt(sum(w^2)), not by the count; the sqrtn gradient is that of sqrtn, not of sum; the max_norm
gradient has its projection term; more than 32,768 ids partition; ids without a shard are errors;
weights have a gradient and are kept when rows are only filled; there are no raw addresses.
"""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe

FILE = pathlib.Path(__file__).parents[3] / "shared/reference/deeprec_vectors.json"
VECTORS = json.loads(FILE.read_text()) if FILE.exists() else {}
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}  # DeepRec's own

pytestmark = pytest.mark.skipif(
    not VECTORS, reason="needs shared/reference/deeprec_vectors.json beside the repository"
)


def names(op):
    """Names of the vectors of one op; one placeholder keeps a skip visible without the file."""
    return [n for n, v in VECTORS.items() if v["op"] == op] or ["(no vectors)"]


def long(values):
    return np.array(values, np.int64)


def shapes(vector):
    return [long([rows, 4]) for rows in vector["partition_rows"]]


def emb_shards(vector):
    return [np.array(shard, np.float32) for shard in vector["emb_shards"]]


def v1_flags(vector):
    num_pairs = sum(map(len, vector["partitioned_indices"]))
    return np.array([*vector["row_empty"], *[1] * num_pairs], np.int32)


def v2_inputs(vector):
    permutation = vector["partition_permutation"]
    num_unique = sum(map(len, vector["emb_shards"]))
    if permutation is None:  # DeepRec's dummy for one shard; here the identity
        permutation = [[0, u] for u in range(num_unique)]
    weights = {}
    if vector["use_sparse_weights"]:
        weights = {"sp_weights_values": np.array(vector["sp_weights"], np.float32)}
    return weights | {
        "emb_shards": emb_shards(vector),
        "partition_permutation": np.array(permutation, np.int32),
        "indices_before_unique": long(vector["indices_before_unique"]),
        "is_row_empty": np.array(vector["is_row_empty"], bool),
        "unique_idxs": np.array(vector["unique_idxs"], np.int32),
        "combiner": vector["combiner"],
        "max_norm": vector["max_norm"],
        "default_id": vector["default_id"],
        "fill_empty_row": bool(vector["fill_empty_row"]),
        "use_sparse_weights": bool(vector["use_sparse_weights"]),
    }


@pytest.mark.parametrize("name", names("FusedEmbeddingSparsePreLookUp"))
def test_pre_lookup(name):
    vector = VECTORS[name]
    got = fe.raw_ops.FusedEmbeddingSparsePreLookUp(
        partition_shapes=shapes(vector),
        sp_values=long(vector["sp_values"]),
        sp_indices=long(vector["sp_indices"]),
        sp_dense_shape=long(vector["dense_shape"]),
        fill_empty_row=bool(vector["fill_empty_row"]),
        prune_invalid_id=bool(vector["prune_invalid_id"]),
        default_id=vector["default_id"],
        partition_strategy=vector["strategy"],
    )
    want = vector["expect_values"]
    if name == "v1pre_Partition3_Int64":
        assert want[2] == [1, 3, 4, 0]  # as if each shard held 16 // 3 rows or one more
        want = [*want[:2], [3, 5, 6, 2]]  # its v2 and GPU rule: shard 2 starts at id 9
    for p, values in enumerate(want):
        np.testing.assert_array_equal(got.partitioned_values[p], values)
        np.testing.assert_array_equal(got.partitioned_indices[p], vector["expect_indices"][p])


@pytest.mark.parametrize("name", names("FusedEmbeddingSparsePostLookUp"))
def test_v1_post_lookup(name):
    vector = VECTORS[name]
    default_id = vector["default_id"]
    if name == "v1post_Partition2_Sum_Default0":
        assert default_id == 0
        default_id = -1  # what zeroes a row here
    inputs = {
        "emb_shards": emb_shards(vector),
        "partitioned_indices": [long(i) for i in vector["partitioned_indices"]],
        "sp_dense_shape": long([vector["batch"], 8]),
        "row_empty_and_invalid_flags": v1_flags(vector),
        "partitioned_values": [long([0] * len(i)) for i in vector["partitioned_indices"]],
        "combiner": vector["combiner"],
        "max_norm": vector["max_norm"],
    }
    got = fe.raw_ops.FusedEmbeddingSparsePostLookUp(**inputs, default_id=default_id)
    np.testing.assert_allclose(np.ravel(got.emb_vectors), vector["expect"], **TOLERANCE)
    want_counts = vector["expect_feature_nums"]
    if name == "v1post_Partition2_Sum_Default0":
        assert want_counts == [2, 1, 1]
        want_counts = [2, 1, 0]
    np.testing.assert_array_equal(got.feature_nums, want_counts)
    if name == "v1post_Partition2_Sum_Default0":
        got = fe.raw_ops.FusedEmbeddingSparsePostLookUp(**inputs, default_id=0)
        np.testing.assert_array_equal(got.emb_vectors[2], [13.0] * 4)  # the default id's embedding


@pytest.mark.parametrize("name", names("FusedEmbeddingSparsePostLookUpGrad"))
def test_v1_post_lookup_grad(name):
    vector = VECTORS[name]
    inputs = {
        "top_grad": np.array(vector["top_grad"], np.float32),
        "emb_shards": emb_shards(vector),
        "partitioned_indices": [long(i) for i in vector["partitioned_indices"]],
        "feature_nums": np.array(vector["feature_nums"], np.int32),
        "row_empty_and_invalid_flags": v1_flags(vector),
        "combiner": vector["combiner"],
        "max_norm": vector["max_norm"],
    }
    # DeepRec's default_id -1 keeps the gradient of a filled row; here a default id >= 0 does.
    got = fe.raw_ops.FusedEmbeddingSparsePostLookUpGrad(**inputs, default_id=0)
    for shard, want in zip(got, vector["expect"], strict=True):
        np.testing.assert_allclose(np.ravel(shard), want, **TOLERANCE)
    got = fe.raw_ops.FusedEmbeddingSparsePostLookUpGrad(**inputs, default_id=-1)
    np.testing.assert_allclose(np.ravel(got[1]), [2.0] * 4 + [0.0] * 4, **TOLERANCE)


@pytest.mark.parametrize("name", names("PruneInvalidAndFillEmptyRows"))
def test_prune_and_fill(name):
    vector = VECTORS[name]
    weights = {}
    if vector["use_sparse_weights"]:
        weights = {"sp_weights_values": np.array(vector["sp_weights"], np.float32)}
    got = fe.raw_ops.PruneInvalidAndFillEmptyRows(
        sp_values=long(vector["sp_values"]),
        sp_indices=long(vector["sp_indices"]),
        sp_dense_shape=long(vector["dense_shape"]),
        fill_empty_row=bool(vector["fill_empty_row"]),
        prune=bool(vector["prune_invalid"]),
        default_id=vector["default_id"],
        use_sparse_weights=bool(vector["use_sparse_weights"]),
        prune_sparse_weights=bool(vector["prune_sparse_weights"]),
        default_weight=vector["default_weight"],
        **weights,
    )
    np.testing.assert_array_equal(got.sp_values_out, vector["expect_values"])
    np.testing.assert_array_equal(got.sp_indices_out, vector["expect_indices"])
    if weights:
        np.testing.assert_array_equal(got.sp_weights_values_out, vector["expect_weights"])
    want_empty = vector["expect_is_row_empty"]
    if want_empty is None:
        occupied = {row for row, _ in vector["sp_indices"]}
        want_empty = [row not in occupied for row in range(vector["dense_shape"][0])]
    np.testing.assert_array_equal(got.is_row_empty, np.array(want_empty, bool))


@pytest.mark.parametrize("name", names("PartitionWithPermutation"))
def test_partition(name):
    vector = VECTORS[name]
    got = fe.raw_ops.PartitionWithPermutation(
        input=long(vector["input"]),
        partition_shapes=shapes(vector),
        partition_strategy=vector["strategy"],
    )
    for values, want in zip(got.partitioned_values, vector["expect_values"], strict=True):
        np.testing.assert_array_equal(values, want)
    np.testing.assert_array_equal(got.partition_permutation, vector["expect_permutation"])


@pytest.mark.parametrize("name", names("FusedEmbeddingSparsePostLookUpV2"))
def test_v2_post_lookup(name):
    vector = VECTORS[name]
    got = fe.raw_ops.FusedEmbeddingSparsePostLookUpV2(
        **v2_inputs(vector), sp_dense_shape=long([vector["batch"], 8])
    )
    np.testing.assert_allclose(np.ravel(got.emb_vectors), vector["expect"], **TOLERANCE)
    np.testing.assert_array_equal(got.feature_nums, vector["expect_feature_nums"])


@pytest.mark.parametrize("name", names("FusedEmbeddingSparsePostLookUpV2Grad"))
def test_v2_post_lookup_grad(name):
    vector = VECTORS[name]
    got = fe.raw_ops.FusedEmbeddingSparsePostLookUpV2Grad(
        **v2_inputs(vector),
        top_grad=np.array(vector["top_grad"], np.float32),
        feature_nums=np.array(vector["feature_nums"], np.int32),
    )
    got = [got] if isinstance(got, tf.Tensor) else got
    for shard, want in zip(got, vector["expect"], strict=True):
        np.testing.assert_allclose(np.ravel(shard), np.ravel(want), **TOLERANCE)


def test_every_vector_is_run():
    ops = {
        "FusedEmbeddingSparsePreLookUp",
        "FusedEmbeddingSparsePostLookUp",
        "FusedEmbeddingSparsePostLookUpGrad",
        "PruneInvalidAndFillEmptyRows",
        "PartitionWithPermutation",
        "FusedEmbeddingSparsePostLookUpV2",
        "FusedEmbeddingSparsePostLookUpV2Grad",
    }
    assert {vector["op"] for vector in VECTORS.values()} == ops
