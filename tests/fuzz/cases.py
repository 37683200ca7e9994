"""Valid calls of every op, and what their results must be. A case is a function of its seed."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import oracle.lookup
import stages
from checking import EPS, VALUE_DTYPES
from fuzz import (
    apply_cases,
    example_cases,
    file_cases,
    group_cases,
    key_cases,
    remote_cases,
    table_cases,
)

NUM_SHARDS = (1, 1, 2, 3)
VARIABLES = {}


class Op(NamedTuple):
    """One op: how to make valid arguments, and how to check a result against the oracle."""

    name: str
    make: Callable[[np.random.Generator], dict[str, Any]]
    check: Callable[[dict[str, Any], Any], None]


def make_batch(rng):
    num_rows = int(rng.integers(0, 5))
    nnz = int(rng.integers(0, 7)) if num_rows else 0
    return stages.Batch(
        rng.integers(-2, stages.NUM_IDS, nnz).tolist(),
        rng.integers(0, max(num_rows, 1), nnz).tolist(),
        num_rows,
        rng.choice([-1.0, 0.0, 0.5, 2.0], nnz).tolist(),
    )


def make_options(rng):
    """Options of a lookup, and the dtypes of its table and weights."""
    num_shards = int(rng.choice(NUM_SHARDS))
    options = stages.Options(
        combiner=str(rng.choice(oracle.lookup.COMBINERS)),
        max_norm=[None, 0.5, 2.0][rng.integers(3)],
        default_id=[None, 0, 7][rng.integers(3)],
        num_shards=num_shards,
        strategy=str(rng.choice(["div", "mod"])),
        is_weighted=bool(rng.integers(2)),
    )
    return options, value_dtype(rng), value_dtype(rng)


def value_dtype(rng):
    return VALUE_DTYPES[rng.choice(4, p=[0.7, 0.1, 0.1, 0.1])].as_numpy_dtype


# TensorFlow makes and keeps a kernel for each set of attributes, which takes longer than a call: a
# fixed choice of sets keeps the fuzz fast. tests/ops has the products.
OPTIONS = [make_options(np.random.default_rng(k)) for k in range(32)]


def cast(value, dtype):
    return [v.astype(dtype) for v in value] if isinstance(value, list) else value.astype(dtype)


def make_prune_and_fill(rng):
    batch = make_batch(rng)
    args = {
        "sp_values": np.array(batch.ids, np.int64),
        "sp_indices": oracle.lookup.as_indices(batch.row_ids),
        "sp_dense_shape": np.array([batch.num_rows, 5], np.int64),
        "fill_empty_row": bool(rng.integers(2)),
        "prune": bool(rng.integers(2)),
        "default_id": int(rng.choice([-1, 0, 3])),
    }
    if rng.integers(2):
        args["sp_weights_values"] = np.array(batch.weights).astype(value_dtype(rng))
        args |= {"use_sparse_weights": True, "prune_sparse_weights": bool(rng.integers(2))}
    return args


def num_rows_of(dense_shape):
    return int(np.prod([int(d) for d in dense_shape[:-1]], dtype=object))


def check_prune_and_fill(args, got):
    has_weights = args.get("use_sparse_weights", False)
    weights = args["sp_weights_values"].astype(np.float64) if has_weights else None
    want = oracle.lookup.prune_and_fill(
        args["sp_values"],
        args["sp_indices"],
        num_rows_of(args["sp_dense_shape"]),
        weights,
        prune=args["prune"],
        fill=args["fill_empty_row"],
        prune_weights=has_weights and args["prune_sparse_weights"],
        default_id=args["default_id"],
    )
    equal(got.sp_values_out, want.ids)
    equal(got.sp_indices_out, want.indices)
    equal(got.is_row_empty, want.is_row_empty)
    if has_weights:
        equal(got.sp_weights_values_out.numpy().astype(np.float64), want.weights)


def make_unique(rng):
    dtype = [np.int32, np.int64][rng.integers(2)]
    return {
        "input": tf.constant(rng.integers(-3, 4, rng.integers(0, 12)), dtype),
        "CounterType": [tf.int32, tf.int64][rng.integers(2)],
    }


def check_unique(args, got):
    for g, w in zip(got, oracle.lookup.unique_with_counts(np.asarray(args["input"])), strict=True):
        equal(g, w)


def make_partition(rng):
    strategy = str(rng.choice(oracle.lookup.STRATEGIES))
    num_shards = int(rng.choice(NUM_SHARDS))
    high = 4 * num_shards if strategy in ("div", "mod") else 10**6
    return {
        "input": rng.integers(0, high, rng.integers(0, 9)),
        "partition_shapes": [np.array([4, 2], np.int64)] * num_shards,
        "partition_strategy": strategy,
    }


def check_partition(args, got):
    rows = [int(s[0]) for s in args["partition_shapes"]]
    want = oracle.lookup.partition(args["input"], rows, args["partition_strategy"])
    for g, w in zip(got.partitioned_values, want.values, strict=True):
        equal(g, w)
    equal(got.partition_permutation, want.permutation)


def make_gather(rng):
    table = rng.standard_normal((6, rng.integers(0, 20))).astype(value_dtype(rng))
    return {"params": table, "ids": rng.integers(0, 6, rng.integers(0, 9))}


def check_gather(args, got):
    table, ids = args["params"], args["ids"]
    is_row = (ids >= 0) & (ids < len(table))
    assert is_row.all() or "GPU" in got.device  # there it gives zeros, as TensorFlow's own
    want = np.zeros([len(ids), int(np.prod(table.shape[1:]))], table.dtype)
    want[is_row] = table[ids[is_row]].reshape(want[is_row].shape)
    equal(got, want)


def make_resource_gather(rng):
    dim = int(rng.choice([1, 3, 16]))
    if dim not in VARIABLES:
        table = np.random.default_rng(dim).standard_normal((6, dim)).astype(np.float32)
        VARIABLES[dim] = tf.Variable(table)
    return {
        "resource": VARIABLES[dim].handle,
        "ids": rng.integers(0, 6, rng.integers(0, 9)),
        "dtype": tf.float32,
    }


def check_resource_gather(args, got):
    variable = next(v for v in VARIABLES.values() if v.handle is args["resource"])
    check_gather({"params": variable.numpy(), "ids": args["ids"]}, got)


def make_pre_lookup(rng):
    batch, num_shards = make_batch(rng), int(rng.choice(NUM_SHARDS))
    return {
        "partition_shapes": [np.array([10, 4], np.int64)] * num_shards,
        "sp_values": np.array(batch.ids, np.int64),
        "sp_indices": oracle.lookup.as_indices(batch.row_ids),
        "sp_dense_shape": np.array([batch.num_rows, 5], np.int64),
        "fill_empty_row": bool(rng.integers(2)),
        "prune_invalid_id": True,
        "default_id": int(rng.choice([-1, 0, 3])),
        "partition_strategy": str(rng.choice(oracle.lookup.STRATEGIES)),
    }


def check_pre_lookup(args, got):
    values, indices, flags = oracle.lookup.pre_lookup(
        args["sp_values"],
        args["sp_indices"],
        num_rows_of(args["sp_dense_shape"]),
        [int(s[0]) for s in args["partition_shapes"]],
        prune=args["prune_invalid_id"],
        fill=args["fill_empty_row"],
        default_id=args["default_id"],
        strategy=args["partition_strategy"],
    )
    for p in range(len(values)):
        equal(got.partitioned_values[p], values[p])
        equal(got.partitioned_indices[p], indices[p])
    equal(got.row_empty_and_invalid_flags, flags)


def make_post(version, must_be_weighted=False):
    """Arguments of a post op: real shards, permutations and indices of a random batch."""

    def make(rng):
        batch = make_batch(rng)
        options, dtype, weight_dtype = OPTIONS[rng.integers(len(OPTIONS))]
        options = options._replace(is_weighted=options.is_weighted or must_be_weighted)
        table = stages.make_table(int(rng.choice([1, 2, 4, 17])))
        make_inputs = stages.v1_inputs if version == "v1" else stages.v2_inputs
        args = make_inputs(batch, options, table)
        args |= options.attrs() if version == "v1" else stages.v2_attrs(options)
        args["emb_shards"] = cast(args["emb_shards"], dtype)
        weights = "partitioned_weights" if version == "v1" else "sp_weights_values"
        if weights in args:
            args[weights] = cast(args[weights], weight_dtype)
        return args

    return make


def make_post_to_last_row(rng):
    """Arguments of v2 as the lookup that is not safe: rows in order, none filled."""
    args = make_post("v2")(rng)
    indices = args["indices_before_unique"]
    args["indices_before_unique"] = indices[np.argsort(indices[:, 0], kind="stable")]
    return args | {"rows_end_at_last_id": True, "fill_empty_row": False}


def make_post_grad(version, of_weights=False):
    """Arguments of a gradient op: those of the post op, without what it does not take."""

    def make(rng):
        args = make_post(version, of_weights)(rng)
        num_rows = num_rows_of(args.pop("sp_dense_shape"))
        args.pop("partitioned_values", None)
        shape = num_rows, args["emb_shards"][0].shape[1]
        args["top_grad"] = rng.standard_normal(shape).astype(args["emb_shards"][0].dtype)
        if of_weights:
            args.pop("use_sparse_weights", None)
        else:
            counts = np.bincount(row_ids_of(args), minlength=num_rows)
            args["feature_nums"] = counts.astype(np.int32)
        return args

    return make


def row_ids_of(args):
    """Row of each pair; in v1 shard after shard."""
    indices = args.get("partitioned_indices", [args.get("indices_before_unique")])
    return np.concatenate([i[:, 0] for i in indices])


def rows_of(args):
    """Embedding of each pair, float64; a pair that points outside raises IndexError."""
    shards = [s.astype(np.float64) for s in args["emb_shards"]]
    if "partitioned_indices" in args:
        return np.concatenate(shards)
    where = args["partition_permutation"]
    if len(shards) == 1:
        where = [(0, u) for u in range(len(shards[0]))]
    picked = [where[natural(u)] for u in args["unique_idxs"]]
    rows = [shards[natural(p)][natural(o)] for p, o in picked]
    return np.array(rows, np.float64).reshape(len(rows), shards[0].shape[1])


def natural(index):
    """An index that numpy must not take from the end."""
    if index < 0:
        raise IndexError(f"negative index {index}")
    return int(index)


def weights_of(args):
    """Weight of each pair, float64, or None."""
    if args.get("partitioned_weights"):
        return np.concatenate(args["partitioned_weights"]).astype(np.float64)
    if args.get("use_sparse_weights", "top_grad" in args and "feature_nums" not in args):
        return args.get("sp_weights_values", np.zeros(0)).astype(np.float64)
    return None


def zero_rows_of(args, num_rows):
    """`[num_rows, 1]`: rows that are zero for want of a default id."""
    if args["default_id"] >= 0:
        return np.zeros((num_rows, 1), bool)
    if "partitioned_indices" in args:
        return (args["row_empty_and_invalid_flags"][:num_rows] != 0)[:, None]
    if not args["fill_empty_row"]:
        return np.zeros((num_rows, 1), bool)
    return args["is_row_empty"][:, None]


def max_norm_of(args):
    return args["max_norm"] if args["max_norm"] >= 0 else None


def post_args(args):
    """What the oracle's gradients take after `top_grad`."""
    weights = weights_of(args)
    return rows_of(args), row_ids_of(args), args["combiner"], weights, max_norm_of(args)


def leaves_out_pairs(args, num_rows, got):
    """A GPU leaves out pairs without a row or embedding; tests/ops has what it then gives."""
    idxs, num_unique = args.get("unique_idxs", []), sum(map(len, args["emb_shards"]))
    exists = [0 <= row < num_rows for row in row_ids_of(args)] + [0 <= u < num_unique for u in idxs]
    return "GPU" in tf.nest.flatten(got)[0].device and not all(exists)


def check_post(args, got):
    row_ids = row_ids_of(args)
    if args.get("rows_end_at_last_id"):
        assert all(np.diff(row_ids) >= 0)
        num_rows = int(max(row_ids, default=-1)) + 1
    else:
        num_rows = num_rows_of(args["sp_dense_shape"])
    if leaves_out_pairs(args, num_rows, got):
        return
    assert not len(row_ids) or (min(row_ids) >= 0 and max(row_ids) < num_rows)
    want = oracle.lookup.post_lookup(
        rows_of(args), row_ids, num_rows, args["combiner"], weights_of(args), max_norm_of(args)
    )
    is_zero = zero_rows_of(args, num_rows)
    close(got.emb_vectors, np.where(is_zero, 0.0, want.rows), args)
    equal(got.feature_nums, want.feature_nums * ~is_zero[:, 0])


def check_post_grad(args, got):
    num_rows = len(args["top_grad"])
    if leaves_out_pairs(args, num_rows, got):
        return
    counts = np.bincount(row_ids_of(args), minlength=num_rows)
    if weights_of(args) is None and not np.array_equal(args["feature_nums"], counts):
        return  # the op believes the counts of its forward op
    top_grad = np.where(zero_rows_of(args, num_rows), 0.0, args["top_grad"].astype(np.float64))
    grads = oracle.lookup.post_lookup_grad(
        top_grad,
        rows_of(args),
        row_ids_of(args),
        args["combiner"],
        weights_of(args),
        max_norm_of(args),
    )
    shards = args["emb_shards"]
    if "partitioned_indices" in args:
        ends = np.cumsum([len(s) for s in shards])
        want = np.split(grads, ends[:-1])
    else:
        want = [np.zeros(s.shape) for s in shards]
        for grad, u in zip(grads, args["unique_idxs"], strict=True):
            p, o = (0, u) if len(shards) == 1 else args["partition_permutation"][u]
            want[p][o] += grad
    for g, w in zip(got, want, strict=True):
        close(g, w, args)


def check_post_weights_grad(args, got):
    num_rows = len(args["top_grad"])
    if leaves_out_pairs(args, num_rows, got):
        return
    top_grad = np.where(zero_rows_of(args, num_rows), 0.0, args["top_grad"].astype(np.float64))
    want = oracle.lookup.post_lookup_weights_grad(
        top_grad,
        rows_of(args),
        row_ids_of(args),
        args["combiner"],
        weights_of(args),
        max_norm_of(args),
    )
    got = got if isinstance(got, list) else [got]
    close(np.concatenate([g.numpy().astype(np.float64) for g in got]), want, args, 4096)


def make_prune_and_fill_grad(rng):
    batch = make_batch(rng)
    args = {
        "sp_values": np.array(batch.ids, np.int64),
        "sp_weights_values": np.array(batch.weights, np.float32),
        "prune": bool(rng.integers(2)),
        "prune_sparse_weights": bool(rng.integers(2)),
    }
    kept = oracle.lookup.kept_positions(
        batch.ids, batch.weights, args["prune"], args["prune_sparse_weights"]
    )
    return args | {"grad": rng.standard_normal(len(kept) + rng.integers(3)).astype(np.float32)}


def check_prune_and_fill_grad(args, got):
    kept = oracle.lookup.kept_positions(
        args["sp_values"], args["sp_weights_values"], args["prune"], args["prune_sparse_weights"]
    )
    want = np.zeros(len(args["sp_values"]), args["grad"].dtype)
    assert len(args["grad"]) >= len(kept)
    want[kept] = args["grad"][: len(kept)]
    equal(got, want)


def equal(got, want):
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype not in (np.int32, np.int64, np.bool_):
        got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got, want)


def floats_of(args):
    """Every float argument of a post op, each as float64 `[n]`."""
    lists = [[v] if isinstance(v, np.ndarray) else v for v in args.values()]
    arrays = [v for values in lists if isinstance(values, list) for v in values]
    return [v for v in arrays if v.dtype not in (np.int32, np.int64, np.bool_)]


def close(got, want, args, terms=64):
    """Within `terms` roundings of the coarsest dtype, relative to the largest number given.

    Numbers whose squares float32 cannot hold may give anything but a crash. What is not finite may
    turn a zero of the oracle's into NaN: TensorFlow's own division by nothing hides it.
    """
    got = np.asarray(got).astype(np.float64)
    assert got.shape == want.shape, f"shape {got.shape}, want {want.shape}"
    floats = floats_of(args)
    sizes = np.abs(np.concatenate([f.astype(np.float64).ravel() for f in floats]))
    is_comparable = np.isfinite(want)
    if not np.isfinite(sizes).all():
        is_comparable &= np.isfinite(got)
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    if sizes.max(initial=1.0) > 1e18 or sizes.min(initial=1.0) < 1e-18:
        return
    tol = terms * max(EPS.get(tf.as_dtype(f.dtype), EPS[tf.float32]) for f in floats)
    got, want = got[is_comparable], want[is_comparable]
    scale = max(sizes.max(initial=1.0), np.abs(want).max(initial=0.0))
    np.testing.assert_allclose(got, want, rtol=tol, atol=tol * scale)


OPS = (
    Op("PruneInvalidAndFillEmptyRows", make_prune_and_fill, check_prune_and_fill),
    Op("PruneInvalidAndFillEmptyRowsGrad", make_prune_and_fill_grad, check_prune_and_fill_grad),
    Op("UniqueWithCountsV3", make_unique, check_unique),
    Op("PartitionWithPermutation", make_partition, check_partition),
    Op("FusedEmbeddingGather", make_gather, check_gather),
    Op("FusedEmbeddingResourceGather", make_resource_gather, check_resource_gather),
    Op("FusedEmbeddingSparsePreLookUp", make_pre_lookup, check_pre_lookup),
    Op("FusedEmbeddingSparsePostLookUp", make_post("v1"), check_post),
    Op("FusedEmbeddingSparsePostLookUpV2", make_post("v2"), check_post),
    Op("FusedEmbeddingSparsePostLookUpV2", make_post_to_last_row, check_post),
    Op("FusedEmbeddingSparsePostLookUpGrad", make_post_grad("v1"), check_post_grad),
    Op("FusedEmbeddingSparsePostLookUpV2Grad", make_post_grad("v2"), check_post_grad),
    Op(
        "FusedEmbeddingSparsePostLookUpWeightsGrad",
        make_post_grad("v1", True),
        check_post_weights_grad,
    ),
    Op(
        "FusedEmbeddingSparsePostLookUpV2WeightsGrad",
        make_post_grad("v2", True),
        check_post_weights_grad,
    ),
    *group_cases.make_ops(Op, close),
    *remote_cases.make_ops(Op, close),
    *(
        Op(name, make, check)
        for name, (make, check) in (
            apply_cases.CASES
            | table_cases.CASES
            | file_cases.CASES
            | key_cases.CASES
            | example_cases.CASES
        ).items()
    ),
)
