"""The optimizers of fe.train that stock has too: stock's results, names and checkpoints."""

import doctest
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.training import OPTIMIZERS, loss_of, make_stock, make_table, read, train, v1
from checking import assert_close, assert_same_bits
from fused_embedding.train import sparse_apply

NUM_IDS, NUM_STEPS, TERMS = 12, 20, 512
APPLIES = ("FusedEmbeddingSparseApply", "FusedEmbeddingResourceSparseApply")
SPARSE_UPDATES = ("SparseApply", "Scatter", "Unique", "UnsortedSegmentSum")
OPTIMIZER = pytest.mark.parametrize("name", OPTIMIZERS)
USE_RESOURCE = pytest.mark.parametrize("use_resource", [False, True], ids=["reference", "resource"])


class Spec(NamedTuple):
    """A variable of the program."""

    shape: tuple[int, ...]
    dtype: tf.DType
    id_dtype: tf.DType | None  # None: not a table


SPECS = {
    "a": Spec((NUM_IDS, 3), tf.float32, tf.int64),
    "b": Spec((NUM_IDS, 17), tf.float32, tf.int32),
    "c": Spec((NUM_IDS, 2, 2), tf.float64, tf.int64),
    "d": Spec((NUM_IDS,), tf.float32, tf.int64),
    "dense": Spec((3,), tf.float32, None),
}


def initial_value(name):
    spec = SPECS[name]
    seed = sorted(SPECS).index(name)
    value = np.random.default_rng(seed).standard_normal(spec.shape)
    return value.astype(spec.dtype.as_numpy_dtype)


def all_batches(name):
    """Ids with repeats. Of Adam every row is in every step: stock moves the other rows as well."""
    rng = np.random.default_rng(5)
    every = np.arange(NUM_IDS if name == "adam" else 0)
    return [
        rng.permutation(np.concatenate([every, rng.integers(0, NUM_IDS, 9)]))
        for _ in range(NUM_STEPS)
    ]


def program_loss(variables, ids):
    """Every table is read, "a" twice and once by a fused lookup, and multiplied by "dense"."""
    loss = 0.0
    for name, spec in SPECS.items():
        if spec.id_dtype is not None:
            rows = tf.nn.embedding_lookup(variables[name], tf.cast(ids, spec.id_dtype))
            loss += tf.cast(tf.reduce_sum(tf.tanh(rows) ** 2), tf.float32)
    again = tf.nn.embedding_lookup(variables["a"], (ids + 1) % NUM_IDS)
    bags = tf.RaggedTensor.from_uniform_row_length(ids[: tf.size(ids) // 2 * 2], 2)
    fused = fe.nn.fused_safe_embedding_lookup_sparse(
        variables["a"], bags.to_sparse(), combiner="mean", fusion_version="v2"
    )
    # The mean: a steeper loss would make of a rounding a difference within 20 steps.
    scaled = variables["dense"] * (tf.reduce_mean(again, 0) + tf.reduce_mean(fused, 0))
    return loss + tf.reduce_sum(tf.sin(scaled))


class Graph:
    """The program in a v1 session."""

    def __init__(self, module: Any, name: str, use_resource: bool = True, make_rate: Any = None):
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.variables = {
                key: v1.get_variable(key, initializer=initial_value(key), use_resource=use_resource)
                for key in SPECS
            }
            self.ids = v1.placeholder(tf.int64, [None])
            self.step = v1.train.get_or_create_global_step()
            rates = [] if make_rate is None else [make_rate(self.step)]
            optimizer = OPTIMIZERS[name](module, *rates)
            loss = program_loss(self.variables, self.ids)
            self.train = optimizer.minimize(loss, self.step)
            self.everything = sorted(v1.global_variables(), key=lambda v: v.name)
            self.names = [v.name for v in self.everything]
            self.saver = v1.train.Saver()
            self.initialize = v1.global_variables_initializer()
        self.session = v1.Session(graph=self.graph)
        self.session.run(self.initialize)

    def run(self, batch):
        """One step; the variables after it."""
        self.session.run(self.train, {self.ids: batch})
        return self.values()

    def values(self):
        return self.session.run(self.everything)

    def count(self, *kinds):
        """Names of ops whose type has one of these in it."""
        return [op.name for op in self.graph.get_operations() if any(k in op.type for k in kinds)]


def assert_all_close(got, want, names, terms=TERMS):
    for one, other, name in zip(got, want, names, strict=True):
        one, other = np.asarray(one), np.asarray(other)
        if one.dtype.kind == "i":
            assert_same_bits(one, other, err_msg=name)
        else:
            assert_close(one, other, terms, err_msg=name)


def state_of(variables, optimizer):
    """Values of the variables and of their slots, outside of sessions."""
    slots = [
        optimizer.get_slot(variable, name)
        for name in optimizer.get_slot_names()
        for variable in variables.values()
    ]
    return [v.numpy() for v in [*variables.values(), *slots]]


@OPTIMIZER
@USE_RESOURCE
def test_twenty_steps_are_stocks(name, use_resource):
    """Variables, slots, powers of beta and the global step: by name, after each step."""
    ours, stock = (Graph(module, name, use_resource) for module in (fe.train, v1.train))
    assert ours.names == stock.names
    assert ours.train.name == stock.train.name
    assert ours.graph.get_collection(v1.GraphKeys.TRAIN_OP) == [ours.train]
    for number, batch in enumerate(all_batches(name)):
        assert_all_close(ours.run(batch), stock.run(batch), ours.names)
        assert ours.session.run(ours.step) == number + 1
    for variable, value in ours.variables.items():
        assert not np.array_equal(ours.session.run(value), initial_value(variable)), variable


@OPTIMIZER
@USE_RESOURCE
def test_one_op_updates_all_tables(name, use_resource):
    """And nothing else that is not stock's gradient: no unique, no sum of duplicates."""
    program = Graph(fe.train, name, use_resource)
    assert len(program.count(*APPLIES)) == 1
    inside = [op for op in program.count(*SPARSE_UPDATES) if "update" in op]
    assert inside == []
    metadata = v1.RunMetadata()
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    feeds = {program.ids: all_batches(name)[0]}
    program.session.run(program.train, feeds, options=options, run_metadata=metadata)
    executed = [node for device in metadata.step_stats.dev_stats for node in device.node_stats]
    assert sum("SparseApply(" in node.timeline_label for node in executed) == 1


@OPTIMIZER
def test_learning_rate_tensor(name):
    def make_rate(step):
        return v1.train.exponential_decay(0.3, step, 1, 0.7)

    ours, stock = (Graph(m, name, make_rate=make_rate) for m in (fe.train, v1.train))
    for batch in all_batches(name)[:5]:
        assert_all_close(ours.run(batch), stock.run(batch), ours.names)


def train_outside_of_sessions(module, name, in_function):
    """The program eagerly or as a function; its state after each step."""
    variables = {key: tf.Variable(initial_value(key)) for key in SPECS}
    optimizer, step = OPTIMIZERS[name](module), tf.Variable(0, dtype=tf.int64)

    def train_step(ids):
        optimizer.minimize(lambda: program_loss(variables, ids), step)

    if in_function:
        train_step = tf.function(train_step, input_signature=[tf.TensorSpec([None], tf.int64)])
    history = []
    for batch in all_batches(name):
        train_step(tf.constant(batch))
        history.append(state_of(variables, optimizer))
    assert step.numpy() == NUM_STEPS
    return history


@OPTIMIZER
@pytest.mark.parametrize("in_function", [False, True], ids=["eager", "function"])
def test_outside_of_sessions(name, in_function):
    histories = [train_outside_of_sessions(m, name, in_function) for m in (fe.train, v1.train)]
    for got, want in zip(*histories, strict=True):
        assert_all_close(got, want, range(len(got)))


@pytest.mark.parametrize("module", [fe.train, v1.train], ids=["from_ours", "from_stock"])
@OPTIMIZER
def test_checkpoints_of_a_saver_go_both_ways(name, module, tmp_path):
    batches = all_batches(name)
    writer = Graph(module, name)
    for batch in batches[:4]:
        writer.run(batch)
    reader = Graph(v1.train if module is fe.train else fe.train, name)
    with writer.graph.as_default():
        path = writer.saver.save(writer.session, str(tmp_path / "model"))
    with reader.graph.as_default():
        reader.saver.restore(reader.session, path)
    for one, other in zip(reader.values(), writer.values(), strict=True):
        assert_same_bits(one, other)
    for batch in batches[4:8]:
        assert_all_close(reader.run(batch), writer.run(batch), reader.names)


@OPTIMIZER
def test_object_checkpoints_go_both_ways(name, tmp_path):
    def make(module):
        variables = {key: tf.Variable(initial_value(key)) for key in SPECS}
        optimizer = OPTIMIZERS[name](module)
        return variables, optimizer, tf.train.Checkpoint(optimizer=optimizer, **variables)

    def run(variables, optimizer, batches):
        for batch in batches:
            optimizer.minimize(lambda: program_loss(variables, tf.constant(batch)))  # noqa: B023
        return state_of(variables, optimizer)

    batches = all_batches(name)
    for module, other in ((fe.train, v1.train), (v1.train, fe.train)):
        variables, optimizer, checkpoint = make(module)
        run(variables, optimizer, batches[:3])
        path = checkpoint.write(str(tmp_path / module.__name__))
        other_variables, other_optimizer, other_checkpoint = make(other)
        status = other_checkpoint.read(path)
        got = run(other_variables, other_optimizer, batches[3:6])
        status.assert_consumed()
        want = run(variables, optimizer, batches[3:6])
        assert_all_close(got, want, range(len(got)))


@OPTIMIZER
def test_beside_an_embedding_variable(name):
    """Both kinds in one optimizer: both as stock has them."""

    def build(module):
        def of_table(table, ids):
            other = v1.get_variable("other", initializer=tf.ones([NUM_IDS, 3]), use_resource=True)
            rows = tf.nn.embedding_lookup(table, ids) * tf.nn.embedding_lookup(other, ids)
            return OPTIMIZERS[name](module).minimize(loss_of(rows))

        return of_table

    batches = [batch.tolist() for batch in all_batches(name)[:6]]
    got = train(make_table, build(fe.train), batches)
    assert_close(got, train(make_stock, build(v1.train), batches), TERMS)


def test_embedding_variables_alone():
    """No ordinary variable makes the slots, or is updated."""
    with tf.Graph().as_default() as graph, v1.Session() as session:
        table, initializer = make_table()
        operation = fe.train.AdamOptimizer(0.1).minimize(
            loss_of(tf.nn.embedding_lookup(table, [1]))
        )
        session.run([v1.global_variables_initializer(), initializer])
        before = session.run(read(table))
        session.run(operation)
        assert not np.array_equal(session.run(read(table)), before)
        assert not [op for op in graph.get_operations() if op.type in APPLIES]


def lazy_adam_slots(module):
    """Value and moments after two steps, the second of which leaves row 1 out."""
    variable = tf.Variable(initial_value("a"))
    optimizer = module.AdamOptimizer(0.1)
    for ids in ([1, 2], [2]):
        optimizer.minimize(lambda ids=ids: loss_of(tf.nn.embedding_lookup(variable, ids)))
    return [variable.numpy(), *(optimizer.get_slot(variable, name).numpy() for name in "mv")]


def test_adam_is_lazy():
    ours, stock = lazy_adam_slots(fe.train), lazy_adam_slots(v1.train)
    assert_close(ours[0][2], stock[0][2])
    after_one_step = tf.Variable(initial_value("a"))
    fe.train.AdamOptimizer(0.1).minimize(
        lambda: loss_of(tf.nn.embedding_lookup(after_one_step, [1, 2]))
    )
    assert_same_bits(ours[0][1], after_one_step.numpy()[1])
    assert np.abs(stock[0][1] - ours[0][1]).max() > 0.01  # stock has moved it once more


@USE_RESOURCE
def test_one_op_a_device(use_resource):
    devices = ["/cpu:0", "/cpu:1", "/cpu:0"]
    config = v1.ConfigProto(device_count={"CPU": 2})
    with tf.Graph().as_default() as graph, v1.Session(config=config) as session:
        variables = []
        for i, device in enumerate(devices):
            with tf.device(device):
                value = initial_value("a")
                variables.append(
                    v1.get_variable(f"v{i}", initializer=value, use_resource=use_resource)
                )
        loss = sum(loss_of(tf.nn.embedding_lookup(v, [1, 1])) for v in variables)
        operation = fe.train.AdagradOptimizer(0.1).minimize(loss)
        applies = [op for op in graph.get_operations() if op.type in APPLIES]
        assert sorted(op.device for op in applies) == ["/device:CPU:0", "/device:CPU:1"]
        session.run(v1.global_variables_initializer())
        session.run(operation)
        first, *others = session.run(variables)
        assert not np.array_equal(first, initial_value("a"))
        for other in others:
            assert_same_bits(other, first)


def test_one_op_for_references_and_one_for_resources():
    with tf.Graph().as_default() as graph, tf.device("/CPU:0"), v1.Session() as session:
        variables = [
            v1.get_variable(f"v{i}", initializer=initial_value("a"), use_resource=use_resource)
            for i, use_resource in enumerate([False, True, False])
        ]
        loss = sum(loss_of(tf.nn.embedding_lookup(v, [1, 1])) for v in variables)
        operation = fe.train.AdagradOptimizer(0.1).minimize(loss)
        applies = [op.type for op in graph.get_operations() if op.type in APPLIES]
        assert sorted(applies) == sorted(APPLIES)
        session.run(v1.global_variables_initializer())
        session.run(operation)
        first, *others = session.run(variables)
        assert not np.array_equal(first, initial_value("a"))
        for other in others:
            assert_same_bits(other, first)


@pytest.mark.parametrize("has_kernels", [False, True], ids=["no_kernels", "kernels"])
@USE_RESOURCE
def test_a_variable_on_a_gpu_is_updated_by_an_op_that_can(use_resource, has_kernels, monkeypatch):
    """There is no GPU here, and the op for references has no kernel for one."""
    monkeypatch.setattr(sparse_apply, "lacks_kernels", lambda _: not has_kernels)
    config = v1.ConfigProto(allow_soft_placement=True)
    with tf.Graph().as_default() as graph, v1.Session(config=config) as session:
        with tf.device("/gpu:0"):
            variable = v1.get_variable(
                "v", initializer=initial_value("a"), use_resource=use_resource
            )
        loss = loss_of(tf.nn.embedding_lookup(variable, [1, 1]))
        operation = fe.train.AdagradOptimizer(0.1).minimize(loss)
        applies = {op.type: op.device for op in graph.get_operations() if "SparseApply" in op.type}
        if use_resource and has_kernels:
            assert applies == {"FusedEmbeddingResourceSparseApply": "/device:GPU:0"}
        else:
            kind = "Resource" if use_resource else ""
            assert list(applies) == [f"{kind}SparseApplyAdagrad"]
        session.run(v1.global_variables_initializer())
        session.run(operation)
        got = session.run(variable)
    want = tf.Variable(initial_value("a"))
    v1.train.AdagradOptimizer(0.1).minimize(lambda: loss_of(tf.nn.embedding_lookup(want, [1, 1])))
    assert_close(got, want.numpy(), TERMS)


@USE_RESOURCE
def test_two_gradients_of_one_variable_go_one_after_the_other(use_resource):
    results = []
    for module in (fe.train, v1.train):
        with tf.Graph().as_default() as graph, v1.Session() as session:
            variable = v1.get_variable(
                "v", initializer=initial_value("a"), use_resource=use_resource
            )
            grads = [tf.IndexedSlices(tf.ones([2, 3]) * k, tf.constant([k, 4])) for k in (1, 2)]
            optimizer = module.GradientDescentOptimizer(0.1)
            operation = optimizer.apply_gradients([(grad, variable) for grad in grads])
            if module is fe.train:
                first, second = [op for op in graph.get_operations() if op.type in APPLIES]
                assert first in second.control_inputs
            session.run(v1.global_variables_initializer())
            session.run(operation)
            results.append(session.run(variable))
    assert_close(*results)


def test_partitioned_variables():
    results = []
    for module in (fe.train, v1.train):
        with tf.Graph().as_default() as graph, v1.Session() as session:
            variable = v1.get_variable(
                "v",
                shape=SPECS["a"].shape,
                initializer=v1.ones_initializer(),
                partitioner=v1.fixed_size_partitioner(3),
            )
            ids = tf.SparseTensor(
                [[0, 0], [0, 1], [1, 0]], tf.constant([3, 11, 3], tf.int64), [2, 2]
            )
            rows = fe.nn.fused_safe_embedding_lookup_sparse(variable, ids)
            operation = module.AdagradOptimizer(0.1).minimize(loss_of(rows))
            if module is fe.train:
                assert sum(op.type in APPLIES for op in graph.get_operations()) == 1
            session.run(v1.global_variables_initializer())
            session.run(operation)
            results.append(session.run(variable.as_tensor()))
    assert_close(*results, terms=32)


@pytest.mark.parametrize("name", ["adagrad", "momentum"])
def test_under_a_strategy(name):
    results = []
    for module in (fe.train, v1.train):
        strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
        with strategy.scope():
            variable = tf.Variable(initial_value("a"))
            optimizer = OPTIMIZERS[name](module)

        @tf.function
        def step(variable=variable, optimizer=optimizer):
            optimizer.minimize(lambda: loss_of(tf.nn.embedding_lookup(variable, [1, 5, 1])))

        for _ in range(3):
            strategy.run(step)
        results.append(variable.numpy())
    assert not np.array_equal(results[0], initial_value("a"))
    assert_close(*results, terms=64)


def test_under_a_loss_scale():
    results = []
    for module in (fe.train, v1.train):
        variable = tf.Variable(initial_value("a"))
        optimizer = v1.mixed_precision.MixedPrecisionLossScaleOptimizer(
            module.AdagradOptimizer(0.1), 8.0
        )

        @tf.function
        def step(variable=variable, optimizer=optimizer):
            optimizer.minimize(lambda: loss_of(tf.nn.embedding_lookup(variable, [1, 5, 1])))

        step()
        results.append(variable.numpy())
    assert not np.array_equal(results[0], initial_value("a"))
    assert_close(*results, terms=64)


def test_no_step_copies_a_table():
    """With fused lookups, what a step allocates is of the size of the batch; dense reads too."""
    num_rows, options = 200_000, v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable(
            "v", [num_rows, 16], initializer=v1.ones_initializer(), use_resource=True
        )
        ids = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([3, 11, 3], tf.int64), [2, 2])
        rows = fe.nn.fused_safe_embedding_lookup_sparse(variable, ids)
        with tf.control_dependencies(
            [fe.train.AdagradOptimizer(0.1).minimize(loss_of(rows[:, :3]))]
        ):
            read = variable.read_value()[:2]
        session.run(v1.global_variables_initializer())
        session.run(read)  # the initial value may be shared until then
        for _ in range(3):
            metadata = v1.RunMetadata()
            session.run(read, options=options, run_metadata=metadata)
            nodes = [n for device in metadata.step_stats.dev_stats for n in device.node_stats]
            allocated = {n.node_name: sum(m.total_bytes for m in n.memory) for n in nodes}
            assert any("SparseApply" in name for name in allocated)
            assert max(allocated.values()) < num_rows


def test_an_error_leaves_the_optimizer_usable():
    variable = tf.Variable(initial_value("a"))
    optimizer = fe.train.GradientDescentOptimizer(1.0)
    bad = tf.IndexedSlices(tf.ones([1, 3]), tf.constant([NUM_IDS], tf.int64))
    with pytest.raises(tf.errors.InvalidArgumentError, match="index 12 at position 0"):
        optimizer.apply_gradients([(bad, variable)])
    assert_same_bits(variable.numpy(), initial_value("a"))
    good = tf.IndexedSlices(tf.ones([1, 3]), tf.constant([2], tf.int64))
    optimizer.apply_gradients([(good, variable)])
    want = initial_value("a")
    want[2] -= 1
    assert_same_bits(variable.numpy(), want)
    # Outside of apply_gradients nobody finishes what is collected.
    optimizer._resource_apply_sparse_duplicate_indices(good.values, variable, good.indices)
    want[2] -= 1
    assert_same_bits(variable.numpy(), want)


def test_signatures_are_stocks():
    for cls in fe.train.fused_optimizers.__all__:
        ours, stock = getattr(fe.train, cls), getattr(v1.train, cls)
        assert issubclass(ours, stock)
        assert ours.__init__ is stock.__init__


def test_examples():
    results = doctest.testmod(fe.train.fused_optimizers, extraglobs={"fe": fe})
    assert results.attempted > 0
    assert results.failed == 0
