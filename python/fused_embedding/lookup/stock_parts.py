"""Parts of lookups by stock TensorFlow's ops: pruning, filling, partitioning, combining.

Exports for serving are made of them (serving/stock_ops.py), and lookups that FE_DISABLE turns off
(stock_lookup.py).
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from fused_embedding.ops.mix64 import mix64

_DEEPREC_BUCKETS = 1000  # of the strategy mod_ev


class Pairs(NamedTuple):
    """Ids of a batch.

    Attributes:
        ids: `[m]` int64.
        row_ids: `[m]` int64 row of each, in any order.
        weights: `[m]`; None: all 1.
    """

    ids: tf.Tensor
    row_ids: tf.Tensor
    weights: tf.Tensor | None

    def where(self, keep: tf.Tensor) -> "Pairs":
        """Those of which `keep` `[m]` is true."""
        kept = tf.where(keep)[:, 0]
        return Pairs(*(None if part is None else tf.gather(part, kept) for part in self))

    def is_row_empty(self, num_rows: tf.Tensor) -> tf.Tensor:
        """`[num_rows]`: whether a row has no pair."""
        ones = tf.ones_like(self.row_ids)
        return tf.equal(tf.math.unsorted_segment_sum(ones, self.row_ids, num_rows), 0)

    def filled(self, is_row_empty: tf.Tensor, default_id: int, weight: float = 1.0) -> "Pairs":
        """With a pair for each empty row, which come last."""
        rows = tf.where(is_row_empty)[:, 0]
        weights = self.weights
        if weights is not None:
            new = tf.fill(tf.shape(rows), tf.constant(weight, weights.dtype))
            weights = tf.concat([weights, new], axis=0)
        ids = tf.fill(tf.shape(rows), tf.constant(max(default_id, 0), tf.int64))
        return Pairs(
            tf.concat([self.ids, ids], axis=0), tf.concat([self.row_ids, rows], axis=0), weights
        )


def is_valid(pairs: Pairs, looks_at_weights: bool) -> tf.Tensor:
    """`[m]`: whether pruning keeps a pair: its id is >= 0, and its weight > 0 if that counts."""
    keep = pairs.ids >= 0
    if looks_at_weights and pairs.weights is not None:
        keep &= pairs.weights > 0
    return keep


class Combining(NamedTuple):
    """How embeddings become one a row: attrs of the ops."""

    combiner: str
    max_norm: float

    def __call__(
        self,
        embeddings: tf.Tensor,
        positions: tf.Tensor | None,
        row_ids: tf.Tensor,
        weights: tf.Tensor | None,
        num_rows: tf.Tensor,
    ) -> tf.Tensor:
        """Combines.

        Args:
            embeddings: `[u, dim]`.
            positions: `[m]` row of `embeddings` of each pair; None: its own place.
            row_ids: `[m]` int64 row of the result of each pair.
            weights: `[m]`; None: all 1.
            num_rows: Scalar.

        Returns:
            `[num_rows, dim]`; rows without pairs are zero.
        """
        dtype = embeddings.dtype
        compute = tf.float64 if dtype == tf.float64 else tf.float32
        rows = self._clipped(tf.cast(embeddings, compute))
        if positions is not None:
            rows = tf.gather(rows, positions)
        if weights is None:
            weights = tf.ones(tf.shape(row_ids), compute)
        else:
            weights = tf.cast(weights, compute)
            rows *= weights[:, None]
        total = tf.math.unsorted_segment_sum(rows, row_ids, num_rows)
        if self.combiner != "sum":
            is_mean = self.combiner == "mean"
            terms = weights if is_mean else weights * weights
            norm = tf.math.unsorted_segment_sum(terms, row_ids, num_rows)
            norm = norm if is_mean else tf.sqrt(norm)
            total = tf.math.divide_no_nan(total, norm[:, None])
        return tf.cast(total, dtype)

    def _clipped(self, rows: tf.Tensor) -> tf.Tensor:
        if self.max_norm < 0:
            return rows
        limit = tf.constant(self.max_norm, rows.dtype)
        squares = tf.reduce_sum(rows * rows, axis=1, keepdims=True)
        # As in tf.clip_by_norm: the root of 0, whose gradient is not finite, is not taken, and a
        # row whose norm is the limit has the gradient of a longer one.
        is_zero = squares <= 0
        root = tf.sqrt(tf.where(is_zero, tf.ones_like(squares), squares))
        norm = tf.where(is_zero, tf.zeros_like(root), root)
        return rows * (limit / tf.maximum(norm, limit))


def flat_rows(rows: tf.Tensor) -> tf.Tensor:
    """`[n, ...]` as `[n, dim]`, also without rows."""
    if rows.shape.rank == 2:
        return rows
    shape = tf.shape(rows)
    return tf.reshape(rows, tf.stack([shape[0], tf.reduce_prod(shape[1:])]))


class Partition(NamedTuple):
    """Ids by shard: for each its `positions` `[n_p]` in what was given, and its `ids` `[n_p]`."""

    positions: list[tf.Tensor]
    ids: list[tf.Tensor]


def partitioned(ids: tf.Tensor, shapes: Sequence[tf.Tensor], strategy: str) -> Partition:
    """Sends ids to shards. One that no shard holds is an InvalidArgument of DynamicPartition."""
    count = len(shapes)
    local = ids
    if strategy == "div":
        ends = tf.cumsum(tf.stack([shape[0] for shape in shapes]))
        # Not searchsorted, whose form in ONNX fails where there are no ids.
        shard = tf.reduce_sum(tf.cast(ids[:, None] >= ends, tf.int32), axis=1)
        shard = tf.where(ids < 0, -1, shard)
        starts = tf.concat([[0], ends], axis=0)
        local = ids - tf.gather(starts, tf.maximum(shard, 0))
    elif strategy == "hash" and count == 1:
        shard = tf.zeros_like(ids)
    elif strategy == "hash":
        hashes = mix64(tf.bitcast(ids, tf.uint64))
        shard = tf.math.floormod(hashes, tf.constant(count, tf.uint64))
    elif strategy == "mod_ev":
        shard = tf.math.floormod(tf.math.floormod(ids, _DEEPREC_BUCKETS), count)
    else:
        shard, local = tf.math.floormod(ids, count), ids // count
    shard = tf.cast(shard, tf.int32)
    places = tf.range(tf.size(ids))
    return Partition(
        tf.dynamic_partition(places, shard, count), tf.dynamic_partition(local, shard, count)
    )
