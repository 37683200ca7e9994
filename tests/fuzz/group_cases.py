"""Valid calls of the ops of a grouped lookup, and what their results must be."""

import functools

import numpy as np
import tensorflow as tf

import fused_embedding as fe
import group_stages
import oracle.lookup
from oracle.small_rows import numbers_of, stored_row

NUM_IDS = 6
WIDTHS = (1, 3, 17)
FORMATS = ("int8", "bfloat16", "int4")  # of stored rows, of each width


@functools.cache
def variables():
    """A table of each width, float32."""
    rng = np.random.default_rng(0)
    return [tf.Variable(rng.standard_normal((NUM_IDS, w)).astype(np.float32)) for w in WIDTHS]


@functools.cache
def stored_tables():
    """A table of stored rows of each format, of `WIDTHS`."""
    rng = np.random.default_rng(1)
    tables = []
    for width, row_format in zip(WIDTHS, FORMATS, strict=True):
        rows = [stored_row(row, row_format) for row in rng.standard_normal((NUM_IDS, width))]
        stored = np.frombuffer(b"".join(rows), np.uint8).reshape(NUM_IDS, -1)
        if row_format == "bfloat16":
            stored = stored.view(tf.bfloat16.as_numpy_dtype)
        tables.append(tf.Variable(stored))
    return tables


class DebugRows:
    """What a table of the initializer `debug` holds: rows that are their key."""

    def __init__(self, width):
        self.shape = (None, width)

    def __getitem__(self, keys):
        rows = np.mod(np.asarray(keys, np.int64), 100_000).astype(np.float64)
        return np.repeat(rows[:, np.newaxis], self.shape[1], axis=1)


@functools.cache
def keyed_tables():
    """Handles of tables of each width, float32."""
    attrs = {"dtype": tf.float32, "initializer": "debug"}
    return [
        fe.raw_ops.EmbeddingVariableHandle(shared_name=f"group_{w}", dim=w, **attrs) for w in WIDTHS
    ]


def make_columns(rng, must_be_weighted):
    """Columns over tables of `WIDTHS`, all with one number of rows. Few kinds: kernels are kept."""
    kind = int(rng.integers(12))
    columns = group_stages.random_columns(
        np.random.default_rng(kind), [np.ones((NUM_IDS, w)) for w in WIDTHS], 1 + kind % 3
    )
    num_rows = int(rng.integers(0, 6))
    for c, column in enumerate(columns):
        nnz = int(rng.integers(0, 9)) if num_rows else 0
        weights = None
        if column.weights is not None or must_be_weighted:
            weights = rng.choice([-1.0, 0.0, 0.5, 2.0], nnz)
        columns[c] = column._replace(
            ids=rng.integers(-1, NUM_IDS, nnz),
            row_ids=rng.integers(0, max(num_rows, 1), nnz),
            num_rows=num_rows,
            weights=weights,
        )
    return columns


def make(are_variables, with_grads=False, must_be_weighted=False):
    """Arguments of one of the ops."""

    def make_arguments(rng):
        columns = make_columns(rng, must_be_weighted)
        dtype = [np.float32, np.float64, tf.bfloat16.as_numpy_dtype][rng.integers(3)]
        if are_variables:
            args = {"resources": [v.handle for v in variables()]}
            dtype = np.float32
        else:
            args = {"tables": [rng.standard_normal((NUM_IDS, w)).astype(dtype) for w in WIDTHS]}
        given = group_stages.arguments(columns, [tf.float32, tf.float64][rng.integers(2)])
        args |= given | {"sp_weights": [w.numpy() for w in given["sp_weights"]]}
        args |= {"prune": True, "fill_empty_row": bool(rng.integers(2))}
        is_concat = bool(rng.integers(2))
        if with_grads:
            return args | {"combined_grads": make_grads(rng, columns, dtype, is_concat)}
        args["num_outputs"] = 1 if is_concat else len(columns)
        return args | ({"dtype": tf.float32} if are_variables else {})

    return make_arguments


def make_stored(rng):
    """Arguments of the lookup in tables of stored rows."""
    args = make(True)(rng) | {"formats": list(FORMATS), "dims": list(WIDTHS)}
    return args | {"resources": [table.handle for table in stored_tables()]}


def make_grads(rng, columns, dtype, is_concat):
    """Gradients of the combined rows of each column, or of all side by side."""
    shapes = [(columns[0].num_rows, WIDTHS[column.table]) for column in columns]
    grads = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    return [np.concatenate(grads, axis=1)] if is_concat else grads


def make_keyed(rng):
    """Arguments of the lookup in tables without a vocabulary."""
    columns = make_columns(rng, must_be_weighted=False)
    given = group_stages.arguments(columns, [tf.float32, tf.float64][rng.integers(2)])
    given |= {"sp_weights": [w.numpy() for w in given["sp_weights"]]}
    given |= {"resources": keyed_tables(), "step": np.array(rng.integers(-1, 3))}
    given |= {"prune": True, "fill_empty_row": bool(rng.integers(2)), "dtype": tf.float32}
    num_outputs = [1, len(columns)][rng.integers(2)]
    return given | {"insert": bool(rng.integers(2)), "num_outputs": num_outputs}


def make_keyed_grad(rng):
    """Arguments of its gradient."""
    columns = make_columns(rng, must_be_weighted=False)
    rows = [rng.standard_normal((NUM_IDS, w)).astype(np.float32) for w in WIDTHS]
    given = group_stages.found_by_table_lookup(rows, columns)
    given |= {"sp_weights": [w.numpy() for w in given["sp_weights"]], "prune": True}
    grads = [rng.standard_normal((columns[0].num_rows, WIDTHS[c.table])) for c in columns]
    return given | {"combined_grads": [g.astype(np.float32) for g in grads]}


def tables_of(args):
    """Values of the tables, rows flat, float64."""
    if "part_rows" in args:
        return [DebugRows(1)] * args["num_tables"]  # which nobody reads
    if "insert" in args:
        by_handle = {id(handle): w for handle, w in zip(keyed_tables(), WIDTHS, strict=True)}
        return [DebugRows(by_handle[id(handle)]) for handle in args["resources"]]
    if "formats" in args:
        tables = decoded_tables(args)
    elif "tables" in args:
        tables = args["tables"]
    else:
        by_handle = {id(v.handle): v.numpy() for v in variables()}
        tables = [by_handle[id(handle)] for handle in args["resources"]]
    return [
        np.asarray(t).astype(np.float64).reshape(len(t), int(np.prod(np.shape(t)[1:])))
        for t in tables
    ]


def are_keyed(args):
    """Whether every id that is not pruned is a key."""
    return "insert" in args or args.get("ids_are_keys", False)


def decoded_tables(args):
    """The numbers of stored rows, as the formats and dims say."""
    by_handle = {id(v.handle): v.numpy() for v in stored_tables()}
    how = zip(args["resources"], args["formats"], args["dims"], strict=True)
    return [
        np.stack([numbers_of(row.tobytes(), dim, row_format) for row in by_handle[id(handle)]])
        for handle, row_format, dim in how
    ]


def weights_of(args, c):
    """Weights of a column, float64, or None."""
    if c not in args["weighted_columns"]:
        return None
    return args["sp_weights"][args["weighted_columns"].index(c)].astype(np.float64)


def max_norm_of(args, c):
    max_norm = np.float32(args["max_norms"][c])
    return float(max_norm) if max_norm >= 0 else None


def default_of(args, c):
    """Id of a column's empty rows, and whether they are filled."""
    default_id, fill = args["default_ids"][c], args.get("fill_empty_row", True)
    if "default_positions" in args:
        assert args["default_positions"].shape == (len(args["default_ids"]),)
        default_id = int(args["default_positions"][c])
    if are_keyed(args) or "default_positions" in args:
        fill = fill and default_id >= 0
    return default_id, fill


class Pairs:
    """What is left of a column after pruning and filling, and what the oracle takes of it."""

    def __init__(self, args, c):
        table = tables_of(args)[args["table_of_column"][c]]
        indices, ids = np.asarray(args["sp_indices"][c]), np.asarray(args["sp_values"][c])
        row_ids = indices if indices.ndim == 1 else indices[:, 0]
        sizes = np.asarray(args["sp_dense_shapes"][c][:-1]).tolist()
        self.num_rows = int(np.prod(sizes, dtype=object))
        assert not len(row_ids) or (min(row_ids) >= 0 and max(row_ids) < self.num_rows)
        weights = weights_of(args, c)
        self.combiner = args["combiners"][c]
        default_id, fill = default_of(args, c)
        self.max_norm = max_norm_of(args, c)
        prunes_weights = args["prune"] and weights is not None and self.combiner != "sum"
        self.pairs = oracle.lookup.prune_and_fill(
            ids.astype(np.int64),
            oracle.lookup.as_indices(row_ids.tolist()),
            self.num_rows,
            weights,
            prune=args["prune"],
            fill=fill,
            prune_weights=prunes_weights,
            default_id=default_id,
        )
        assert are_keyed(args) or not len(self.pairs.ids) or min(self.pairs.ids) >= 0
        self.kept = oracle.lookup.kept_positions(ids, weights, args["prune"], prunes_weights)
        self.num_ids = len(ids)
        self.rows = table[self.pairs.ids]
        no_default = fill and default_id < 0
        self.is_zero = np.logical_and(self.pairs.is_row_empty, no_default)[:, None]
        self.weights = weights
        if weights is not None:
            self.weights = self.pairs.weights.astype(np.float64)

    def combined(self):
        want = oracle.lookup.post_lookup(
            self.rows, self.pairs.indices[:, 0], self.num_rows, *self.how()
        )
        return np.where(self.is_zero, 0.0, want.rows)

    def how(self):
        return self.combiner, self.weights, self.max_norm

    def grad_args(self, top_grad):
        top_grad = np.where(self.is_zero, 0.0, top_grad)
        return top_grad, self.rows, self.pairs.indices[:, 0], *self.how()


def all_pairs(args):
    return [Pairs(args, c) for c in range(len(args["table_of_column"]))]


def grads_of(args):
    """The gradient of each column's result, float64."""
    grads = [g.astype(np.float64) for g in args["combined_grads"]]
    if len(grads) == len(args["table_of_column"]):
        return grads
    ends = np.cumsum([tables_of(args)[t].shape[1] for t in args["table_of_column"]])
    return np.split(grads[0], ends[:-1], axis=1)


def floats(args):
    """Every number that rounding errors are relative to."""
    if "insert" in args:
        keys = [*args["sp_values"], args["default_ids"]]
        tables = [DebugRows(1)[np.ravel(k)].astype(np.float32) for k in keys]
    elif "formats" in args:
        tables = decoded_tables(args)
    elif "tables" in args:
        tables = args["tables"]
    else:
        tables = [v.numpy() for v in variables()]
    return {name: args.get(name, []) for name in ("sp_weights", "combined_grads")} | {
        "tables": [np.asarray(t) for t in tables]
    }


class Checks:
    """The checks of the ops, over the fuzz's comparison."""

    def __init__(self, close):
        self._close = close

    def forward(self, args, got):
        want = [pairs.combined() for pairs in all_pairs(args)]
        if len(got) != len(want):
            want = [np.concatenate(want, axis=1)]
        for g, w in zip(got, want, strict=True):
            self._close(g, w, floats(args))

    def keyed(self, args, got):
        self.forward(args, got.combined)
        tables = tables_of(args)
        wanted = [{} for _ in tables]
        for pairs, t in zip(all_pairs(args), args["table_of_column"], strict=True):
            wanted[t] |= dict.fromkeys(pairs.pairs.ids.tolist())
        for keys, rows, of_table, table in zip(got.keys, got.rows, wanted, tables, strict=True):
            assert keys.numpy().tolist() == list(of_table)
            np.testing.assert_array_equal(rows, table[list(of_table)])

    def gradient(self, args, got):
        for ids, rows, want in zip(got.unique_ids, got.rows_grad, sums(args), strict=True):
            assert ids.numpy().tolist() == list(want)
            want_rows = np.array(list(want.values())).reshape(rows.shape)
            self._close(rows, want_rows, floats(args), 4096)

    def keyed_gradient(self, args, got):
        for rows, table, of_table in zip(got, tables_of(args), sums(args), strict=True):
            want = np.zeros(table.shape if of_table else rows.shape)
            for i, row in of_table.items():
                want[i] = row
            self._close(rows, want, floats(args), 4096)

    def weights_gradient(self, args, got):
        pairs, grads = all_pairs(args), grads_of(args)
        for c, g in zip(args["weighted_columns"], got, strict=True):
            of_pairs = oracle.lookup.post_lookup_weights_grad(*pairs[c].grad_args(grads[c]))
            want = np.zeros(pairs[c].num_ids)
            want[pairs[c].kept] = of_pairs[: len(pairs[c].kept)]
            self._close(g, want, floats(args), 4096)


def sums(args):
    """The gradient of each table: id -> row."""
    want = [{} for _ in tables_of(args)]
    columns = zip(all_pairs(args), grads_of(args), args["table_of_column"], strict=True)
    for pairs, top_grad, t in columns:
        rows = oracle.lookup.post_lookup_grad(*pairs.grad_args(top_grad))
        for i, row in zip(pairs.pairs.ids, rows, strict=True):
            want[t][int(i)] = want[t].get(int(i), 0.0) + row
    return want


def make_ops(op_type, close):
    """An `op_type` for each op."""
    checks = Checks(close)
    ops = [
        op_type("EmbeddingVariableGroupLookup", make_keyed, checks.keyed),
        op_type("EmbeddingVariableGroupLookupGrad", make_keyed_grad, checks.keyed_gradient),
        op_type("FusedEmbeddingStoredRowsGroupLookup", make_stored, checks.forward),
    ]
    for are_variables, kind in ((False, ""), (True, "Resource")):
        name = f"FusedEmbedding{kind}GroupLookup"
        ops += [
            op_type(name, make(are_variables), checks.forward),
            op_type(f"{name}Grad", make(are_variables, True), checks.gradient),
            op_type(f"{name}WeightsGrad", make(are_variables, True, True), checks.weights_gradient),
        ]
    return ops
