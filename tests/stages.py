"""The raw ops of both fusion versions, called with what the oracle says their inputs are."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

import fused_embedding as fe
import oracle.lookup

VERSIONS = ("v1", "v2")
NUM_IDS = 10
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
SHAPE_ERROR = r"[Ss]hape|[Dd]imension"  # what shape functions say of a wrong rank or size


class Batch(NamedTuple):
    """Pairs of one lookup: ids and row ids in any order, and one weight per pair."""

    ids: list[int]
    row_ids: list[int]
    num_rows: int
    weights: list[float]


BATCHES = {
    "no_ids": Batch([], [], 3, []),
    "no_rows": Batch([], [], 0, []),
    "one_pair": Batch([4], [0], 1, [2.0]),
    "all_invalid": Batch([-1, -9], [0, 1], 2, [1.0, 1.0]),
    "first_and_last_row_empty": Batch([7, -1, 3], [1, 1, 2], 4, [0.5, 1.0, 2.0]),
    "duplicates": Batch([5, 5, 4, 5, 4], [0, 0, 0, 1, 1], 2, [1.0, 0.5, 2.0, 3.0, 0.25]),
    "rows_in_any_order": Batch([1, 2, 3, 4, 1], [3, 0, 3, 1, 0], 4, [1.0, 2.0, 0.5, 1.0, 4.0]),
    "zero_and_negative_weights": Batch([1, 2, 3, 0], [0, 0, 1, 2], 4, [0.0, 2.0, -1.0, -0.0]),
    "cancelling_weights": Batch([1, 2, 3], [0, 0, 1], 2, [1.0, -1.0, 1.0]),
}


class Options(NamedTuple):
    """Attributes of a lookup; `max_norm` and `default_id` are off when None."""

    combiner: str = "mean"
    max_norm: float | None = None
    default_id: int | None = None
    num_shards: int = 1
    strategy: str = "div"
    is_weighted: bool = False

    def pairs(self, batch):
        """What prune-and-fill makes of a batch; weights never prune here."""
        return oracle.lookup.prune_and_fill(
            batch.ids,
            oracle.lookup.as_indices(batch.row_ids),
            batch.num_rows,
            batch.weights if self.is_weighted else None,
            default_id=-1 if self.default_id is None else self.default_id,
        )

    def attrs(self):
        """Attributes of both post ops."""
        return {
            "combiner": self.combiner,
            "max_norm": -1.0 if self.max_norm is None else self.max_norm,
            "default_id": -1 if self.default_id is None else self.default_id,
        }


def routed(values, permutation, num_shards):
    """Splits per-id values by shard, in the order in which a shard holds them."""
    return [values[permutation[:, 0] == p] for p in range(num_shards)]


def v1_inputs(batch, options, table):
    """Inputs of FusedEmbeddingSparsePostLookUp; one embedding row per pair."""
    pairs = options.pairs(batch)
    shard_rows = [len(s) for s in shards_of(table, options)]
    values, permutation = oracle.lookup.partition(pairs.ids, shard_rows, options.strategy)
    is_valid = [int(i >= 0) for i in batch.ids]
    weights = pairs.weights.astype(np.float64)
    return {
        "emb_shards": routed(table[pairs.ids], permutation, options.num_shards),
        "partitioned_indices": routed(pairs.indices, permutation, options.num_shards),
        "sp_dense_shape": np.array([batch.num_rows, 9], np.int64),
        "row_empty_and_invalid_flags": np.array([*pairs.is_row_empty, *is_valid], np.int32),
        "partitioned_values": values,
        "partitioned_weights": routed(weights, permutation, options.num_shards)
        if options.is_weighted
        else [],
    }


def v2_inputs(batch, options, table):
    """Inputs of FusedEmbeddingSparsePostLookUpV2; one embedding row per unique id."""
    pairs = options.pairs(batch)
    keys, idx, _ = oracle.lookup.unique_with_counts(pairs.ids)
    shard_rows = [len(s) for s in shards_of(table, options)]
    _, permutation = oracle.lookup.partition(keys, shard_rows, options.strategy)
    inputs = {
        "emb_shards": routed(table[keys], permutation, options.num_shards),
        "partition_permutation": permutation,
        "sp_dense_shape": np.array([batch.num_rows, 9], np.int64),
        "indices_before_unique": pairs.indices,
        "is_row_empty": pairs.is_row_empty,
        "unique_idxs": idx.astype(np.int32),
    }
    return inputs | ({"sp_weights_values": pairs.weights} if options.is_weighted else {})


def shards_of(table, options):
    """The table as tf.nn splits it."""
    return oracle.lookup.split_table(table, options.num_shards, options.strategy)


def with_dtype(inputs, dtype, weight_dtype):
    """Casts embeddings and weights, which were float64."""
    casts = {
        "emb_shards": dtype,
        "sp_weights_values": weight_dtype,
        "partitioned_weights": weight_dtype,
    }

    def cast(name, value):
        if name not in casts:
            return value
        if isinstance(value, list):
            return [tf.cast(v, casts[name]) for v in value]
        return tf.cast(value, casts[name])

    return {name: cast(name, value) for name, value in inputs.items()}


def post_lookup(version, batch, options, table, dtype=tf.float64, weight_dtype=tf.float64):
    """Runs the post op of `version`; returns its inputs and its outputs."""
    if version == "v1":
        inputs = with_dtype(v1_inputs(batch, options, table), dtype, weight_dtype)
        return inputs, fe.raw_ops.FusedEmbeddingSparsePostLookUp(**inputs, **options.attrs())
    inputs = with_dtype(v2_inputs(batch, options, table), dtype, weight_dtype)
    return inputs, fe.raw_ops.FusedEmbeddingSparsePostLookUpV2(**inputs, **v2_attrs(options))


def v2_attrs(options):
    """Attributes that only v2 has are on: rows are filled, and weights used when there are any."""
    return options.attrs() | {"fill_empty_row": True, "use_sparse_weights": options.is_weighted}


def post_lookup_grad(version, inputs, options, feature_nums, top_grad):
    """Runs the gradient op of `version` on the inputs of its post op."""
    inputs = {**inputs, "feature_nums": feature_nums, "top_grad": top_grad}
    del inputs["sp_dense_shape"]
    if version == "v1":
        del inputs["partitioned_values"]
        return fe.raw_ops.FusedEmbeddingSparsePostLookUpGrad(**inputs, **options.attrs())
    return fe.raw_ops.FusedEmbeddingSparsePostLookUpV2Grad(**inputs, **v2_attrs(options))


def want_post_lookup(batch, options, table, weight_dtype=tf.float64):
    """What both versions must return for the combined rows, in float64."""
    pairs = options.pairs(batch)
    weights = tf.cast(pairs.weights, weight_dtype).numpy().astype(np.float64)
    rows, row_ids = table[pairs.ids], pairs.indices[:, 0]
    args = (rows, row_ids, batch.num_rows, options.combiner, weights, options.max_norm)
    combined = oracle.lookup.post_lookup(*args)
    is_zero = oracle.lookup.is_zero_row(pairs, options.default_id)
    return np.where(is_zero, 0.0, combined.rows), combined.feature_nums * ~is_zero[:, 0]


def want_pair_grads(batch, options, table, top_grad, weight_dtype=tf.float64):
    """Gradient row of each pair of `options.pairs(batch)`, in float64."""
    pairs = options.pairs(batch)
    weights = tf.cast(pairs.weights, weight_dtype).numpy().astype(np.float64)
    is_zero = oracle.lookup.is_zero_row(pairs, options.default_id)
    top_grad = np.where(is_zero, 0.0, np.asarray(top_grad).astype(np.float64))
    args = (table[pairs.ids], pairs.indices[:, 0], options.combiner, weights, options.max_norm)
    return oracle.lookup.post_lookup_grad(top_grad, *args)


def want_shard_grads(version, batch, options, table, top_grad, weight_dtype=tf.float64):
    """What the gradient op of `version` must return: a row per pair in v1, per unique id in v2."""
    grads = want_pair_grads(batch, options, table, top_grad, weight_dtype)
    ids = options.pairs(batch).ids
    if version == "v2":
        ids, idx, _ = oracle.lookup.unique_with_counts(ids)
        grads = oracle.lookup.merge(grads, idx, len(ids))
    shard_rows = [len(s) for s in shards_of(table, options)]
    _, permutation = oracle.lookup.partition(ids, shard_rows, options.strategy)
    return routed(grads, permutation, options.num_shards)


def make_table(dim=3, dtype=tf.float64, seed=0):
    """`[NUM_IDS, dim]` float64 rows that `dtype` represents exactly."""
    rows = np.random.default_rng(seed).standard_normal((NUM_IDS, dim))
    return tf.cast(rows, dtype).numpy().astype(np.float64)
