"""Runs the systems' steps: in a TensorFlow 1 session, or as tf.functions.

Both runners share one interface: `step(system, phase)` is a callable of the batch number,
`values(system, phase)` what that step computes on batch 0; `read_rows` and `write_rows` are for the
rows that batch 0 touches. Systems of a runner with tables of one kind work on the same ones.
"""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from benchmarks.harness import kernels, sessions, systems, timing, variables, workloads

LEARNING_RATE = 0.01
# Standard deviation of the combined rows' gradient. Rows in 16 bits show no smaller step.
GRADIENT_SCALE = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.1}


def _make_optimizers(train: ModuleType) -> dict[str, tf.compat.v1.train.Optimizer]:
    """Returns the optimizer of each training phase."""
    return {
        "sgd": train.GradientDescentOptimizer(LEARNING_RATE),
        "adagrad": train.AdagradOptimizer(LEARNING_RATE),
    }


class Program:
    """Builds what a phase of a system computes; shared by both runners."""

    def __init__(self, workload: workloads.Workload, names: Sequence[str]):
        self.workload = workload
        kinds = dict.fromkeys(systems.SYSTEMS[name].tables for name in names)
        self.tables = {kind: variables.KINDS[kind](workload) for kind in kinds}
        self.optimizers = _make_optimizers(tf.compat.v1.train)
        self._optimizers_of = {"stock": self.optimizers}
        if any(systems.SYSTEMS[name].optimizers == "fused" for name in names):
            import fused_embedding as fe

            self._optimizers_of["fused"] = fused = _make_optimizers(fe.train)
            # Both work on the same slots: memory holds them once, and the check sees them.
            fused["adagrad"]._slots = self.optimizers["adagrad"]._slots
        rng = np.random.default_rng(0)
        shape = (workload.batch_size, workload.total_dim)
        top_grad = rng.normal(0.0, GRADIENT_SCALE[workload.dtype], shape)
        self._top_grad = top_grad.astype(tf.as_dtype(workload.dtype).as_numpy_dtype)

    def tables_of(self, name: str) -> variables.Tables:
        """Returns the tables that a system works on."""
        return self.tables[systems.SYSTEMS[name].tables]

    def forward(self, name: str, inputs: systems.Inputs) -> tuple[tf.Tensor, list]:
        """Returns `[batch_size, total_dim]`, and what gradients are taken for."""
        return systems.SYSTEMS[name].lookup(inputs, self.tables_of(name).tables)

    def gradients(self, combined: tf.Tensor, trained: list) -> list[tf.IndexedSlices]:
        """Returns the gradient of each table for a fixed incoming gradient.

        It waits for all columns, as it would for a loss. Else each column's update could run right
        behind its lookup, while its rows are in the cache.
        """
        with tf.control_dependencies([combined]):
            top_grad = tf.identity(tf.constant(self._top_grad))
        return tf.gradients(combined, trained, grad_ys=top_grad)

    def train(
        self, name: str, phase: str, gradients: list[tf.IndexedSlices], trained: list
    ) -> tf.Operation:
        """Returns the update of all tables."""
        optimizer = self._optimizers_of[systems.SYSTEMS[name].optimizers][phase]
        if systems.SYSTEMS[name].tables == "tfra":
            from tensorflow_recommenders_addons import dynamic_embedding

            optimizer = dynamic_embedding.DynamicEmbeddingOptimizer(optimizer)
        return optimizer.apply_gradients(list(zip(gradients, trained, strict=True)))

    def state(self, kind: str) -> list:
        """Returns the tables and, of dense ones after a training phase was built, their slots.

        Slots of other tables are not in variables of their own: two steps in a row show them.
        """
        tables = self.tables[kind].tables
        if kind != "dense":
            return tables
        slots = [self.optimizers["adagrad"].get_slot(t, "accumulator") for t in tables]
        return tables + [s for s in slots if s is not None]

    def touched(self, kind: str) -> list[np.ndarray]:
        """Returns the distinct ids of batch 0 for each table of `state()`."""
        ids = [column.touched() for column in self.workload.batches()[0].columns]
        return ids * (len(self.state(kind)) // len(ids))


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
            self.program = Program(workload, names)
            specs = systems.fed_specs(workload)
            self._fed = [tf.compat.v1.placeholder(s.dtype, s.shape) for s in specs]
            inputs = systems.make_inputs(workload, self._fed)
            self._fetches: dict[tuple[str, str], list] = {}
            for name in names:
                self._build(name, phases, inputs)
            self._rows = {kind: self._build_rows(kind) for kind in self.program.tables}
            initialize = tf.compat.v1.global_variables_initializer()
            fill = [op for tables in self.program.tables.values() for op in tables.fill]
        config = sessions.session_config(threads, systems.SYSTEMS[names[0]].arithmetic)
        self.session = tf.compat.v1.Session(graph=graph, config=config)
        self.session.run(initialize)
        for operation in fill:  # one by one: each needs a second copy of its table for a moment
            self.session.run(operation)

    def close(self) -> None:
        """Frees the variables."""
        self.session.close()

    def step(self, name: str, phase: str) -> timing.Step:
        """Returns a callable that runs the phase on batch i."""
        run, feeds = self._callable([fetch.op for fetch in self._outputs(name, phase)]), self._feeds
        return lambda i: run(*feeds[i % len(feeds)])

    def _callable(self, targets: list[tf.Operation]) -> Callable[..., object]:
        """Returns a function of the fed arrays.

        Made from options: make_callable prepares each array in Python, 30 microseconds and more.
        """
        options = config_pb2.CallableOptions(
            feed=[tensor.name for tensor in self._fed], target=[target.name for target in targets]
        )
        return self.session._make_callable_from_options(options)

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

    def read_rows(self, name: str) -> list[np.ndarray]:
        """Returns the rows of a system's tables and slots that batch 0 touches."""
        return self.session.run(self._rows[systems.SYSTEMS[name].tables].read)

    def write_rows(self, name: str, rows: list[np.ndarray]) -> None:
        """Puts the rows back that `read_rows` returned."""
        touched = self._rows[systems.SYSTEMS[name].tables]
        self.session.run(touched.write, dict(zip(touched.rows, rows, strict=True)))

    def _build(self, name: str, phases: Sequence[str], inputs: systems.Inputs) -> None:
        combined, trained = self.program.forward(name, inputs)
        self._fetches[name, "forward"] = [combined]
        wanted = set(phases) & set(systems.SYSTEMS[name].phases)
        if wanted == {"forward"}:
            return
        gradients = self.program.gradients(combined, trained)
        self._fetches[name, "gradient"] = [combined, gradients]
        for phase in wanted - {"forward", "gradient"}:
            train = self.program.train(name, phase, gradients, trained)
            self._fetches[name, phase] = [combined, train]

    def _build_rows(self, kind: str) -> "_Rows":
        tables = self.program.tables[kind]
        pairs = list(zip(self.program.state(kind), self.program.touched(kind), strict=True))
        read = [tables.read(table, ids) for table, ids in pairs]
        rows = [
            tf.compat.v1.placeholder(r.dtype, [len(ids), r.shape[1]])
            for r, (_, ids) in zip(read, pairs, strict=True)
        ]
        write = [tables.write(table, ids, r) for (table, ids), r in zip(pairs, rows, strict=True)]
        return _Rows(read, rows, [w.op if hasattr(w, "op") else w for w in write])

    def _feed_dict(self) -> dict:
        return dict(zip(self._fed, self._feeds[0], strict=True))

    def _outputs(self, name: str, phase: str) -> list:
        combined, *rest = self._fetches[name, phase]
        if phase == "gradient":
            return [combined, *(gradient.values for gradient in rest[0])]
        return [combined, *(_HasOp(operation) for operation in rest)]


class _Rows(NamedTuple):
    """Rows that batch 0 touches: what reads them, is fed them, and writes what is fed."""

    read: list[tf.Tensor]
    rows: list[tf.Tensor]
    write: list[tf.Operation]


class _HasOp:
    """An operation seen as a fetch, beside tensors."""

    def __init__(self, operation: tf.Operation):
        self.op = operation


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
        self.program = Program(workload, names)
        feeds = [systems.feed(batch) for batch in workload.batches()]
        self._feeds = [[tf.constant(array) for array in arrays] for arrays in feeds]
        self._functions = {
            (name, phase): self._trace(name, phase)
            for name in names
            for phase in phases
            if phase in systems.SYSTEMS[name].phases
        }

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

    def read_rows(self, name: str) -> list[np.ndarray]:
        """Returns the rows of a system's tables and slots that batch 0 touches."""
        read = self.program.tables_of(name).read
        return [read(table, ids).numpy() for table, ids in self._touched(name)]

    def write_rows(self, name: str, rows: list[np.ndarray]) -> None:
        """Puts the rows back that `read_rows` returned."""
        write = self.program.tables_of(name).write
        for (table, ids), new in zip(self._touched(name), rows, strict=True):
            write(table, ids, new)

    def _touched(self, name: str) -> list[tuple]:
        kind = systems.SYSTEMS[name].tables
        return list(zip(self.program.state(kind), self.program.touched(kind), strict=True))

    def _trace(self, name: str, phase: str) -> tf.types.experimental.ConcreteFunction:
        program = self.program

        @tf.function(input_signature=systems.fed_specs(program.workload))
        def step(*fed: tf.Tensor) -> list:
            inputs = systems.make_inputs(program.workload, list(fed))
            combined, trained = program.forward(name, inputs)
            if phase == "forward":
                return [combined]
            gradients = program.gradients(combined, trained)
            if phase == "gradient":
                return [combined, gradients]
            program.train(name, phase, gradients, trained)
            return [combined]

        return step.get_concrete_function()
