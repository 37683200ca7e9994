"""Reference results of the lookup in plain numpy: obvious, slow, ignorant of the implementation.

Arithmetic is float64 on the upcast inputs; a test rounds once to the dtype it checks. Each pair
is one id of one row; `indices` is `[nnz, 2]` and only its first column, the row, has a meaning.
"""

import collections
from typing import NamedTuple

import numpy as np

MASK64 = 2**64 - 1
STRATEGIES = ("div", "mod", "mod_ev", "hash")
COMBINERS = ("sum", "mean", "sqrtn")


class Pairs(NamedTuple):
    """Pairs after pruning and filling, and the rows that had none."""

    ids: np.ndarray
    indices: np.ndarray
    weights: np.ndarray
    is_row_empty: np.ndarray


class Partition(NamedTuple):
    """Ids of each shard, and where each input id went."""

    values: list[np.ndarray]
    permutation: np.ndarray


class Combined(NamedTuple):
    """One embedding per row, and the number of pairs that went into it."""

    rows: np.ndarray
    feature_nums: np.ndarray


class Gradient(NamedTuple):
    """Gradient of a lookup: one row per unique id, one number per input weight."""

    ids: np.ndarray
    rows: np.ndarray
    weights: np.ndarray


def as_indices(row_ids):
    """Makes `[nnz, 2]` indices whose column is the position within the row."""
    lengths: collections.Counter[int] = collections.Counter()
    indices = []
    for row in row_ids:
        indices.append((row, lengths[row]))
        lengths[row] += 1
    return np.array(indices, np.int64).reshape(-1, 2)


def kept_positions(ids, weights, prune, prune_weights):
    """Positions that pruning keeps: valid id and, if asked for, a weight above zero (not NaN)."""
    return [
        k
        for k, i in enumerate(ids)
        if not prune or (i >= 0 and not (prune_weights and not weights[k] > 0))
    ]


def prune_and_fill(
    ids,
    indices,
    num_rows,
    weights=None,
    *,
    prune=True,
    fill=True,
    prune_weights=False,
    default_id=-1,
    default_weight=1.0,
):
    """Drops invalid pairs, then appends a default pair for each empty row, in ascending order."""
    weights = np.ones(len(ids)) if weights is None else np.asarray(weights)
    kept = kept_positions(ids, weights, prune, prune_weights)
    occupied = {int(indices[k][0]) for k in kept}
    is_empty = [row not in occupied for row in range(num_rows)]
    pairs = [(int(ids[k]), list(indices[k]), float(weights[k])) for k in kept]
    if fill:
        default = max(default_id, 0)
        pairs += [(default, [row, 0], default_weight) for row in np.flatnonzero(is_empty)]
    return Pairs(
        np.array([pair[0] for pair in pairs], np.int64),
        np.array([pair[1] for pair in pairs], np.int64).reshape(-1, 2),
        np.array([pair[2] for pair in pairs], np.float64),
        np.array(is_empty, bool),
    )


def unique_with_counts(ids):
    """Unique ids in the order of their first occurrence, the position of each id, and counts."""
    position = {}
    idx = [position.setdefault(int(i), len(position)) for i in ids]
    counts = [idx.count(u) for u in range(len(position))]
    return np.array(list(position), np.int64), np.array(idx, np.int64), np.array(counts, np.int64)


def mix64(key):
    """The 64-bit finaliser of MurmurHash3, on the two's complement of the key."""
    key = int(key) & MASK64
    key = ((key ^ (key >> 33)) * 0xFF51AFD7ED558CCD) & MASK64
    key = ((key ^ (key >> 33)) * 0xC4CEB9FE1A85EC53) & MASK64
    return key ^ (key >> 33)


def shard_of(key, shard_rows, strategy):
    """Shard of an id and the id that the shard knows it by; None where no shard has it."""
    num_shards = len(shard_rows)
    if strategy == "hash":
        return mix64(key) % num_shards, key
    if strategy == "mod_ev":
        return key % 1000 % num_shards, key
    if key < 0:
        return None
    if strategy == "mod":
        shard, local = key % num_shards, key // num_shards
        return (shard, local) if local < shard_rows[shard] else None
    for shard, size in enumerate(shard_rows):
        if key < size:
            return shard, key
        key -= size
    return None


def partition(ids, shard_rows, strategy):
    """Sends each id to its shard; within a shard the input order is kept."""
    values = [[] for _ in shard_rows]
    permutation = []
    for key in ids:
        shard, local = shard_of(int(key), shard_rows, strategy)
        permutation.append((shard, len(values[shard])))
        values[shard].append(local)
    return Partition(
        [np.array(v, np.int64) for v in values], np.array(permutation, np.int32).reshape(-1, 2)
    )


def split_table(table, num_shards, strategy):
    """Splits a table the way tf.nn.embedding_lookup expects its shards."""
    if strategy == "mod":
        return [table[shard::num_shards] for shard in range(num_shards)]
    return np.array_split(table, num_shards)


def clip(row, max_norm):
    """Scales a row down to `max_norm` where it is longer."""
    norm = np.linalg.norm(row)
    return row * (max_norm / norm) if max_norm is not None and norm > max_norm else row


def clip_grad(row, grad, max_norm):
    """Derivative of `clip`. At the tie the norm counts as too long, as in TensorFlow."""
    norm = np.linalg.norm(row)
    if max_norm is None or norm < max_norm:
        return grad
    return (max_norm / norm) * (grad - row * (row @ grad) / norm**2)


def pairs_of_row(row_ids, row):
    """Positions of the pairs of one row."""
    return [k for k, r in enumerate(row_ids) if r == row]


def denominator(weights, combiner):
    """What the weighted sum of a row is divided by; 0 means that the result is 0."""
    if combiner == "sum":
        return 1.0
    return float(np.sum(weights) if combiner == "mean" else np.sqrt(np.sum(np.square(weights))))


def divide(value, by):
    """Division in which anything over zero is zero."""
    return value / by if by != 0 else np.zeros_like(value)


def post_lookup(rows, row_ids, num_rows, combiner, weights=None, max_norm=None):
    """Combines the embedding of each pair, `rows[k]`, into its row `row_ids[k]`."""
    rows = np.asarray(rows, np.float64)
    weights = np.ones(len(rows)) if weights is None else np.asarray(weights, np.float64)
    combined = np.zeros((num_rows, rows.shape[1]))
    feature_nums = np.zeros(num_rows, np.int32)
    for r in range(num_rows):
        mine = pairs_of_row(row_ids, r)
        total = sum((weights[k] * clip(rows[k], max_norm) for k in mine), np.zeros(rows.shape[1]))
        combined[r] = divide(total, denominator(weights[mine], combiner))
        feature_nums[r] = len(mine)
    return Combined(combined, feature_nums)


def post_lookup_grad(top_grad, rows, row_ids, combiner, weights=None, max_norm=None):
    """Derivative of `post_lookup` with respect to `rows`: one row per pair."""
    rows, top_grad = np.asarray(rows, np.float64), np.asarray(top_grad, np.float64)
    weights = np.ones(len(rows)) if weights is None else np.asarray(weights, np.float64)
    grads = np.zeros_like(rows)
    for k, r in enumerate(row_ids):
        by = denominator(weights[pairs_of_row(row_ids, r)], combiner)
        grads[k] = clip_grad(rows[k], divide(weights[k] * top_grad[r], by), max_norm)
    return grads


def post_lookup_weights_grad(top_grad, rows, row_ids, combiner, weights, max_norm=None):
    """Derivative of `post_lookup` with respect to `weights`: one number per pair."""
    rows, top_grad = np.asarray(rows, np.float64), np.asarray(top_grad, np.float64)
    weights = np.asarray(weights, np.float64)
    dots = [top_grad[r] @ clip(rows[k], max_norm) for k, r in enumerate(row_ids)]
    grads = np.zeros(len(rows))
    for k, r in enumerate(row_ids):
        mine = pairs_of_row(row_ids, r)
        by = denominator(weights[mine], combiner)
        total = sum(weights[j] * dots[j] for j in mine)
        grads[k] = divide(dots[k], by)
        if combiner == "mean":
            grads[k] -= divide(total, by**2)
        elif combiner == "sqrtn":
            grads[k] -= divide(total * weights[k], by**3)
    return grads


def merge(grads, unique_idx, num_unique):
    """Sums the gradient rows of the pairs that share an id."""
    merged = np.zeros((num_unique, *np.shape(grads)[1:]))
    for grad, u in zip(grads, unique_idx, strict=True):
        merged[u] += grad
    return merged


def pre_lookup(ids, indices, num_rows, shard_rows, *, prune, fill, default_id=-1, strategy="div"):
    """First op of v1: prune, fill and partition; 1 marks an empty row and a valid pair."""
    pairs = prune_and_fill(ids, indices, num_rows, prune=prune, fill=fill, default_id=default_id)
    values, permutation = partition(pairs.ids, shard_rows, strategy)
    sent = [
        pairs.indices[[k for k, (shard, _) in enumerate(permutation) if shard == p]]
        for p in range(len(shard_rows))
    ]
    is_valid = [int(i >= 0) for i in ids]
    return values, sent, np.array([*pairs.is_row_empty.astype(int), *is_valid], np.int32)


def safe_lookup(
    table, ids, row_ids, num_rows, weights=None, combiner="mean", default_id=None, max_norm=None
):
    """tf.nn.safe_embedding_lookup_sparse; a negative `default_id` means None."""
    pairs = prune_and_fill_for(ids, row_ids, num_rows, weights, combiner, default_id)
    rows, row_ids = np.asarray(table, np.float64)[pairs.ids], pairs.indices[:, 0]
    combined = post_lookup(rows, row_ids, num_rows, combiner, pairs.weights, max_norm).rows
    return np.where(is_zero_row(pairs, default_id), 0.0, combined)


def safe_lookup_grad(
    top_grad,
    table,
    ids,
    row_ids,
    num_rows,
    weights=None,
    combiner="mean",
    default_id=None,
    max_norm=None,
):
    """Gradient of `safe_lookup`: unique ids, their summed rows, and the weights' gradient."""
    pairs = prune_and_fill_for(ids, row_ids, num_rows, weights, combiner, default_id)
    rows = np.asarray(table, np.float64)[pairs.ids]
    top_grad = np.where(is_zero_row(pairs, default_id), 0.0, np.asarray(top_grad, np.float64))
    args = (top_grad, rows, pairs.indices[:, 0], combiner, pairs.weights, max_norm)
    keys, idx, _ = unique_with_counts(pairs.ids)
    kept = kept_positions(ids, weights, True, weights is not None and combiner != "sum")
    weight_grads = np.zeros(len(ids))
    weight_grads[kept] = post_lookup_weights_grad(*args)[: len(kept)]
    return Gradient(keys, merge(post_lookup_grad(*args), idx, len(keys)), weight_grads)


def embedding_lookup_sparse(table, ids, row_ids, weights=None, combiner="mean", max_norm=None):
    """tf.nn.embedding_lookup_sparse: no pruning, no filling, the last row is the last used one."""
    num_rows = max(row_ids) + 1 if len(row_ids) else 0
    rows = np.asarray(table, np.float64)[np.asarray(ids, np.int64)]
    return post_lookup(rows, row_ids, num_rows, combiner, weights, max_norm).rows


def prune_and_fill_for(ids, row_ids, num_rows, weights, combiner, default_id):
    """The first step of the safe lookup: weights count for pruning unless they are summed."""
    return prune_and_fill(
        ids,
        as_indices(row_ids),
        num_rows,
        weights,
        prune_weights=weights is not None and combiner != "sum",
        default_id=-1 if default_id is None else default_id,
    )


def is_zero_row(pairs, default_id):
    """`[num_rows, 1]`: whether a row is zero for want of a default id."""
    return (pairs.is_row_empty & (default_id is None or default_id < 0))[:, None]
