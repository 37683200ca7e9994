"""Every lookup on EmbeddingVariables: as stock TensorFlow on a dense table of the same rows."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import oracle.lookup
from cases.nn import BATCH, DIM, MODES, NUM_IDS, Batch, make_table, run
from cases.tables import make_variable, parts_of, run_table
from checking import VALUE_DTYPES, assert_rounded_once, densify, dtype_name, like, sparse

PARTITIONS = (None, 1, 3)
WEIGHTS = np.array(BATCH.weights)
# For the lookups that prune nothing: rows 1 and 5 are empty.
VALID = Batch([3, 1, 3, 0, 6, 2], [0, 0, 2, 2, 3, 4], 6, [0.5, 2.0, 1.5, 1.0, 0.25, 3.0])
stock_safe = tf.compat.v1.nn.safe_embedding_lookup_sparse
stock_unsafe = tf.compat.v1.nn.embedding_lookup_sparse


def fused_safe(version):
    return functools.partial(fe.nn.fused_safe_embedding_lookup_sparse, fusion_version=version)


def group_of_one(table, ids, weights=None, combiner="mean", max_norm=None, default_id=None):
    [combined] = fe.nn.group_embedding_lookup_sparse(
        [table],
        [ids],
        [combiner],
        None if weights is None else [weights],
        max_norms=[max_norm],
        default_ids=[default_id],
    )
    return combined


# Each prunes and fills as stock's safe lookup does.
SAFE = {
    "fused_safe_v1": fused_safe("v1"),
    "fused_safe_v2": fused_safe("v2"),
    "fused_safe_v3": fused_safe("v3"),
    "group": group_of_one,
    "fused_v1": functools.partial(fe.nn.fused_embedding_lookup_sparse, prune_invalid_ids=True),
    "fused_v2": functools.partial(fe.nn.fused_embedding_lookup_sparse_v2, prune=True),
    "safe": fe.nn.safe_embedding_lookup_sparse,
    "safe_compat": fe.compat.v1.nn.safe_embedding_lookup_sparse,
}
UNSAFE = {
    "unsafe": fe.nn.embedding_lookup_sparse,
    "unsafe_compat": fe.compat.v1.nn.embedding_lookup_sparse,
}


def occurrences(batch, weights, combiner):
    """Key -> how often it is looked up, of those that are not pruned."""
    weights = np.ones(len(batch.ids)) if weights is None else weights
    is_kept = np.array(batch.ids) >= 0
    if combiner != "sum":
        is_kept &= weights > 0
    return collections.Counter(np.array(batch.ids)[is_kept].tolist())


def assert_equals_stock(got, want, batch, tol=1e-12):
    """`want` is the Outcome of stock on a dense table."""
    np.testing.assert_allclose(got.out, want.out, rtol=tol, atol=tol)
    slices = tf.IndexedSlices(want.grad_rows[0], want.grad_ids[0])
    dense = densify(slices, NUM_IDS)
    rows = np.zeros_like(dense)
    for key, row in got.grads.items():
        rows[key] = row
    np.testing.assert_allclose(rows, dense, rtol=tol, atol=tol)
    if want.weights_grad is not None:
        np.testing.assert_allclose(got.weights_grad, want.weights_grad, rtol=tol, atol=tol)


def compare(mode, lookup, stock, batch, weights, num_partitions, **options):
    got = run_table(
        mode,
        functools.partial(lookup, **options),
        make_table(),
        batch,
        weights,
        num_partitions=num_partitions,
    )
    want = run("eager", functools.partial(stock, **options), [make_table()], batch, weights)
    assert_equals_stock(got, want, batch)
    return got


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("combiner", oracle.lookup.COMBINERS)
@pytest.mark.parametrize("max_norm", [None, 5.0])
@pytest.mark.parametrize("default_id", [None, 0, 5])
@pytest.mark.parametrize("num_partitions", [None, 3])
@pytest.mark.parametrize("name", SAFE)
def test_safe_lookups_equal_stock(name, num_partitions, combiner, max_norm, default_id, weights):
    options = {"combiner": combiner, "max_norm": max_norm, "default_id": default_id}
    got = compare("eager", SAFE[name], stock_safe, BATCH, weights, num_partitions, **options)
    counts = occurrences(BATCH, weights, combiner)
    # What is filled into empty rows is looked up and trained, and not counted.
    filled = set() if default_id is None else {default_id}
    assert set(got.grads) == set(counts) | filled
    assert got.frequencies == {key: counts[key] for key in range(NUM_IDS)}


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("default_id", [None, 5])
@pytest.mark.parametrize("num_partitions", PARTITIONS)
@pytest.mark.parametrize("mode", ["function", "session"])
@pytest.mark.parametrize("name", ["fused_safe_v1", "fused_safe_v2", "fused_safe_v3", "safe"])
def test_safe_lookups_equal_stock_in_graphs(name, mode, num_partitions, default_id, weights):
    options = {"combiner": "sqrtn", "max_norm": 2.0, "default_id": default_id}
    got = compare(mode, SAFE[name], stock_safe, BATCH, weights, num_partitions, **options)
    counts = occurrences(BATCH, weights, "sqrtn")
    assert got.frequencies == {key: counts[key] for key in range(NUM_IDS)}


@pytest.mark.parametrize("weights", [None, np.array(VALID.weights)], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("combiner", oracle.lookup.COMBINERS)
@pytest.mark.parametrize("num_partitions", PARTITIONS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_lookups_equal_stock(name, mode, num_partitions, combiner, weights):
    options = {"combiner": combiner, "max_norm": 2.0}
    got = compare(mode, UNSAFE[name], stock_unsafe, VALID, weights, num_partitions, **options)
    counts = occurrences(VALID, None, "sum")
    assert set(got.grads) == set(counts)
    assert got.frequencies == {key: counts[key] for key in range(NUM_IDS)}


@pytest.mark.parametrize("num_partitions", PARTITIONS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SAFE)
def test_int32_ids(name, mode, num_partitions):
    got = run_table(mode, SAFE[name], make_table(), BATCH, None, np.int32, num_partitions)
    want = run("eager", stock_safe, [make_table()], BATCH, None, np.int32)
    assert_equals_stock(got, want, BATCH)


@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_dtypes(version, dtype, weighted, max_norm):
    rows = tf.cast(make_table(), dtype).numpy()
    weights = tf.cast(WEIGHTS, dtype).numpy() if weighted else None
    exact = None if weights is None else weights.astype(np.float64)
    lookup = functools.partial(fused_safe(version), max_norm=max_norm, combiner="sqrtn")
    got = run_table("eager", lookup, rows, BATCH, weights, num_partitions=2)
    args = (rows.astype(np.float64), *BATCH[:3], exact)
    want = oracle.lookup.safe_lookup(*args, combiner="sqrtn", max_norm=max_norm)
    assert got.out.dtype == rows.dtype
    assert_rounded_once(got.out, want, dtype)


@pytest.mark.parametrize("num_partitions", PARTITIONS)
@pytest.mark.parametrize("name", SAFE)
def test_no_key_stands_for_an_empty_row(name, num_partitions):
    """With default_id None nothing is looked up for an empty row: no key is made."""
    rows = np.zeros([0, DIM])
    batch = Batch([9, -1], [1, 3], 5, [1.0, 1.0])
    got = run_table("eager", SAFE[name], rows, batch, num_partitions=num_partitions)
    assert got.frequencies == {9: 1}
    assert set(got.grads) == {9}
    np.testing.assert_array_equal(got.out[[0, 2, 3, 4]], np.zeros([4, DIM]))


@pytest.mark.parametrize("num_partitions", PARTITIONS)
@pytest.mark.parametrize("name", SAFE)
def test_a_default_id_is_made_and_not_counted(name, num_partitions):
    rows = np.zeros([0, DIM])
    batch = Batch([9, -1, 4, 4], [1, 3, 1, 2], 5, [1.0] * 4)
    lookup = functools.partial(SAFE[name], default_id=4)
    got = run_table("eager", lookup, rows, batch, num_partitions=num_partitions)
    assert got.frequencies == {4: 2, 9: 1}
    lookup = functools.partial(SAFE[name], default_id=7)
    got = run_table("eager", lookup, rows, batch, num_partitions=num_partitions)
    assert got.frequencies == {4: 2, 7: 0, 9: 1}


@pytest.mark.parametrize("name", ["fused_safe_v1", "fused_safe_v2", "fused_v1", "fused_v2"])
def test_a_negative_default_id_is_none(name):
    lookup = functools.partial(SAFE[name], default_id=-1)
    got = run_table("eager", lookup, np.zeros([0, DIM]), Batch([9], [1], 3, [1.0]))
    assert got.frequencies == {9: 1}


@pytest.mark.parametrize("name", ["safe", "safe_compat"])
def test_a_negative_default_id_of_the_stand_ins_is_an_error_on_an_empty_row(name):
    variable, _ = make_variable(make_table())
    lookup = functools.partial(SAFE[name], variable, default_id=-1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="default_id = -1"):
        lookup(sparse([1], [1], 3))
    assert int(variable.get_frequency(1)) == 0
    np.testing.assert_allclose(lookup(sparse([1], [0], 1)), make_table()[1:2])


EXTREME = [-1, -(2**63), 2**63 - 1, 5, -1, 0]


@pytest.mark.parametrize("strategy", ["hash", "mod_ev"])
@pytest.mark.parametrize("num_partitions", PARTITIONS)
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_without_pruning_every_int64_is_a_key(version, num_partitions, strategy):
    partitioner = num_partitions and tf.compat.v1.fixed_size_partitioner(num_partitions)
    variable = fe.get_embedding_variable(
        "table",
        2,
        initializer=fe.DebugInitializer(),
        partitioner=partitioner,
        partition_strategy=strategy,
    )
    out = fused_safe(version)(variable, sparse(EXTREME, range(6), 7), prune=False, combiner="sum")
    want = [key % 100_000 for key in EXTREME] + [0]
    np.testing.assert_array_equal(out, np.repeat(np.float32(want)[:, None], 2, axis=1))
    assert variable.get_frequency(EXTREME).numpy().tolist() == [2, 1, 1, 1, 2, 1]
    assert int(variable.total_count()) == 5


@pytest.mark.parametrize("num_partitions", PARTITIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", [*SAFE, *UNSAFE])
def test_ragged_ids(name, weighted, num_partitions):
    ids = tf.ragged.constant([[3, 1], [2], [3, 3, 0]], dtype=tf.int64)
    weights = tf.ragged.constant([[0.5, 2.0], [1.0], [3.0, 1.0, 0.25]]) if weighted else None
    rows = make_table(np.float32)
    stock = (tf.nn.safe_embedding_lookup_sparse, tf.nn.embedding_lookup_sparse)[name in UNSAFE]
    variable, _ = make_variable(rows, num_partitions)
    got = (SAFE | UNSAFE)[name](variable, ids, weights, combiner="mean")
    want = stock(tf.constant(rows), ids, weights, combiner="mean")
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert variable.get_frequency([0, 1, 2, 3, 4]).numpy().tolist() == [1, 1, 1, 3, 0]


@pytest.mark.parametrize("num_partitions", PARTITIONS)
@pytest.mark.parametrize("name", SAFE)
def test_ids_of_rank_3(name, num_partitions):
    indices = [[0, 0, 0], [0, 2, 1], [1, 0, 0], [1, 0, 1], [1, 1, 0]]
    ids = tf.SparseTensor(indices, tf.constant([3, 1, 2, 3, -1], tf.int64), [2, 3, 2])
    variable, _ = make_variable(make_table(), num_partitions)
    got = SAFE[name](variable, ids, combiner="sum")
    want = tf.nn.safe_embedding_lookup_sparse(tf.constant(make_table()), ids, combiner="sum")
    assert got.shape == want.shape == (2, 3, DIM)
    np.testing.assert_allclose(got, want)
    assert variable.get_frequency([0, 1, 2, 3]).numpy().tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize("num_partitions", PARTITIONS)
@pytest.mark.parametrize("name", [*SAFE, *UNSAFE])
def test_no_ids(name, num_partitions):
    variable, _ = make_variable(make_table(), num_partitions)
    ids = tf.SparseTensor(np.zeros([0, 2], np.int64), np.zeros(0, np.int64), [3, 1])
    out = (SAFE | UNSAFE)[name](variable, ids, None)
    assert out.shape == ((0 if name in UNSAFE else 3), DIM)
    np.testing.assert_array_equal(out, np.zeros(out.shape))
    assert int(variable.total_count()) == NUM_IDS


@pytest.mark.parametrize("strategy", ["div", "mod", "mod_ev", "hash"])
def test_the_partition_strategy_is_the_variables(strategy):
    """That of a lookup is not looked at: rows would be looked for where they are not."""
    variable, _ = make_variable(make_table(), 3)
    lookup = functools.partial(fused_safe("v2"), partition_strategy=strategy, combiner="sum")
    got = lookup(variable, sparse(*BATCH[:3]))
    np.testing.assert_allclose(
        got, oracle.lookup.safe_lookup(make_table(), *BATCH[:3], combiner="sum")
    )
    assert int(variable.total_count()) == NUM_IDS


@pytest.mark.parametrize("num_partitions", PARTITIONS)
@pytest.mark.parametrize("name", [*SAFE, *UNSAFE])
def test_static_shapes(name, num_partitions):
    with tf.Graph().as_default():
        variable, _ = make_variable(make_table(), num_partitions)
        ids = tf.compat.v1.sparse_placeholder(tf.int64, [4, None])
        out = (SAFE | UNSAFE)[name](variable, ids, None)
        assert out.shape[-1] == DIM


# --- In training and in evaluation ---


@pytest.mark.parametrize("num_partitions", PARTITIONS)
@pytest.mark.parametrize("name", [*SAFE, *UNSAFE, "gather"])
def test_evaluation_changes_nothing(name, num_partitions):
    variable = make_variable(make_table(), num_partitions)[0]
    before = variable.export()
    ids = sparse([1, 100, 1, 7], [0, 0, 1, 2], 3)
    with fe.inference():
        if name == "gather":
            tf.nn.embedding_lookup(variable, ids.values)
        else:
            (SAFE | UNSAFE)[name](variable, ids, None)
    for field, got in variable.export()._asdict().items():
        np.testing.assert_array_equal(got, getattr(before, field), field)


def test_what_was_traced_inside_inference_keeps_it():
    variable = make_variable(make_table())[0]

    @tf.function
    def lookup(ids):
        return tf.nn.embedding_lookup(variable, ids)

    with fe.inference():
        lookup(tf.constant([50], tf.int64))
    lookup(tf.constant([50], tf.int64))
    assert int(variable.total_count()) == NUM_IDS


def test_a_variable_that_is_not_trainable_is_only_read():
    variable = make_variable(make_table(), trainable=False)[0]
    with tf.GradientTape() as tape:
        out = fused_safe("v2")(variable, sparse([1, 50], [0, 1], 2))
    assert int(variable.total_count()) == NUM_IDS
    assert tape.watched_variables() == ()
    np.testing.assert_allclose(out[0], make_table()[1])


@pytest.mark.parametrize("name", [*SAFE, *UNSAFE])
def test_a_lookup_probes_once_for_each_key(name):
    variable = make_variable(make_table())[0]
    before = int(variable.statistics()["index_probes"])
    (SAFE | UNSAFE)[name](variable, sparse([1, 2, 1, 1, 7], [0, 0, 1, 2, 2], 3), None)
    assert int(variable.statistics()["index_probes"]) - before == 3


@pytest.mark.parametrize("num_partitions", PARTITIONS)
@pytest.mark.parametrize("name", [*SAFE, *UNSAFE])
def test_a_training_step_probes_once_for_each_key(name, num_partitions):
    """The update takes the rows from the lookup: it does not look for them again."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable, upsert = make_variable(make_table(), num_partitions)
        out = (SAFE | UNSAFE)[name](variable, sparse([1, 2, 1, 1, 7], [0, 0, 1, 2, 2], 3), None)
        train = tf.compat.v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(out**2))
        session.run([upsert, tf.compat.v1.global_variables_initializer()])
        probes = variable.statistics()["index_probes"]
        for _ in range(3):
            before = session.run(probes)
            session.run(train)
            assert session.run(probes) - before == 3


# --- Stock functions ---


@pytest.mark.parametrize("mode", MODES)
def test_stock_embedding_lookup(mode):
    def lookup(variable, sp_ids, _):
        ids = tf.reshape(sp_ids.values, [3, 2])
        return tf.reduce_sum(tf.nn.embedding_lookup(variable, ids), axis=1)

    batch = Batch([3, 1, 3, 0, 6, 3], [0, 0, 1, 1, 2, 2], 3, [1.0] * 6)
    got = run_table(mode, lookup, make_table(), batch)
    want = run("eager", lookup, [make_table()], batch)
    assert_equals_stock(got, want, batch)
    counts = occurrences(batch, None, "sum")
    assert got.frequencies == {key: counts[key] for key in range(NUM_IDS)}


@pytest.mark.parametrize("function", [tf.nn.embedding_lookup, tf.compat.v1.nn.embedding_lookup])
@pytest.mark.parametrize("ids", [5, [5], [[5, 6], [6, 7]], np.int32([[5]])])
def test_stock_embedding_lookup_of_any_rank(function, ids):
    variable = make_variable(make_table())[0]
    want = tf.nn.embedding_lookup(make_table(), ids)
    np.testing.assert_array_equal(function(variable, ids), want)
    np.testing.assert_array_equal(tf.gather(variable, ids), want)
    np.testing.assert_array_equal(function([variable], ids), want)


def test_stock_embedding_lookup_clips():
    variable = make_variable(make_table())[0]
    want = tf.nn.embedding_lookup(make_table(), [3, 6], max_norm=1.0)
    np.testing.assert_allclose(tf.nn.embedding_lookup(variable, [3, 6], max_norm=1.0), want)


IDS = sparse([1, 2], [0, 1], 2)
DENSE_READS = {
    "safe_embedding_lookup_sparse": lambda v: tf.nn.safe_embedding_lookup_sparse(v, IDS),
    "safe_embedding_lookup_sparse_v1": lambda v: stock_safe(v, IDS),
    "list_of_one": lambda v: tf.nn.safe_embedding_lookup_sparse([v], IDS),
    "add": lambda v: v + 1.0,
    "convert": lambda v: tf.convert_to_tensor(v),
    "identity": lambda v: tf.identity(v),
    "array": lambda v: np.asarray(v),
    "read_value": lambda v: v.read_value(),
    "value": lambda v: v.value(),
    "slice": lambda v: v[0],
    "assign": lambda v: v.assign(tf.constant(make_table())),
    "assign_add": lambda v: v.assign_add(make_table()),
    "scatter_update": lambda v: v.scatter_update(tf.IndexedSlices(make_table()[:1], [0])),
    "matmul": lambda v: tf.matmul(make_table(), v),
}


@pytest.mark.parametrize("case", DENSE_READS)
def test_dense_reads_say_what_to_do_instead(case):
    variable = make_variable(make_table())[0]
    with pytest.raises(NotImplementedError, match=r"'table:0'.*fe\.nn\.safe"):
        DENSE_READS[case](variable)


PARTITIONED_READS = {
    "safe_embedding_lookup_sparse": lambda v: tf.nn.safe_embedding_lookup_sparse(v, IDS),
    "embedding_lookup_sparse": lambda v: tf.nn.embedding_lookup_sparse(v, IDS, None),
    "convert": lambda v: tf.convert_to_tensor(v),
    "as_tensor": lambda v: v.as_tensor(),
    "add": lambda v: v + tf.constant(1.0),
}


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "function"])
@pytest.mark.parametrize("case", PARTITIONED_READS)
def test_stock_functions_refuse_partitioned_ones(case, wrap):
    variable = make_variable(make_table(), 3)[0]
    with pytest.raises((NotImplementedError, TypeError), match=r"table.*fe\.nn\.safe"):
        wrap(lambda: PARTITIONED_READS[case](variable))()
    assert int(variable.total_count()) == NUM_IDS


# --- Wrong arguments ---


def test_lists_must_be_all_partitions_of_one():
    one, other = make_variable(make_table())[0], make_variable(make_table(), name="other")[0]
    parts = list(make_variable(make_table(), 3)[0])
    for params in ([one, other], parts[:2], parts[::-1], [parts[0], make_table()], [one, one]):
        with pytest.raises((ValueError, TypeError), match="EmbeddingVariable"):
            fused_safe("v2")(params, IDS)
    np.testing.assert_allclose(fused_safe("v2")(parts, IDS), make_table()[[1, 2]])
    np.testing.assert_allclose(fused_safe("v2")([one], IDS), make_table()[[1, 2]])


def test_string_ids_are_an_error():
    variable = make_variable(make_table())[0]
    ids = tf.SparseTensor([[0, 0]], ["a"], [1, 1])
    for name in ("fused_safe_v1", "fused_safe_v2"):
        with pytest.raises(TypeError, match="int32 or int64"):
            SAFE[name](variable, ids)
    for method in (variable.get_frequency, variable.get_version, variable.erase):
        with pytest.raises(TypeError, match=r"keys must be int32 or int64.*to_hash_bucket"):
            method(["a"])


def test_weights_of_another_length_are_an_error():
    variable = make_variable(make_table())[0]
    with pytest.raises(ValueError, match="one weight for each id"):
        fused_safe("v2")(variable, IDS, tf.constant([1.0]))


def test_two_lookups_add_up():
    variable = make_variable(make_table())[0]
    with tf.GradientTape() as tape:
        first = fused_safe("v2")(variable, sparse([1, 2], [0, 1], 2), combiner="sum")
        second = fused_safe("v1")(variable, sparse([2, 3], [0, 1], 2), combiner="sum")
        loss = tf.reduce_sum(first) + tf.reduce_sum(2.0 * second)
    grad = densify(tape.gradient(loss, parts_of(variable))[0], NUM_IDS)
    np.testing.assert_allclose(grad[[1, 2, 3]], [[1.0] * DIM, [3.0] * DIM, [2.0] * DIM])
    assert variable.get_frequency([1, 2, 3]).numpy().tolist() == [1, 2, 1]


def test_weighted_ids_of_a_sparse_tensor():
    variable = make_variable(make_table())[0]
    weights = like(IDS, tf.constant([2.0, 3.0], tf.float64))
    got = fused_safe("v2")(variable, IDS, weights, combiner="sum")
    np.testing.assert_allclose(got, make_table()[[1, 2]] * [[2.0], [3.0]])
