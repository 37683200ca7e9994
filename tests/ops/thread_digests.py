"""Prints a digest of every op's result on a large batch: `python thread_digests.py NUM_THREADS`."""

import hashlib
import json
import sys

import numpy as np
import tensorflow as tf

NUM_PAIRS, NUM_ROWS, NUM_IDS, DIM = 200_000, 20_000, 30_000, 16


def digest(tensors):
    """One digest of all bytes of an op's outputs."""
    arrays = [np.asarray(t) for t in tf.nest.flatten(tensors)]
    return hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()


def results(fe):
    """Name and outputs of each op, on inputs that are large enough to be shared out."""
    ops, rng = fe.raw_ops, np.random.default_rng(0)
    table = rng.standard_normal((NUM_IDS, DIM)).astype(np.float32)
    ids = (NUM_IDS * rng.random(NUM_PAIRS) ** 3).astype(np.int64)
    ids[rng.random(NUM_PAIRS) < 0.05] = -1
    rows = rng.integers(0, NUM_ROWS, NUM_PAIRS)
    indices, dense_shape = np.stack([rows, rows], axis=1), np.array([NUM_ROWS, 9])
    weights = rng.random(NUM_PAIRS).astype(np.float32)
    pruned = ops.PruneInvalidAndFillEmptyRows(
        sp_values=ids,
        sp_indices=indices,
        sp_dense_shape=dense_shape,
        sp_weights_values=weights,
        prune=True,
        fill_empty_row=True,
        use_sparse_weights=True,
        prune_sparse_weights=True,
    )
    yield "prune_and_fill", pruned
    unique = ops.UniqueWithCountsV3(input=pruned.sp_values_out)
    yield "unique", unique
    shapes = [[NUM_IDS // 2, DIM]] * 2
    partition = ops.PartitionWithPermutation(input=unique.unique_keys, partition_shapes=shapes)
    yield "partition", partition
    shards = [
        ops.FusedEmbeddingGather(params=shard, ids=values)
        for shard, values in zip(np.split(table, 2), partition.partitioned_values, strict=True)
    ]
    yield "gather", shards
    inputs = {
        "emb_shards": shards,
        "partition_permutation": partition.partition_permutation,
        "indices_before_unique": pruned.sp_indices_out,
        "is_row_empty": pruned.is_row_empty,
        "unique_idxs": unique.unique_idxs,
        "sp_weights_values": pruned.sp_weights_values_out,
        "combiner": "sqrtn",
        "max_norm": 3.0,
        "fill_empty_row": True,
    }
    post = ops.FusedEmbeddingSparsePostLookUpV2(
        **inputs, sp_dense_shape=dense_shape, use_sparse_weights=True
    )
    yield "post_lookup", post
    inputs["top_grad"] = rng.standard_normal((NUM_ROWS, DIM)).astype(np.float32)
    yield (
        "post_lookup_grad",
        ops.FusedEmbeddingSparsePostLookUpV2Grad(
            **inputs, feature_nums=post.feature_nums, use_sparse_weights=True
        ),
    )
    yield "post_lookup_weights_grad", ops.FusedEmbeddingSparsePostLookUpV2WeightsGrad(**inputs)
    yield "sparse_apply", sparse_apply(fe, table, rng)
    fed = {"sp_values": ids, "sp_indices": indices, "sp_dense_shape": dense_shape}
    pre = ops.FusedEmbeddingSparsePreLookUp(
        partition_shapes=shapes, **fed, prune_invalid_id=True, fill_empty_row=True
    )
    yield "pre_lookup", pre
    yield from whole_lookups(fe, table, ids, np.sort(rows), weights)


def sparse_apply(fe, table, rng):
    """Two variables and their slots after a step, one of them by repeated indices."""
    variables = [tf.Variable(table), tf.Variable(tf.cast(table, tf.bfloat16))]
    slots = [tf.Variable(tf.ones_like(v)) for v in variables]
    indices = [rng.integers(0, NUM_IDS, NUM_PAIRS), rng.permutation(NUM_IDS)]
    fe.raw_ops.FusedEmbeddingResourceSparseApply(
        variables=[v.handle for v in variables],
        slots=[s.handle for s in slots],
        grads=[
            tf.cast(rng.standard_normal((len(index), DIM)), v.dtype)
            for index, v in zip(indices, variables, strict=True)
        ],
        indices=indices,
        hyperparameters=tf.constant([0.1, 0.0, 0.1], tf.float64),
        rule="adagrad",
    )
    return [tf.cast(v, tf.float32) for v in variables + slots]


def whole_lookups(fe, table, ids, rows, weights):
    """Forward and gradients of both versions, through fe.nn."""
    indices = np.stack([rows, rows], axis=1)
    sp_ids = tf.SparseTensor(indices, ids, [NUM_ROWS, NUM_ROWS])
    for version in ("v1", "v2", "v3"):
        for dtype in (tf.float32, tf.bfloat16):
            params, values = tf.Variable(tf.cast(table, dtype)), tf.constant(weights)
            with tf.GradientTape() as tape:
                tape.watch(values)
                sp_weights = tf.SparseTensor(indices, values, [NUM_ROWS, NUM_ROWS])
                out = fe.nn.fused_safe_embedding_lookup_sparse(
                    params, sp_ids, sp_weights, max_norm=3.0, fusion_version=version
                )
                loss = tf.reduce_sum(tf.square(tf.cast(out, tf.float32)))
            grad, weights_grad = tape.gradient(loss, [params, values])
            results = [out, grad.indices, grad.values, tf.convert_to_tensor(weights_grad)]
            yield f"nn_{version}_{dtype.name}", results


def main():
    tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
    import fused_embedding as fe

    with tf.device("/CPU:0"):
        print(json.dumps({name: digest(outputs) for name, outputs in results(fe)}))


if __name__ == "__main__":
    main()
