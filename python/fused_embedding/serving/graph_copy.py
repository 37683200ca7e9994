"""Copies what a graph computes op by op, with stock ops in place of those of this package.

Calls are inlined, conditionals and loops are built anew: their functions may hold lookups.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.ops import raw_ops
from fused_embedding.ops.path_notes import CHECK
from fused_embedding.ops.tf_private import function_def_to_graph
from fused_embedding.serving.looked_up import LookedUp, read_by_row
from fused_embedding.serving.stock_forms import STOCK_OPS
from fused_embedding.serving.stock_ops import MATRICES, UNREAD_INPUTS, Call, Lookups

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
# Loops of TF1, which go back to ops that come before.
_LOOPS_OF_V1 = ("Enter", "RefEnter", "NextIteration", "RefNextIteration", "Exit", "RefExit")
_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
_TRAINING_SUFFIXES = ("Grad", "Apply")


class Unavailable(NamedTuple):
    """An output that an export does not have, as only training reads it."""

    op: tf.Operation
    output: str


class GraphCopier:
    """Copies graphs of one SavedModel to be.

    Args:
        graph: What is copied from; its functions are taken as well.
        lookups: What each op of this package becomes: `STOCK_OPS`, or others in their place.
    """

    def __init__(self, graph: tf.Graph, lookups: Lookups = STOCK_OPS) -> None:
        self._graph, self._lookups = graph, lookups
        self._functions = {f.signature.name: f for f in graph.as_graph_def().library.function}

    def copy(
        self,
        given: Mapping[str, Any],
        outputs: Sequence[tf.Tensor],
        control_outputs: Sequence[tf.Operation] = (),
    ) -> list[Any]:
        """Copies into the default graph what the outputs need.

        Args:
            given: By the name of a tensor of the graph: the tensor that stands for it, or for the
                handle of an EmbeddingVariable a table: its `read` gives the rows of keys; or for a
                variable, or its value, a `LookedUp`.
            outputs: Tensors of the graph.
            control_outputs: Operations that have to run as well.

        Returns:
            What stands for each of `outputs`.

        Raises:
            NotImplementedError: For an op that has no form of stock ops.
            ValueError: If a placeholder is needed that is not given.
        """
        results = self._copy(given, outputs, control_outputs)
        return [
            _available(result, output.op) for result, output in zip(results, outputs, strict=True)
        ]

    def _copy(
        self,
        given: Mapping[str, Any],
        outputs: Sequence[tf.Tensor],
        control_outputs: Sequence[tf.Operation],
    ) -> list[Any]:
        values: dict[str, Any] = dict(given)
        done: dict[str, list[tf.Operation]] = {}
        needed = needed_operations(given, outputs, control_outputs, read_inputs)
        _refuse_loops(needed)
        for op in needed:
            before = [made for control in op.control_inputs for made in done.get(control.name, ())]
            with tf.control_dependencies(before):
                results = self._build(op, [values.get(tensor.name) for tensor in op.inputs])
            for tensor, result in zip(op.outputs, results, strict=True):
                values.setdefault(tensor.name, _with_shape_of(result, tensor))
            done[op.name] = _operations_of(results)
        last = [made for control in control_outputs for made in done.get(control.name, ())]
        return _Results([values[tensor.name] for tensor in outputs], last)

    def _build(self, op: tf.Operation, inputs: list[Any]) -> list[Any]:
        if op.type == "Identity" and not tf.is_tensor(inputs[0]):
            return inputs
        if op.type in _PYTHON:
            return _without_python(op)
        build = self._builder(op)
        if build is None:
            return self._replace(op, inputs) if is_ours(op) else _copy_operation(op, inputs)
        return build(op, inputs)

    def _replace(self, op: tf.Operation, inputs: list[Any]) -> list[Any]:
        """What an op of this package becomes."""
        build = self._lookups.get(op.type)
        if build is None:
            is_training = op.type.endswith(_TRAINING_SUFFIXES)
            what = "it trains" if is_training else "it reads or changes a table beside lookups"
            raise NotImplementedError(
                f"op {op.name!r} of type {op.type} has no form of stock ops: {what}. Export "
                'outputs that do not depend on it, or pass ops="fused"'
            )
        named = _by_name(op, op.op_def.input_arg, inputs)
        named = {name: _argument(name, value, op) for name, value in named.items()}
        with tf.name_scope(op.type):
            outputs = build(Call(op, named))
        names = _by_name(op, op.op_def.output_arg, op.outputs)
        results = []
        for name, tensors in names.items():
            missing = Unavailable(op, name)
            if isinstance(tensors, list):
                made = outputs.get(name, [None] * len(tensors))
                results += [missing if result is None else result for result in made]
            else:
                results.append(outputs.get(name, missing))
        return results

    def _builder(self, op: tf.Operation) -> Callable[..., list[Any]] | None:
        """What builds an op that has functions; None: it has none."""
        if op.type in _CALLS:
            return self._call
        kind = op.type.removeprefix("Stateless")
        builder = {"If": self._conditional, "Case": self._case, "While": self._loop}.get(kind)
        if builder is None and any(_function_names(op)):
            raise NotImplementedError(
                f"op {op.name!r} of type {op.type} calls functions, which an export of stock ops "
                'has for calls, conditionals and loops only: build it without, or pass ops="fused"'
            )
        return builder

    def _function(self, name: str, inputs: Sequence[Any]) -> list[Any]:
        """A copy of a function's body, called with `inputs`."""
        body = self._body(name)
        given = {argument.name: value for argument, value in zip(body.inputs, inputs, strict=True)}
        return self._copy(given, body.outputs, body.control_outputs)

    def _body(self, name: str) -> Any:
        with self._graph.as_default():
            return function_def_to_graph(self._functions[name])

    def _call(self, op: tf.Operation, inputs: list[Any]) -> list[Any]:
        return self._function(op.node_def.attr["f"].func.name, inputs)

    def _branch(self, op: tf.Operation, name: str, inputs: list[Any]) -> Callable[[], list[Any]]:
        def branch() -> list[Any]:
            return [_available(result, op) for result in self._function(name, inputs)]

        return branch

    def _conditional(self, op: tf.Operation, inputs: list[Any]) -> list[Any]:
        names = (op.node_def.attr[branch].func.name for branch in ("then_branch", "else_branch"))
        branches = [self._branch(op, name, inputs[1:]) for name in names]
        return _as_list(tf.cond(tf.cast(inputs[0], tf.bool), *branches))

    def _case(self, op: tf.Operation, inputs: list[Any]) -> list[Any]:
        names = [function.name for function in op.node_def.attr["branches"].list.func]
        branches = [self._branch(op, name, inputs[1:]) for name in names]
        return _as_list(tf.switch_case(inputs[0], branches))

    def _loop(self, op: tf.Operation, inputs: list[Any]) -> list[Any]:
        """A loop over what is a tensor; handles stay what they are."""
        attrs = op.node_def.attr
        condition, body = attrs["cond"].func.name, attrs["body"].func.name
        loops = [i for i, value in enumerate(inputs) if _is_loop_variable(value)]

        def all_inputs(variables: Sequence[tf.Tensor]) -> list[Any]:
            full = list(inputs)
            for i, variable in zip(loops, variables, strict=True):
                full[i] = variable
            return full

        def run_body(*variables: tf.Tensor) -> list[Any]:
            results = self._function(body, all_inputs(variables))
            _keep_whole(op, inputs, results)
            # In an export that was loaded, the shape of what a handle gathers is not known.
            return [_with_shape_of(_available(results[i], op), variables_of[i]) for i in loops]

        variables_of = self._body(body).inputs
        results = tf.while_loop(
            lambda *variables: self._function(condition, all_inputs(variables))[0],
            run_body,
            [inputs[i] for i in loops],
            shape_invariants=[variables_of[i].shape for i in loops],
            parallel_iterations=op.get_attr("parallel_iterations"),
        )
        return all_inputs(results)


def all_inputs(op: tf.Operation) -> Iterable[tf.Tensor]:
    """Inputs of an op."""
    return op.inputs


def needed_operations(
    given: Iterable[str],
    outputs: Sequence[tf.Tensor],
    control_outputs: Sequence[tf.Operation] = (),
    inputs_of: Callable[[tf.Operation], Iterable[tf.Tensor]] = all_inputs,
) -> list[tf.Operation]:
    """What computes outputs from given tensors.

    Args:
        given: Names of tensors at which to stop.
        outputs: Tensors of a graph.
        control_outputs: Operations that are needed as well.
        inputs_of: The inputs that an operation needs.

    Returns:
        The operations, in an order in which they can be copied, but for loops of TF1.
    """
    known = set(given)

    def makers(tensors: Iterable[tf.Tensor]) -> list[tf.Operation]:
        return [tensor.op for tensor in tensors if tensor.name not in known]

    # Depth first. Not the order in which ops were made: conditionals of TF1 change inputs later.
    waiting = [(op, False) for op in (*makers(outputs), *control_outputs)]
    seen, needed = set(), []
    while waiting:
        op, has_inputs = waiting.pop()
        if has_inputs:
            needed.append(op)
        elif op.name not in seen and (makers(op.outputs) or not op.outputs):
            seen.add(op.name)
            waiting.append((op, True))
            waiting += [(before, False) for before in (*makers(inputs_of(op)), *op.control_inputs)]
    return needed


def _refuse_loops(operations: Iterable[tf.Operation]) -> None:
    for op in operations:
        if op.type in _LOOPS_OF_V1:
            raise NotImplementedError(
                f"op {op.name!r} of type {op.type} is of a loop of TF1, which cannot be exported: "
                "call tf.compat.v1.enable_control_flow_v2() before the graph is built"
            )


def is_ours(op: tf.Operation) -> bool:
    """Whether an op is of this package."""
    return op.type in raw_ops.__all__


def read_inputs(op: tf.Operation) -> Iterable[tf.Tensor]:
    """Inputs of an op, but for those that its stock form does not look at."""
    if not is_ours(op):
        return op.inputs
    named = _by_name(op, op.op_def.input_arg, op.inputs)
    return tf.nest.flatten([named[name] for name in named if name not in UNREAD_INPUTS])


def _argument(name: str, value: Any, op: tf.Operation) -> Any:
    """What stands for an input of an op of this package."""
    if isinstance(value, list):
        return [_argument(name, one, op) for one in value]
    is_read_by_row = name in MATRICES and isinstance(value, LookedUp)
    return value if is_read_by_row else _available(value, op)


def _by_name(op: tf.Operation, arguments: Any, values: Sequence[Any]) -> dict[str, Any]:
    """Inputs or outputs of an op by the names of its definition; lists as lists."""
    named: dict[str, Any] = {}
    first = 0
    for argument in arguments:
        if argument.number_attr or argument.type_list_attr:
            attr = op.get_attr(argument.number_attr or argument.type_list_attr)
            count = attr if argument.number_attr else len(attr)
            named[argument.name] = list(values[first : first + count])
        else:
            count = 1
            named[argument.name] = values[first]
        first += count
    return named


def _without_python(op: tf.Operation) -> list[Any]:
    """The zeros that stand for what `do_fusion="check"` calls: no step is checked."""
    if CHECK not in op.node_def.attr:
        raise NotImplementedError(
            f"op {op.name!r} of type {op.type} calls Python, which a server does not have: export "
            "outputs that do not depend on it"
        )
    return [tf.zeros([], tensor.dtype) for tensor in op.outputs]


def refuse_placeholder(op: tf.Operation) -> None:
    """Raises a ValueError for what has to be given."""
    if op.type == "Placeholder":
        raise ValueError(
            f"the outputs need the placeholder {op.name!r}, which is no input: add it to the inputs"
        )


def _copy_operation(op: tf.Operation, inputs: list[Any]) -> list[Any]:
    """The same op, on no device, without what TensorFlow noted about it."""
    refuse_placeholder(op)
    first, rest = inputs[:1], [_available(value, op) for value in inputs[1:]]
    results = read_by_row(op, first + rest)
    if results is not None:
        return results
    attrs = {name: attr for name, attr in op.node_def.attr.items() if not name.startswith("_")}
    copied = tf.compat.v1.get_default_graph().create_op(
        op.type,
        [_available(value, op) for value in first] + rest,
        [tensor.dtype.base_dtype for tensor in op.outputs],
        name=op.name,
        attrs=attrs,
    )
    return _Results(copied.outputs, [copied])


class _Results(list[Any]):
    """Results of operations that others may have to wait for, also where there are none."""

    def __init__(self, results: Iterable[Any], operations: list[tf.Operation]) -> None:
        super().__init__(results)
        self.operations = operations


def _operations_of(results: list[Any]) -> list[tf.Operation]:
    # An eager tensor, such as the handle of a variable, has no op.
    operations = [result.op for result in results if tf.is_tensor(result) and hasattr(result, "op")]
    return operations + getattr(results, "operations", [])


def _available(value: Any, op: tf.Operation) -> Any:
    if isinstance(value, LookedUp):
        return value.whole(op)
    if not isinstance(value, Unavailable):
        return value
    raise NotImplementedError(
        f"op {op.name!r} of type {op.type} reads the output {value.output!r} of "
        f"{value.op.name!r}, of type {value.op.type}, which an export of stock ops does not have, "
        'as only training needs it: export outputs that do not depend on it, or pass ops="fused"'
    )


def _with_shape_of(result: Any, tensor: tf.Tensor) -> Any:
    """`result`, with what is known of the shape of the tensor it stands for."""
    if tf.is_tensor(result) and result.dtype not in (tf.resource, tf.variant):
        result.set_shape(tensor.shape)
    return result


def _function_names(op: tf.Operation) -> Iterable[str]:
    for attr in op.node_def.attr.values():
        yield attr.func.name
        yield from (function.name for function in attr.list.func)


def _keep_whole(op: tf.Operation, inputs: list[Any], results: list[Any]) -> None:
    """Notes matrices that a loop changes, which are then no matrices that are only looked up."""
    for given, result in zip(inputs, results, strict=True):
        if result is not given:
            for value in (given, result):
                if isinstance(value, LookedUp):
                    value.whole(op)


def _is_loop_variable(value: Any) -> bool:
    return tf.is_tensor(value) and value.dtype != tf.resource


def _as_list(results: Any) -> list[Any]:
    if results is None:
        return []
    return list(results) if isinstance(results, list | tuple) else [results]
