"""fe.export_for_serving of modules: lookups of every version and table as stock ops."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from serving import serving_cases
from serving.serving_cases import (
    FEW_LOOKUPS,
    LOOKUPS,
    NO_IDS,
    OURS,
    SPECS,
    UNKNOWN,
    assert_same,
    assert_served,
    batch,
    inferred,
    tensors,
)

v1 = tf.compat.v1
DIM = 4
NUM_IDS = 12


def rows(seed=0, num_rows=NUM_IDS, dim=DIM):
    return np.random.default_rng(seed).normal(size=[num_rows, dim]).astype(np.float32)


def variables(num_shards, strategy="div"):
    whole = rows()
    if strategy == "mod":
        shards = [whole[i::num_shards] for i in range(num_shards)]
    else:  # of unequal sizes
        shards = np.split(whole, [5, 6][: num_shards - 1])
    return [tf.Variable(shard) for shard in shards]


def trained_table(name="users", partitions=None, train=True, **options):
    """Knows the keys 0 to 9, and two large ones; others were counted, if at all."""
    partitioner = partitions and v1.fixed_size_partitioner(partitions)
    table = fe.get_embedding_variable(name, DIM, partitioner=partitioner, **options)
    known = tf.constant([*range(10), 1007, 10**12], tf.int64)
    table.upsert(known, tf.cast(rows(num_rows=12), table.dtype))
    if train:  # key 77 is inserted, or counted by a filter
        fe.nn.fused_safe_embedding_lookup_sparse(table, tf.sparse.from_dense([[77]]))
    return table


def filtered(option):
    return fe.EmbeddingVariableOption(
        filter_option=option, init_option=fe.InitializerOption(default_value_no_permission=0.25)
    )


TABLES = {
    "variable": lambda: (variables(1), "div"),
    "div": lambda: (variables(3), "div"),
    "mod": lambda: (variables(3, "mod"), "mod"),
    "tensor": lambda: (tf.constant(rows()), "div"),
    "table": lambda: (trained_table(), "div"),
    "hash": lambda: (trained_table(partitions=3), "div"),
    "mod_ev": lambda: (trained_table(partitions=3, partition_strategy="mod_ev"), "div"),
    "counter": lambda: (trained_table(ev_option=filtered(fe.CounterFilter(3))), "div"),
    "bloom": lambda: (trained_table(ev_option=filtered(fe.CBFFilter(3, 1000, 0.01))), "div"),
}


class Lookups(tf.Module):
    """One result for each of `lookups`."""

    def __init__(self, tables, strategy, version, lookups=LOOKUPS):
        super().__init__()
        self.tables = tables

        @tf.function(input_signature=list(SPECS.values()))
        def serve(ids, indices, dense_shape, weights):
            sparse = tf.SparseTensor(indices, ids, dense_shape)
            results = {}
            for name, options in lookups.items():
                options = dict(options)
                is_weighted = options.pop("weighted", False)
                results[name] = fe.nn.fused_safe_embedding_lookup_sparse(
                    self.tables,
                    sparse,
                    sparse.with_values(weights) if is_weighted else None,
                    partition_strategy=strategy,
                    fusion_version=version,
                    **options,
                )
            return results

        self.serve = serve


# Versions have ops of their own, for a table that is dense, dense and divided, and neither. With v3
# a divided table is read by the ops of v2.
ALL_LOOKUPS_OF = {("variable", v) for v in ("v1", "v2", "v3")} | {("table", "v3"), ("hash", "v1")}
OPS_OF_VERSIONS = [(t, v) for v in ("v1", "v2") for t in ("variable", "div", "counter", "hash")]


@pytest.mark.parametrize(("table", "version"), [*((t, "v3") for t in TABLES), *OPS_OF_VERSIONS])
def test_lookups_become_stock_ops(tmp_path, server, table, version):
    lookups = LOOKUPS if (table, version) in ALL_LOOKUPS_OF else FEW_LOOKUPS
    model = Lookups(*TABLES[table](), version, lookups)
    fe.export_for_serving(model, tmp_path, signatures=model.serve)
    is_dense = table in ("variable", "div", "mod", "tensor")
    for given in (batch(), NO_IDS, *([] if is_dense else [batch(serving_cases.KEYS)])):
        assert_served(server, tmp_path, given, inferred(model.serve, given))


def test_a_v1_loader_reads_it_too(tmp_path, server):
    model = Lookups(*TABLES["hash"](), "v3", FEW_LOOKUPS)
    fe.export_for_serving(model, tmp_path, signatures=model.serve)
    assert_served(server, tmp_path, batch(), inferred(model.serve, batch()), loader="v1")


class Keys(tf.Module):
    """Ids of features of every layout and kind, and their rows."""

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2], tf.string),
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec(None, tf.int32),
        ]
    )
    def serve(self, words, numbers, splits, unknown):
        result = fe.raw_ops.FusedEmbeddingColumnKeys(
            values=[words, numbers, numbers, numbers, unknown, words, numbers],
            row_splits=[splits],
            tables=[],
            sparse_indices=[],
            sparse_shapes=[],
            Tkeys=[tf.int64] * 7,
            Trows=[tf.int64] * 6,
            layouts=["dense", "dense", "sparse", "ragged", "dense", "full", "full"],
            kinds=["hash", "identity", "hash", "identity", "hash", "hash", "index"],
            num_buckets=[7, 10, 2**63 - 1, 10, 100, 7, 10],
            default_keys=[-1, -1, -1, 4, -1, -1, -1],
        )
        return {
            f"{name}{i}": t for name in result._fields for i, t in enumerate(getattr(result, name))
        }


@pytest.mark.parametrize("rank", [1, 2])
def test_features_become_ids_by_stock_ops(tmp_path, server, rank):
    model = Keys()
    fe.export_for_serving(model, tmp_path, signatures=model.serve)
    given = {
        "words": np.array([["oak", ""], ["", ""], ["elm", "a text of more than 16 bytes"]], object),
        "numbers": np.array([3, -1, 10**12, -7, 9], np.int64),
        "splits": np.array([0, 2, 2, 5], np.int64),
        "unknown": np.array([-1, 5, 123456, -9], np.int32).reshape([4] if rank == 1 else [2, 2]),
    }
    want = {name: value.numpy() for name, value in model.serve(**tensors(given)).items()}
    assert_served(server, tmp_path, given | {"words": given["words"].astype(bytes)}, want)


class Rows(tf.Module):
    """Rows of keys, also of those that no table has."""

    def __init__(self, table):
        super().__init__()
        self.table = table

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def serve(self, keys):
        rows = tf.nn.embedding_lookup(self.table, keys)
        return {"rows": tf.cast(rows, tf.float64)}


INITIALIZERS = {
    "default": None,
    "zeros": v1.zeros_initializer(),
    "constant": v1.constant_initializer(0.75),
    "uniform": v1.random_uniform_initializer(-0.5, 2.0, seed=5),
    "normal": v1.random_normal_initializer(1.0, 0.1, seed=6),
    "truncated_normal": v1.truncated_normal_initializer(stddev=0.2, seed=7),
    "debug": fe.DebugInitializer(),
    "matrix": rows(3, num_rows=7),
}
KEYS = np.r_[np.arange(12), 77, UNKNOWN, np.random.default_rng(1).integers(-(2**63), 2**63, 500)]


@pytest.mark.parametrize("initializer", INITIALIZERS)
def test_keys_without_a_row_read_their_first_value(tmp_path, server, initializer):
    model = Rows(trained_table(initializer=INITIALIZERS[initializer]))
    fe.export_for_serving(model, tmp_path, signatures=model.serve)
    want = inferred(model.serve, {"keys": KEYS})
    assert_served(server, tmp_path, {"keys": KEYS}, want)


@pytest.mark.parametrize("dtype", [tf.float64, tf.float16, tf.bfloat16])
@pytest.mark.parametrize("initializer", ["default", "uniform", "constant"])
def test_types_of_values(tmp_path, server, dtype, initializer):
    table = trained_table(
        value_dtype=dtype, initializer=INITIALIZERS[initializer], train=dtype != tf.float16
    )
    model = Rows(table)
    fe.export_for_serving(model, tmp_path, signatures=model.serve)
    want = inferred(model.serve, {"keys": KEYS})
    assert_served(server, tmp_path, {"keys": KEYS}, want)


def test_a_table_without_rows(tmp_path, server):
    model = Rows(fe.get_embedding_variable("empty", DIM))
    fe.export_for_serving(model, tmp_path, signatures=model.serve)
    want = inferred(model.serve, {"keys": KEYS})
    assert_served(server, tmp_path, {"keys": KEYS}, want)


def test_a_graph_does_not_grow_with_its_tables(tmp_path):
    sizes = []
    for num_keys in (10, 20_000):
        model = Rows(fe.get_embedding_variable("users", DIM))
        model.table.upsert(tf.range(num_keys), rows(num_rows=num_keys))
        folder = tmp_path / str(num_keys)
        fe.export_for_serving(model, folder, signatures=model.serve)
        sizes.append((folder / "saved_model.pb").stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 1000, sizes


def test_exporting_and_serving_change_nothing(tmp_path, server):
    model = Rows(trained_table())
    before = [column.numpy() for column in model.table.export()]
    fe.export_for_serving(model, tmp_path, signatures=model.serve)
    first, _ = server.serve(tmp_path, {"keys": KEYS})
    assert_same(server.serve(tmp_path, {"keys": KEYS})[0], first)
    for got, want in zip(model.table.export(), before, strict=True):
        np.testing.assert_array_equal(got, want)
    model.serve(tf.constant(KEYS))  # first traced by the export, and trains as before
    assert model.table.total_count() > len(before[0])


class Group(tf.Module):
    """Columns of variables and of EmbeddingVariables, looked up in groups."""

    def __init__(self, concat):
        super().__init__()
        users, items = trained_table("users"), trained_table("items")
        self.tables = [users, tf.Variable(rows(1)), items, users, tf.Variable(rows(2, dim=3))]
        if concat:  # tables of one kind, so that one op has one output
            self.tables = [users, items, items, users, users]
        self.concat = concat

    @tf.function(input_signature=list(SPECS.values()))
    def serve(self, ids, indices, dense_shape, weights):
        sparse = tf.SparseTensor(indices, ids, dense_shape)
        results = fe.nn.group_embedding_lookup_sparse(
            self.tables,
            [sparse] * len(self.tables),
            ["sum", "mean", "sqrtn", "mean", "sum"],
            sp_weights=[None, sparse.with_values(weights), None, sparse.with_values(weights), None],
            max_norms=[None, 0.5, 0.4, None, None],
            default_ids=[None, 3, 5, None, None],
            concat=self.concat,
        )
        results = [results] if self.concat else results
        return {f"column_{i}": column for i, column in enumerate(results)}


@pytest.mark.parametrize("concat", [False, True])
def test_groups_become_stock_ops(tmp_path, server, concat):
    model = Group(concat)
    fe.export_for_serving(model, tmp_path, signatures=model.serve)
    for given in (batch(), NO_IDS):
        assert_served(server, tmp_path, given, inferred(model.serve, given))


class ControlFlow(tf.Module):
    """Lookups in functions, branches and loops."""

    def __init__(self):
        super().__init__()
        self.table = trained_table()
        self.scale = tf.Variable(2.0)

    @tf.function
    def look_up(self, ids):
        tf.debugging.assert_less(tf.size(ids), 1000)
        return self.scale * tf.nn.embedding_lookup(self.table, ids)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def serve(self, ids):
        branch = tf.cond(ids[0] > 3, lambda: self.look_up(ids), lambda: -self.look_up(ids + 1))
        case = tf.switch_case(
            tf.cast(ids[0] % 3, tf.int32), [lambda: self.look_up(ids), lambda: branch] * 2
        )
        _, total = tf.while_loop(
            lambda i, total: i < 3,
            lambda i, total: (i + 1, total + self.look_up(ids + tf.cast(i, tf.int64))),
            [0, tf.zeros([tf.size(ids), DIM])],
        )
        mapped = tf.map_fn(
            lambda one: self.look_up(one[None])[0],
            ids,
            fn_output_signature=tf.TensorSpec([DIM], tf.float32),
        )
        return {"branch": branch, "case": case, "total": total, "mapped": mapped}


@pytest.mark.parametrize("first", [1, 5])
def test_functions_branches_and_loops(tmp_path, server, first):
    model = ControlFlow()
    fe.export_for_serving(model, tmp_path, signatures=model.serve)
    given = {"ids": np.array([first, 7, 10**10], np.int64)}
    assert_served(server, tmp_path, given, inferred(model.serve, given))


def test_a_checked_lookup(tmp_path, server):
    model = Lookups(*TABLES["variable"](), "check", FEW_LOOKUPS)
    fe.export_for_serving(model, tmp_path, signatures=model.serve)
    assert_served(server, tmp_path, batch(), inferred(model.serve, batch()))


def test_several_signatures_share_tables(tmp_path, server):
    model = ControlFlow()
    rows_of = tf.function(
        lambda ids: tf.nn.embedding_lookup(model.table, ids),
        input_signature=[tf.TensorSpec([None], tf.int64)],
    )
    fe.export_for_serving(
        model, tmp_path, signatures={"serving_default": model.serve, "rows": rows_of}
    )
    loaded = tf.saved_model.load(tmp_path)
    assert len(loaded.embedding_tables) == 1
    with fe.inference():
        want = rows_of.python_function(tf.constant(KEYS))
    np.testing.assert_allclose(
        loaded.signatures["rows"](tf.constant(KEYS))["output_0"], want, rtol=1e-6
    )


def test_a_loaded_saved_model_is_a_model(tmp_path, server):
    model = Lookups(*TABLES["hash"](), "v2", FEW_LOOKUPS)
    tf.saved_model.save(model, tmp_path / "ours", signatures=model.serve)
    fe.export_for_serving(tf.saved_model.load(tmp_path / "ours"), tmp_path / "stock")
    assert_served(server, tmp_path / "stock", batch(), inferred(model.serve, batch()))


@pytest.mark.parametrize("table", ["variable", "hash", "counter"])
def test_fused_ops_serve_where_their_library_is_loaded(tmp_path, fused_server, table):
    model = Lookups(*TABLES[table](), "v3", FEW_LOOKUPS)
    want = inferred(model.serve, batch())
    fe.export_for_serving(model, tmp_path, "fused", signatures=model.serve)
    got, ops = fused_server.serve(tmp_path, batch(), loader="v1")
    assert ops & OURS
    assert_same(got, want)
    loaded = tf.saved_model.load(tmp_path)  # a server in Python
    assert_same(loaded.signatures["serving_default"](**tensors(batch())), want)
