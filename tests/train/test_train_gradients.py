"""What users do to gradients between computing and applying them gives stock's numbers."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.training import (
    BATCHES,
    DIM,
    ROWS,
    assert_trains_as_stock,
    loss_of,
    make_stock,
    make_table,
    read,
    train,
    v1,
)
from checking import assert_close
from fused_embedding.train.apply import sum_duplicates


def adagrad():
    return v1.train.AdagradOptimizer(0.1)  # a duplicate that is not summed gives other numbers


def lookup_loss(table, ids, weight=1.0):
    return loss_of(tf.nn.embedding_lookup(table, ids), weight)


def slices_of(pair):
    grad, _ = pair
    assert isinstance(grad, tf.IndexedSlices)
    return grad


@pytest.mark.parametrize("max_norm", [0.1, 100.0])
def test_clip_by_global_norm(max_norm):
    def build(table, ids):
        # What stock's norm counts are the rows before duplicates are summed: take distinct ids.
        optimizer = adagrad()
        ((grad, _),) = optimizer.compute_gradients(lookup_loss(table, tf.unique(ids)[0]))
        (clipped,), _ = tf.clip_by_global_norm([grad], max_norm)
        return optimizer.apply_gradients([(clipped, table)])

    assert_trains_as_stock(build)


def test_clip_by_norm():
    def build(table, ids):
        optimizer = adagrad()
        ((grad, _),) = optimizer.compute_gradients(lookup_loss(table, tf.unique(ids)[0]))
        return optimizer.apply_gradients([(tf.clip_by_norm(grad, 0.3), table)])

    assert_trains_as_stock(build)


def test_clipped_gradient_keeps_the_row_handles():
    with tf.Graph().as_default() as graph:
        table, _ = make_table()
        optimizer = adagrad()
        ((grad, _),) = optimizer.compute_gradients(lookup_loss(table, [1, 2]))
        (clipped,), _ = tf.clip_by_global_norm([grad], 1.0)
        optimizer.apply_gradients([(clipped, table)])
        (apply,) = [op for op in graph.get_operations() if op.type == "EmbeddingVariableApply"]
        assert apply.inputs[2].op.type == "EmbeddingVariableLookup"


def test_regularizer_on_the_rows():
    def build(table, ids):
        rows = tf.nn.embedding_lookup(table, ids)
        return adagrad().minimize(loss_of(rows) + 0.3 * tf.nn.l2_loss(rows))

    assert_trains_as_stock(build)


def test_two_lookups_in_a_loss():
    """Their gradients are concatenated: ids that both have must be summed."""

    def build(table, ids):
        first, second = lookup_loss(table, ids), lookup_loss(table, ids[1:], 3.0)
        return adagrad().minimize(first + second)

    assert_trains_as_stock(build)


def test_two_lookups_of_the_same_ids():
    def build(table, ids):
        distinct = tf.unique(ids)[0]
        loss = lookup_loss(table, distinct) + lookup_loss(table, distinct, 3.0)
        return adagrad().minimize(loss)

    assert_trains_as_stock(build)


def apply_ops(graph):
    return [op for op in graph.get_operations() if op.type == "EmbeddingVariableApply"]


def test_two_tables_of_the_same_keys():
    """A lookup of the same keys in another table has row handles of that table."""
    with tf.Graph().as_default() as graph, v1.Session() as session:
        tables, initializers = zip(*(make_table(name) for name in ("a", "b")), strict=True)
        keys = tf.constant([3, 1], tf.int64)
        loss = tf.add_n([loss_of(table.lookup(keys)) for table in tables])
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        (apply,) = apply_ops(graph)
        for i, table in enumerate(tables):
            assert apply.inputs[i] is table.handle
            assert apply.inputs[4 + i].op.inputs[0] is table.handle
        session.run([v1.global_variables_initializer(), initializers])
        session.run(train_op)
        rows = session.run([read(table) for table in tables])
        np.testing.assert_array_equal(rows[0], rows[1])
        assert not np.array_equal(rows[0], ROWS)


def test_two_lookups_of_one_keys_tensor():
    """A step runs, and counts, the lookup that its loss needs, and not the other one."""
    with tf.Graph().as_default(), v1.Session() as session:
        table = fe.get_embedding_variable("table", embedding_dim=DIM, initializer=1.0)
        keys = tf.constant([3, 1], tf.int64)
        table.lookup(keys)
        needed = table.lookup(keys)
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(needed))
        session.run(v1.global_variables_initializer())
        session.run(train_op)
        rows = session.run(read(table))
        assert_close(rows[[1, 3]], np.full((2, DIM), 0.9))
        assert session.run(table.get_frequency(keys)).tolist() == [1, 1]


def test_functions_have_the_row_handles():
    table, _ = make_table("in_function")
    optimizer = adagrad()

    @tf.function
    def step():
        optimizer.minimize(lambda: lookup_loss(table, [1, 2]))

    (apply,) = apply_ops(step.get_concrete_function().graph)
    assert apply.inputs[2].op.type == "EmbeddingVariableLookup"


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_sum_of_duplicates(dtype):
    """16-bit rows are summed in float32: alone, 1 + 1 + ... ends at 256 or 2048."""
    count = 4096
    grad = tf.IndexedSlices(tf.ones([count, 1], dtype), tf.repeat([7, -1], [count - 1, 1]))
    keys, rows = sum_duplicates(grad)
    assert (keys.dtype, rows.dtype) == (tf.int64, dtype)
    assert keys.numpy().tolist() == [7, -1]
    want = tf.cast([[count - 1], [1]], dtype)
    np.testing.assert_array_equal(rows, want)


@pytest.mark.parametrize("num_towers", [2, 3])
def test_tower_averaging(num_towers):
    """The averages of the multi-tower programs of TF1: values and indices concatenated."""

    def build(table, ids):
        optimizer = adagrad()
        towers = []
        for i in range(num_towers):
            tower_loss = lookup_loss(table, ids[i:], 1.0 + i)
            towers += [slices_of(p) for p in optimizer.compute_gradients(tower_loss, [table])]
        average = tf.IndexedSlices(
            tf.concat([g.values for g in towers], axis=0) / num_towers,
            tf.concat([g.indices for g in towers], axis=0),
        )
        return optimizer.apply_gradients([(average, table)])

    assert_trains_as_stock(build)


@pytest.mark.parametrize("num_to_aggregate", [1, 2])
def test_accumulated_gradient(num_to_aggregate):
    """Micro-batches gathered in an accumulator, applied together."""

    def build(table, ids):
        optimizer = adagrad()
        accumulator = tf.compat.v1.SparseConditionalAccumulator(tf.float32, shape=[None, DIM])
        adds = []
        for i in range(num_to_aggregate):
            # Stock's accumulator divides by how often an index occurs: take distinct ids.
            loss = lookup_loss(table, tf.unique(ids[i:])[0])
            ((grad, _),) = optimizer.compute_gradients(loss, [table])
            adds.append(accumulator.apply_grad(grad.indices, grad.values, local_step=10**6))
        with tf.control_dependencies(adds):
            mean = accumulator.take_indexed_slices_grad(num_to_aggregate)
        return optimizer.apply_gradients([(mean, table)])

    assert_trains_as_stock(build)


@pytest.mark.parametrize("gate", ["GATE_NONE", "GATE_OP", "GATE_GRAPH"])
def test_gates(gate):
    def build(table, ids):
        w = v1.get_variable("w", initializer=tf.ones([DIM]), use_resource=True)
        loss = loss_of(tf.nn.embedding_lookup(table, ids) * w)
        return adagrad().minimize(loss, gate_gradients=getattr(v1.train.Optimizer, gate))

    assert_trains_as_stock(build)


def test_aggregation_method():
    def build(table, ids):
        loss = lookup_loss(table, ids) + lookup_loss(table, ids[1:])
        method = tf.AggregationMethod.EXPERIMENTAL_ACCUMULATE_N
        return adagrad().minimize(loss, aggregation_method=method)

    assert_trains_as_stock(build)


@pytest.fixture(params=["switch_and_merge", "if_op"])
def control_flow(request):
    """TF1's and TF2's control flow, in graphs of sessions."""
    was_v2 = v1.control_flow_v2_enabled()
    (v1.enable_control_flow_v2 if request.param == "if_op" else v1.disable_control_flow_v2)()
    yield request.param
    (v1.enable_control_flow_v2 if was_v2 else v1.disable_control_flow_v2)()


COND_PROGRAMS = {
    "one_branch": lambda table, ids: tf.cond(
        ids[0] > 2, lambda: lookup_loss(table, ids), lambda: tf.constant(0.0)
    ),
    "other_branch": lambda table, ids: tf.cond(
        ids[0] > 2, lambda: tf.constant(0.0), lambda: lookup_loss(table, ids)
    ),
    "both_branches": lambda table, ids: tf.cond(
        ids[0] > 2, lambda: lookup_loss(table, ids), lambda: lookup_loss(table, ids + 0, 3.0)
    ),
    "twice_in_a_branch": lambda table, ids: tf.cond(
        ids[0] > 2,
        lambda: lookup_loss(table, ids) + lookup_loss(table, ids[2:], 2.0),
        lambda: tf.constant(0.0),
    ),
    "and_outside": lambda table, ids: (
        lookup_loss(table, ids[1:], 0.5)
        + tf.cond(ids[0] > 2, lambda: lookup_loss(table, ids), lambda: tf.constant(0.0))
    ),
    "nested": lambda table, ids: tf.cond(
        ids[0] > 2,
        lambda: tf.cond(
            ids[0] > 6, lambda: lookup_loss(table, ids), lambda: lookup_loss(table, ids, 3.0)
        ),
        lambda: tf.constant(0.0),
    ),
}


@pytest.mark.parametrize("program", COND_PROGRAMS)
def test_cond(control_flow, program):
    """Whichever branch is taken, and an ordinary variable is trained in both."""
    weights = {}

    def build(table, ids):
        w = v1.get_variable("w", initializer=tf.ones([]), use_resource=True)
        loss = COND_PROGRAMS[program](table, ids) + w * w
        step = v1.train.get_or_create_global_step()
        with tf.control_dependencies([adagrad().minimize(loss, step)]):
            kept = weights.setdefault(type(table).__name__, [])
            return tf.numpy_function(
                lambda *v: kept.append(v) or np.int64(0),
                [step.read_value(), w.read_value()],
                tf.int64,
            )

    assert_trains_as_stock(build)
    got, want = weights.values()
    assert [int(step) for step, _ in got] == list(range(1, len(BATCHES) + 1))
    assert_close(np.array([w for _, w in got]), np.array([w for _, w in want]))


@pytest.mark.parametrize("program", COND_PROGRAMS)
def test_cond_in_a_function(program):
    def build(table, ids):
        return adagrad().minimize(COND_PROGRAMS[program](table, ids))

    want = train(make_stock, build, BATCHES)
    table, _ = make_table(f"cond_{program}")
    optimizer = adagrad()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def step(ids):
        optimizer.minimize(lambda: COND_PROGRAMS[program](table, ids))

    for batch, rows in zip(BATCHES, want, strict=True):
        step(tf.constant(batch, tf.int64))
        assert_close(read(table).numpy(), rows, terms=64)


LOOPED = {
    "alone": lambda table, i: lookup_loss(table, [i]),
    "in_a_group": lambda table, i: tf.reduce_sum(
        fe.nn.group_embedding_lookup_sparse(
            [table], [tf.sparse.from_dense([[i + 1]])], combiners=["sum"]
        )[0]
    ),
    "in_a_branch": lambda table, i: tf.cond(
        i > 1, lambda: lookup_loss(table, [i]), lambda: tf.constant(0.0)
    ),
}


@pytest.mark.parametrize("program", LOOPED)
def test_gradients_out_of_loops_are_refused(control_flow, program):
    """While the graph is built, without an optimizer that would look at the gradient."""

    def body(i, total):
        return i + 1, total + LOOPED[program](table, i)

    with tf.Graph().as_default():
        table, _ = make_table("looped_table")
        loss = tf.while_loop(lambda i, _: i < 3, body, (tf.constant(0, tf.int64), 0.0))[1]
        with pytest.raises(
            NotImplementedError, match=r"'looped_table'.* outside of tf\.while_loop"
        ):
            tf.gradients(loss, table.handle)


def test_gradients_out_of_loops_of_functions_are_refused():
    table, _ = make_table("looped_in_function")
    lookup = tf.function(lambda i: lookup_loss(table, [i]))

    def total(loss):
        return tf.while_loop(
            lambda i, _: i < 3,
            lambda i, sum_so_far: (i + 1, sum_so_far + loss(i)),
            (tf.constant(0, tf.int64), 0.0),
        )[1]

    for loss in (lambda i: lookup_loss(table, [i]), lookup):
        step = tf.function(lambda loss=loss: adagrad().minimize(lambda: total(loss)))
        with pytest.raises((NotImplementedError, TypeError), match=r"'looped_in_func.*while_loop"):
            step.get_concrete_function()


def test_steps_inside_a_loop(control_flow):
    """The gradient is then taken in the body, and has nothing to sum."""

    def run(make):
        with tf.Graph().as_default(), v1.Session() as session:
            table, initializer = make()
            optimizer = v1.train.GradientDescentOptimizer(0.5)

            def body(i):
                step = optimizer.minimize(lookup_loss(table, tf.reshape(i, [1])), var_list=[table])
                with tf.control_dependencies([step]):
                    return i + 1

            end = tf.while_loop(
                lambda i: i < 3, body, (tf.constant(0, tf.int64),), parallel_iterations=1
            )
            rows = read(table)
            session.run([v1.global_variables_initializer(), initializer])
            session.run(end)
            return session.run(rows)

    got, want = run(make_table), run(make_stock)
    assert not np.array_equal(want, ROWS)
    assert_close(got, want)


LOOKUPS = {
    "one": lambda table, ids: tf.nn.embedding_lookup(table, ids),
    "group": lambda table, ids: fe.nn.group_embedding_lookup_sparse(
        [table], [tf.sparse.from_dense(ids[:, None])], combiners=["sum"]
    )[0],
}


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_a_function_is_differentiated_from_outside(lookup):
    """The keys are then a tensor of the function's graph, and the gradient's another one."""
    table, stock = make_table()[0], tf.Variable(ROWS)
    forward = tf.function(lambda ids: loss_of(LOOKUPS[lookup](table, ids)))
    ids = tf.constant([3, 1, 3], tf.int64)
    for _ in range(2):
        for variable, loss in ((table, forward), (stock, lambda ids: lookup_loss(stock, ids))):
            with tf.GradientTape() as tape:
                value = loss(ids)
            adagrad().apply_gradients([(tape.gradient(value, variable), variable)])
    assert_close(tf.nn.embedding_lookup(table, ids).numpy(), tf.gather(stock, ids).numpy())


@pytest.mark.parametrize("wrap", ["recompute_grad", "custom_gradient"])
def test_recomputed_lookups_are_refused(wrap):
    table, _ = make_table("recomputed")
    if wrap == "recompute_grad":
        function = tf.recompute_grad(lambda x: x * lookup_loss(table, [1]))
    else:
        function = tf.custom_gradient(
            lambda x: (x * lookup_loss(table, [1]), lambda grad, variables=None: (grad, [None]))
        )
    for run in (function, tf.function(function)):
        with pytest.raises(NotImplementedError, match=r"'recomputed.* outside of it"):
            run(tf.constant(2.0))


def test_sync_replicas():
    """One worker, two batches to an update: their mean, as stock averages them."""

    def train_a_pair(make):
        with tf.Graph().as_default(), v1.Session() as session:
            table, initializer = make()
            ids = v1.placeholder(tf.int64, [None])
            step = v1.train.get_or_create_global_step()
            optimizer = v1.train.SyncReplicasOptimizer(
                adagrad(), replicas_to_aggregate=2, total_num_replicas=1
            )
            train_op = optimizer.minimize(lookup_loss(table, tf.unique(ids)[0]), step)
            (update,) = optimizer.get_chief_queue_runner().enqueue_ops
            tokens = optimizer.get_init_tokens_op(2)
            rows = read(table)
            session.run([v1.global_variables_initializer(), initializer])
            session.run([optimizer.chief_init_op, tokens])
            for batch in BATCHES[:2]:
                session.run(train_op, {ids: batch})
            session.run(update)
            assert session.run(step) == 1
            return session.run(rows)

    got, want = train_a_pair(make_table), train_a_pair(make_stock)
    assert not np.array_equal(want, ROWS)
    assert_close(got, want, terms=64)


def scaled(loss_scale):
    return v1.mixed_precision.MixedPrecisionLossScaleOptimizer(adagrad(), loss_scale)


def test_fixed_loss_scale():
    def build(table, ids):
        return scaled(128.0).minimize(lookup_loss(table, ids))

    assert_trains_as_stock(build)


def test_dynamic_loss_scale_is_refused():
    with tf.Graph().as_default():
        table, _ = make_table()
        with pytest.raises(NotImplementedError, match=r"LossScale.*dynamic.*'table:0'.*fixed"):
            scaled("dynamic").minimize(lookup_loss(table, [1]))


def test_strategies_of_several_processes_are_refused():
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with tf.Graph().as_default():
        table, _ = make_table()
        optimizer = adagrad()
        pairs = optimizer.compute_gradients(lookup_loss(table, [1]))
        with (
            strategy.scope(),
            pytest.raises(NotImplementedError, match=r"'table:0'.*under Collective.*outside"),
        ):
            optimizer.apply_gradients(pairs)
