"""Lookups in tables of several parts, beside graphs of stock ops on the rows of each pair."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.tables import column_of, parts_of, slices_of
from checking import assert_close, densify, like, sparse

tf1 = tf.compat.v1
NUM_IDS = 12
GROUP = fe.nn.group_embedding_lookup_sparse


# --- Tables, and the same by stock ops ---


class Table:
    """A table, and variables of stock TensorFlow with the values of its parts.

    Attributes:
        table: What is looked up in.
        parts: Its parts.
        dense: A variable `[rows, dim]` for each.
        assigned: The operations that give the parts the values of the variables, in a graph.
    """

    def __init__(self, rng, table, parts, shapes):
        self.table, self.parts = table, parts
        values = [tf.cast(rng.standard_normal(shape), parts[0].dtype) for shape in shapes]
        self.dense = [tf.Variable(v) for v in values]
        self.assigned = []
        for part, v in zip(parts, values, strict=True):
            is_keyed = hasattr(part, "upsert")
            made = part.upsert(np.arange(v.shape[0]), v) if is_keyed else part.assign(v)
            self.assigned.append(made)

    def numbers(self, rng, ids):
        """What lookups get beside ids."""
        return None


class Plain(Table):
    """An ordinary table."""

    def __init__(self, rng, dtype):
        shape = [NUM_IDS, 3]
        table = tf.Variable(tf.zeros(shape, dtype))
        super().__init__(rng, table, [table], [shape])

    def rows(self, dense, ids, numbers):
        return tf.gather(dense[0], ids)


class MultiHash(Table):
    """A table whose rows are put together by `operation`; row numbers are by 4."""

    def __init__(self, rng, dtype, operation):
        dims = (2, 3) if operation == "concat" else (3, 3)
        shapes = [[3, dims[0]], [4, dims[1]]]
        table = fe.get_multihash_variable(
            f"hash_{operation}", shapes, operation=operation, dtype=dtype, num_ids=NUM_IDS
        )
        super().__init__(rng, table, table.val_list, shapes)

    def rows(self, dense, ids, numbers):
        quotient, remainder = tf.gather(dense[0], ids // 4), tf.gather(dense[1], ids % 4)
        if self.table.operation == "concat":
            return tf.concat([quotient, remainder], axis=1)
        return quotient * remainder if self.table.operation == "mul" else quotient + remainder


class Blocks(Table):
    """Three blocks of 2; each pair reads as many as its number says."""

    def __init__(self, rng, dtype, partitioner=None):
        table = fe.get_dynamic_dimension_embedding_variable(
            "blocks", 2, 3, value_dtype=dtype, partitioner=partitioner
        )
        super().__init__(rng, table, table.blocks, [[NUM_IDS, 2]] * 3)

    def numbers(self, rng, ids):
        return rng.integers(-1, 5, len(ids))

    def rows(self, dense, ids, numbers):
        masks = [tf.cast(numbers > i, dense[0].dtype)[:, tf.newaxis] for i in range(3)]
        return tf.concat([tf.gather(d, ids) * m for d, m in zip(dense, masks, strict=True)], axis=1)


class Adaptive(Table):
    """Ids below 6 have rows of their own, the others share five rows."""

    def __init__(self, rng, dtype, partitioner=None):
        option = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(filter_freq=10**6))
        table = fe.get_adaptive_embedding_variable(
            "adaptive", 3, 5, value_dtype=dtype, ev_option=option, partitioner=partitioner
        )
        super().__init__(rng, table, [table.hash_weights, table.ev_weights], [[5, 3], [6, 3]])

    def rows(self, dense, ids, numbers):
        buckets = tf.strings.to_hash_bucket_fast(tf.strings.as_string(ids), 5)
        is_own = ids < 6
        own = tf.gather(dense[1], tf.where(is_own, ids, tf.zeros_like(ids)))
        return tf.where(is_own[:, tf.newaxis], own, tf.gather(dense[0], buckets))


KINDS = {
    "plain": Plain,
    "concat": lambda *args: MultiHash(*args, "concat"),
    "add": lambda *args: MultiHash(*args, "add"),
    "mul": lambda *args: MultiHash(*args, "mul"),
    "blocks": Blocks,
    "adaptive": Adaptive,
}
PARTITIONED = {"blocks": Blocks, "adaptive": Adaptive}
PARTITIONER = tf1.fixed_size_partitioner(3)


class Case:
    """A lookup of one table with random ids, weights and options."""

    def __init__(self, rng, table, dtype, **options):
        self.of = table
        num_rows = int(rng.integers(1, 6))
        nnz = int(rng.integers(0, 14))
        self.rows = np.sort(rng.integers(0, num_rows, nnz))
        self.ids = rng.integers(-1, NUM_IDS, nnz)
        self.sp_ids = sparse(self.ids, self.rows, num_rows)
        self.numbers = table.numbers(rng, self.ids)
        self.weights = None
        if rng.random() < 0.5:
            self.weights = tf.Variable(tf.cast(rng.choice([-1.0, 0.0, 0.5, 2.0], nnz), dtype))
        self.combiner = str(rng.choice(["sum", "mean", "sqrtn"]))
        self.max_norm = [None, None, 1.0][rng.integers(3)]
        vars(self).update(options)

    def sp_weights(self):
        return (
            None if self.weights is None else like(self.sp_ids, tf.convert_to_tensor(self.weights))
        )

    def by_stock(self):
        positions = np.arange(len(self.ids))
        rows = self.of.rows(self.of.dense, tf.constant(np.maximum(self.ids, 0)), self.numbers)
        return tf.nn.safe_embedding_lookup_sparse(
            rows if len(self.ids) else tf.zeros([1, rows.shape[1]], rows.dtype),
            like(self.sp_ids, np.where(self.ids < 0, -1, positions)),
            self.sp_weights(),
            combiner=self.combiner,
            max_norm=self.max_norm,
        )

    def sources(self):
        return [] if self.weights is None else [self.weights]


def look_up(cases, **options):
    return GROUP(
        [case.of.table for case in cases],
        [case.sp_ids for case in cases],
        [case.combiner for case in cases],
        [case.sp_weights() for case in cases],
        max_norms=[case.max_norm for case in cases],
        blocknums=[case.numbers for case in cases],
        **options,
    )


def graded(outputs, tape, sources):
    rng = np.random.default_rng(5)
    loss = tf.add_n(
        [tf.reduce_sum(o * tf.cast(rng.standard_normal(o.shape), o.dtype)) for o in outputs]
    )
    return tape.gradient(loss, sources)


def assert_same_grads(got, want, shapes):
    for of_part, of_dense, shape in zip(got, want, shapes, strict=True):
        if of_part is None or of_dense is None:
            assert of_part is None or not np.any(densify(of_part, shape))
            assert of_dense is None or not np.any(densify(of_dense, shape))
            continue
        assert_close(densify(of_part, shape).astype(np.float64), densify(of_dense, shape), 64)


def summed(grads, like_parts):
    """The gradients of whole parts, of those of their partitions."""
    grads, result = iter(grads), []
    for part in like_parts:
        own = [grad for grad in (next(grads) for _ in parts_of(part)) if grad is not None]
        if len(own) > 1:
            values, indices = zip(*[(grad.values, grad.indices) for grad in own], strict=True)
            own = [tf.IndexedSlices(tf.concat(values, 0), tf.concat(indices, 0))]
        result.append(own[0] if own else None)
    return result


def check_equal_to_stock(cases, run=lambda f: f()):
    tables = list({id(case.of): case.of for case in cases}.values())
    weights = list(itertools.chain(*[case.sources() for case in cases]))
    parts = list(itertools.chain(*[table.parts for table in tables]))
    dense = list(itertools.chain(*[table.dense for table in tables]))
    sources = list(itertools.chain(*map(parts_of, parts)))

    def ours():
        with tf.GradientTape() as tape:
            outputs = look_up(cases)
        return outputs, graded(outputs, tape, sources + weights)

    got, grads = run(ours)
    with tf.GradientTape() as tape:
        want = [case.by_stock() for case in cases]
    by_stock = graded(want, tape, dense + weights)
    for of_case, of_stock, case in zip(got, want, cases, strict=True):
        assert_close(of_case, of_stock, 32, err_msg=str(vars(case)))
    of_parts = summed(grads[: len(sources)], parts)
    assert_same_grads(of_parts, by_stock[: len(dense)], [d.shape[0] for d in dense])
    for of_weights, of_stock in zip(grads[len(sources) :], by_stock[len(dense) :], strict=True):
        assert_same_weights_grad(of_weights, of_stock)


def assert_same_weights_grad(got, want):
    assert (got is None) == (want is None)
    if got is not None:
        assert_close(got, want, 64)


@pytest.mark.parametrize("kind", KINDS)
def test_lookups_of_a_kind_are_those_of_stock_ops(kind):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        check_equal_to_stock([Case(rng, KINDS[kind](rng, tf.float64), tf.float64)])


@pytest.mark.parametrize("seed", range(12))
def test_groups_of_all_kinds_are_those_of_stock_ops(seed):
    rng = np.random.default_rng(100 + seed)
    tables = [KINDS[kind](rng, tf.float64) for kind in rng.choice(list(KINDS), 4)]
    cases = [Case(rng, tables[i], tf.float64) for i in rng.integers(0, 4, 6)]
    run = tf.function if seed % 2 else lambda f: f
    check_equal_to_stock(cases, lambda f: run(f)())


@pytest.mark.parametrize("kind", PARTITIONED)
def test_partitioned_parts(kind):
    for seed in range(6):
        rng = np.random.default_rng(200 + seed)
        check_equal_to_stock(
            [Case(rng, PARTITIONED[kind](rng, tf.float64, PARTITIONER), tf.float64)]
        )


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("kind", ["concat", "mul", "blocks", "adaptive"])
def test_other_dtypes(kind, dtype):
    rng = np.random.default_rng(7)
    check_equal_to_stock(
        [Case(rng, KINDS[kind](rng, dtype), dtype, weights=None, combiner="sum", max_norm=None)]
    )


# --- Worked examples of ../shared/reference/compressed_tables.md ---


def test_worked_example_of_blocks():
    ones = tf1.ones_initializer()
    table = fe.get_dynamic_dimension_embedding_variable("items", 2, 2, initializer=ones)
    lookup = fe.nn.fused_embedding_lookup_sparse_v2
    with tf.GradientTape() as tape:
        rows = lookup(table, column_of(7, 9, 7, 5), combiner="sum", blocknums=[2, 1, 2, 0])
        loss = tf.reduce_sum(rows)
    assert rows.numpy().tolist() == [[1] * 4, [1, 1, 0, 0], [1] * 4, [0] * 4]
    grads = tape.gradient(loss, table.blocks)
    assert [slices_of(g) for g in grads] == [{7: [2, 2], 9: [1, 1]}, {7: [2, 2]}]
    assert [block.export().keys.numpy().tolist() for block in table.blocks] == [[7, 9], [7]]
    mean = lookup(table, sparse([7, 9], [0, 0], 1), combiner="mean", blocknums=[2, 1])
    assert mean.numpy().tolist() == [[1, 1, 0.5, 0.5]]


def test_worked_example_of_multihash():
    ones = tf1.ones_initializer()
    table = fe.get_multihash_variable("users", [[2, 2], [2, 2]], "Q-R", "concat", initializer=ones)
    with tf.GradientTape() as tape:
        rows = fe.nn.fused_safe_embedding_lookup_sparse(table, column_of(0, 1, 2, 3))
        loss = tf.reduce_sum(2 * rows)
    assert rows.numpy().tolist() == [[1] * 4] * 4
    grads = tape.gradient(loss, table.val_list)
    assert [slices_of(g) for g in grads] == [{0: [4, 4], 1: [4, 4]}] * 2
    product = fe.get_multihash_variable("products", [[2, 1], [2, 1]], operation="mul")
    product.quotients.assign([[1], [3]])
    product.remainders.assign([[1], [5]])
    bag = sparse([0, 3], [0, 0], 1)
    assert fe.nn.fused_safe_embedding_lookup_sparse(product, bag, combiner="mean").numpy() == 8


def test_no_two_ids_share_both_rows():
    table = fe.get_multihash_variable("users", [[5, 1], [3, 1]], operation="concat", num_ids=15)
    table.quotients.assign(np.arange(5)[:, np.newaxis])
    table.remainders.assign(np.arange(3)[:, np.newaxis])
    rows = fe.nn.fused_safe_embedding_lookup_sparse(table, column_of(*range(15))).numpy()
    assert len({tuple(row) for row in rows}) == 15
    with pytest.raises(ValueError, match="= 15 pairs of rows for the 16 ids of 'users'"):
        fe.get_multihash_variable("users", [[5, 1], [3, 1]], num_ids=16)
    with pytest.raises(tf.errors.InvalidArgumentError, match="multhash_Q"):
        fe.nn.fused_safe_embedding_lookup_sparse(table, column_of(15))


# --- Training ---


@pytest.mark.parametrize("kind", ["concat", "mul", "blocks", "adaptive"])
def test_fifty_adagrad_steps_in_a_session(kind):
    """The parts train as variables of stock ops do."""
    with tf.Graph().as_default(), tf1.Session() as session:
        rng = np.random.default_rng(3)
        ids = tf1.placeholder(tf.int64, [None])
        numbers = tf1.placeholder(tf.int64, [None])
        table = KINDS[kind](rng, tf.float32)
        pairs = tf.range(tf.size(ids, out_type=tf.int64))
        sp_ids = tf.SparseTensor(
            tf.stack([pairs // 2, pairs % 2], 1), ids, [tf.size(ids, out_type=tf.int64) // 2, 2]
        )
        arguments = {"blocknums": numbers} if kind == "blocks" else {}
        ours = fe.nn.fused_safe_embedding_lookup_sparse(table.table, sp_ids, **arguments)
        rows = table.rows(table.dense, ids, numbers)
        stock = tf.nn.safe_embedding_lookup_sparse(
            rows, tf.SparseTensor(sp_ids.indices, pairs, sp_ids.dense_shape)
        )
        steps = []
        for output, variables in ((ours, table.parts), (stock, table.dense)):
            loss = tf.reduce_sum(tf.square(output - 1.0))
            optimizer = tf1.train.AdagradOptimizer(0.1, name=f"Adagrad{len(steps)}")
            steps.append(optimizer.minimize(loss, var_list=variables))
        session.run(tf1.global_variables_initializer())
        session.run(table.assigned)
        for _ in range(50):
            feeds = {ids: rng.integers(0, NUM_IDS, 8), numbers: rng.integers(0, 4, 8)}
            results = session.run([ours, stock], feeds)
            assert_close(*results, 256)
            session.run(steps, feeds)


def test_checkpoints_have_the_parts(tmp_path):
    def make(parts):
        partitioner = None if parts == 1 else tf1.fixed_size_partitioner(parts)
        return fe.get_dynamic_dimension_embedding_variable("items", 2, 2, partitioner=partitioner)

    table = make(3)
    lookup = fe.nn.fused_safe_embedding_lookup_sparse
    numbers = [1, 2, 2, 1, 2]
    want = lookup(table, column_of(1, 2, 3, 4, 5), blocknums=numbers).numpy()
    path = tf.train.Checkpoint(table=table).write(str(tmp_path / "model"))
    restored = make(1)
    tf.train.Checkpoint(table=restored).read(path).assert_consumed()
    with fe.inference():
        got = lookup(restored, column_of(1, 2, 3, 4, 5), blocknums=numbers).numpy()
    assert got.tolist() == want.tolist()
    assert [b.total_count().numpy() for b in restored.blocks] == [5, 3]


def test_plain_tables_beside_composed_ones_share_an_op():
    """One op looks up all EmbeddingVariables of a group, those that have counted already too."""
    with tf.Graph().as_default():
        table = fe.get_embedding_variable("plain", 2)
        composed = fe.get_dynamic_dimension_embedding_variable("items", 2, 2, blocknums="frequency")
        ids = tf.SparseTensor([[0, 0]], tf1.placeholder(tf.int64, [1]), [1, 1])
        GROUP([table, composed], [ids] * 2, ["sum"] * 2)
        types = [op.type for op in tf1.get_default_graph().get_operations()]
    assert types.count("EmbeddingVariableGroupLookup") == 1
    assert types.count("EmbeddingVariableAdmit") == 1
