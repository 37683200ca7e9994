"""Runs the systems' steps: in a TensorFlow 1 session, or as tf.functions.

Both runners share one interface: `step(system, phase)` is a callable of the batch number,
`values(system, phase)` what that step computes on batch 0, `rows` reads and writes the rows that
batch 0 touches. All systems of a runner work on the same variables.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from benchmarks import kernels, systems, timing, workloads

PHASES = ("forward", "gradient", "sgd", "adagrad")
LEARNING_RATE = 0.01


class Program:
    """Builds what a phase of a system computes; shared by both runners."""

    def __init__(self, workload: workloads.Workload):
        self.workload = workload
        self.tables = systems.make_tables(workload)
        v1_train = tf.compat.v1.train
        self.optimizers = {
            "sgd": v1_train.GradientDescentOptimizer(LEARNING_RATE),
            "adagrad": v1_train.AdagradOptimizer(LEARNING_RATE),
        }
        rng = np.random.default_rng(0)
        shape = (workload.batch_size, workload.num_columns * workload.dim)
        self._top_grad = rng.normal(0.0, 1e-3, shape).astype(np.float32)

    def forward(self, name: str, inputs: systems.Inputs) -> tf.Tensor:
        """Returns `[batch_size, num_columns * dim]`."""
        return systems.SYSTEMS[name].lookup(inputs, self.tables)

    def gradients(self, combined: tf.Tensor) -> list[tf.IndexedSlices]:
        """Returns the gradient of each table for a fixed incoming gradient."""
        return tf.gradients(combined, self.tables, grad_ys=tf.constant(self._top_grad))

    def train(self, phase: str, gradients: list[tf.IndexedSlices]) -> tf.Operation:
        """Returns the update of all tables."""
        pairs = list(zip(gradients, self.tables, strict=True))
        return self.optimizers[phase].apply_gradients(pairs)

    def state(self) -> list[tf.Variable]:
        """Returns the tables and, after a training phase was built, their slots."""
        slots = [self.optimizers["adagrad"].get_slot(t, "accumulator") for t in self.tables]
        return self.tables + [s for s in slots if s is not None]

    def touched(self) -> list[np.ndarray]:
        """Returns the distinct ids of batch 0 for each variable of `state()`."""
        batch = self.workload.batches()[0]
        ids = [batch.touched(column) for column in range(self.workload.num_columns)]
        return ids * (len(self.state()) // len(ids))


class SessionRunner:
    """Steps as targets of one TensorFlow 1 session.

    Operations, not tensors, are run: nothing is copied out, yet nothing is pruned either.
    """

    def __init__(
        self,
        workload: workloads.Workload,
        phases: Sequence[str],
        names: Sequence[str],
        threads: int,
    ):
        self._feeds = [systems.feed(batch) for batch in workload.batches()]
        with tf.Graph().as_default() as graph:
            self.program = Program(workload)
            specs = systems.fed_specs(workload)
            self._fed = [tf.compat.v1.placeholder(s.dtype, s.shape) for s in specs]
            inputs = systems.make_inputs(workload, self._fed)
            self._fetches = {}
            for name in names:
                self._build(name, phases, inputs)
            self._build_rows()
            initialize = tf.compat.v1.global_variables_initializer()
        config = _session_config(threads, systems.SYSTEMS[names[0]].arithmetic)
        self.session = tf.compat.v1.Session(graph=graph, config=config)
        self.session.run(initialize)

    def close(self) -> None:
        """Frees the variables."""
        self.session.close()

    def step(self, name: str, phase: str) -> timing.Step:
        """Returns a callable that runs the phase on batch i."""
        targets = [fetch.op for fetch in self._outputs(name, phase)]
        run = self.session.make_callable(targets, feed_list=self._fed)
        feeds = self._feeds
        return lambda i: run(*feeds[i % len(feeds)])

    def values(self, name: str, phase: str) -> list:
        """Returns what the phase computes on batch 0."""
        return self.session.run(self._fetches[name, phase], self._feed_dict())

    def profile(self, name: str, phase: str) -> list[dict]:
        """Returns the executed op types of one step with their time."""
        targets = [fetch.op for fetch in self._outputs(name, phase)]
        options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
        traces = []
        for _ in range(kernels.NUM_TRACES):
            metadata = tf.compat.v1.RunMetadata()
            self.session.run(targets, self._feed_dict(), options=options, run_metadata=metadata)
            traces.append(metadata.step_stats)
        return kernels.summarize(traces)

    def read_rows(self) -> list[np.ndarray]:
        """Returns the rows of tables and slots that batch 0 touches."""
        return self.session.run(self._read)

    def write_rows(self, rows: list[np.ndarray]) -> None:
        """Puts the rows back that `read_rows` returned."""
        self.session.run(self._write, dict(zip(self._rows, rows, strict=True)))

    def _build(self, name: str, phases: Sequence[str], inputs: systems.Inputs) -> None:
        combined = self.program.forward(name, inputs)
        self._fetches[name, "forward"] = [combined]
        if set(phases) == {"forward"}:
            return
        gradients = self.program.gradients(combined)
        self._fetches[name, "gradient"] = [combined, gradients]
        for phase in set(phases) - {"forward", "gradient"}:
            self._fetches[name, phase] = [combined, self.program.train(phase, gradients)]

    def _build_rows(self) -> None:
        state, touched = self.program.state(), self.program.touched()
        self._read = [v.sparse_read(ids) for v, ids in zip(state, touched, strict=True)]
        self._rows = [tf.compat.v1.placeholder(r.dtype, r.shape) for r in self._read]
        self._write = [
            v.scatter_update(tf.IndexedSlices(rows, tf.constant(ids))).op
            for v, rows, ids in zip(state, self._rows, touched, strict=True)
        ]

    def _feed_dict(self) -> dict:
        return dict(zip(self._fed, self._feeds[0], strict=True))

    def _outputs(self, name: str, phase: str) -> list:
        combined, *rest = self._fetches[name, phase]
        if phase == "gradient":
            return [combined, *(gradient.values for gradient in rest[0])]
        return [combined, *(_HasOp(operation) for operation in rest)]


class _HasOp:
    """An operation seen as a fetch, beside tensors."""

    def __init__(self, operation: tf.Operation):
        self.op = operation


def _session_config(threads: int, arithmetic: bool) -> tf.compat.v1.ConfigProto:
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
    )
    if not arithmetic:
        rewrites = config.graph_options.rewrite_options
        rewrites.arithmetic_optimization = type(rewrites).OFF
    return config


class FunctionRunner:
    """Steps as tf.functions on eager variables.

    Threads and Grappler's options belong to the process here: they are set before anything runs.
    """

    def __init__(
        self,
        workload: workloads.Workload,
        phases: Sequence[str],
        names: Sequence[str],
        threads: int,
    ):
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        arithmetic = systems.SYSTEMS[names[0]].arithmetic
        tf.config.optimizer.set_experimental_options({"arithmetic_optimization": arithmetic})
        self.program = Program(workload)
        feeds = [systems.feed(batch) for batch in workload.batches()]
        self._feeds = [[tf.constant(array) for array in arrays] for arrays in feeds]
        self._functions = {
            (name, phase): self._trace(name, phase) for name in names for phase in phases
        }
        self._touched = self.program.touched()

    def close(self) -> None:
        """Frees the variables."""
        self._functions.clear()
        del self.program

    def step(self, name: str, phase: str) -> timing.Step:
        """Returns a callable that runs the phase on batch i."""
        function, feeds = self._functions[name, phase], self._feeds
        return lambda i: function(*feeds[i % len(feeds)])

    def values(self, name: str, phase: str) -> list:
        """Returns what the phase computes on batch 0."""
        outputs = self._functions[name, phase](*self._feeds[0])
        return tf.nest.map_structure(lambda t: t.numpy(), outputs, expand_composites=True)

    def profile(self, name: str, phase: str) -> list[dict]:
        """Returns nothing: kernels are traced in a session only."""
        return []

    def read_rows(self) -> list[np.ndarray]:
        """Returns the rows of tables and slots that batch 0 touches."""
        pairs = zip(self.program.state(), self._touched, strict=True)
        return [variable.sparse_read(ids).numpy() for variable, ids in pairs]

    def write_rows(self, rows: list[np.ndarray]) -> None:
        """Puts the rows back that `read_rows` returned."""
        for variable, ids, new in zip(self.program.state(), self._touched, rows, strict=True):
            variable.scatter_update(tf.IndexedSlices(new, ids))

    def _trace(self, name: str, phase: str) -> tf.types.experimental.ConcreteFunction:
        program = self.program

        @tf.function(input_signature=systems.fed_specs(program.workload))
        def step(*fed: tf.Tensor) -> list:
            combined = program.forward(name, systems.make_inputs(program.workload, list(fed)))
            if phase == "forward":
                return [combined]
            gradients = program.gradients(combined)
            if phase == "gradient":
                return [combined, gradients]
            program.train(phase, gradients)
            return [combined]

        return step.get_concrete_function()
