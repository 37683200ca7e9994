"""What a model computes for a server: graphs with named inputs and outputs."""

import itertools
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

_LOCK, _CHANGE = "EmbeddingVariableServingLock", "EmbeddingVariableServingChange"
DEFAULT = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


class Signature(NamedTuple):
    """A graph with named inputs and outputs.

    Attributes:
        graph: A graph, or that of a concrete function.
        inputs: Its dense tensors by name; a sparse or ragged input is several.
        outputs: Its results: dense tensors by name; a sparse or ragged output is several.
        control_outputs: Operations that have to run as well, such as assertions.
        captures: Eager tensors and what stands for them in the graph.
    """

    graph: tf.Graph
    inputs: dict[str, tf.Tensor]
    outputs: dict[str, tf.Tensor]
    control_outputs: Sequence[tf.Operation] = ()
    captures: Sequence[tuple[tf.Tensor, tf.Tensor]] = ()


def signature_of_function(function: Any) -> Signature:
    """The signature of a concrete function, with the names that tf.saved_model.save gives.

    Args:
        function: Of tensors, or tensors in sparse or ragged ones.

    Raises:
        ValueError: If a result is no tensor.
    """
    captured = function.captured_inputs
    arguments = function.inputs[: len(function.inputs) - len(captured)]
    inputs = dict(zip(_argument_names(arguments), arguments, strict=True))
    names = _names_of(_as_dictionary(function.structured_outputs), "a result of a signature")
    return Signature(
        graph=function.graph,
        inputs=inputs,
        outputs=dict(zip(names, function.outputs, strict=True)),
        control_outputs=function.graph.control_outputs,
        captures=list(zip(captured, function.inputs[len(arguments) :], strict=True)),
    )


def _as_dictionary(results: Any) -> Mapping[str, Any]:
    """Results by name, as tf.saved_model.save names them."""
    if hasattr(results, "_asdict"):
        results = results._asdict()
    if isinstance(results, Mapping):
        return results
    results = results if isinstance(results, list | tuple) else [results]
    return {f"output_{i}": result for i, result in enumerate(results)}


def _argument_names(arguments: Sequence[tf.Tensor]) -> list[str]:
    """Of an argument x of several tensors x, x_1, ..."""
    names: list[str] = []
    for argument in arguments:
        name = stem = _argument_name(argument)
        for i in itertools.count(1):
            if name not in names:
                break
            name = f"{stem}_{i}"
        names.append(name)
    return names


def _argument_name(argument: tf.Tensor) -> str:
    try:
        name = argument.op.get_attr("_user_specified_name").decode()
    except ValueError:
        name = argument.op.name
    return re.sub(r"\W", "_", name)


def signature_of_graph(graph: tf.Graph, inputs: Any, outputs: Any) -> Signature:
    """The signature of a TF1 graph.

    Args:
        graph: The graph.
        inputs: Tensors, sparse or ragged tensors of the graph by name.
        outputs: The results: tensors, sparse or ragged tensors of the graph by name.

    Raises:
        ValueError: If one is missing, is no tensor, or has a name that is no identifier.
    """
    for argument, tensors in (("inputs", inputs), ("outputs", outputs)):
        if not isinstance(tensors, Mapping) or not tensors:
            raise ValueError(
                f"a session needs {argument}=, a dictionary of tensors of its graph by name, got "
                f"{tensors!r}"
            )
    return Signature(
        graph=graph,
        inputs=_named_components(inputs, "an input"),
        outputs=_named_components(outputs, "an output"),
    )


def _named_components(tensors: Mapping[str, Any], what: str) -> dict[str, tf.Tensor]:
    """Dense tensors by name."""
    flat = tf.nest.flatten(dict(tensors), expand_composites=True)
    return dict(zip(_names_of(tensors, what), flat, strict=True))


def _names_of(values: Mapping[str, Any], what: str) -> list[str]:
    """Names of all dense tensors in tensors, or TensorSpecs, by name; in the order of tf.nest."""
    names = []
    for name in sorted(values):
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(f"the name of {what} must be an identifier, got {name!r}: rename it")
        if not tf.is_tensor(values[name]) and not isinstance(values[name], tf.TypeSpec):
            raise ValueError(f"{name!r} is {what} and must be a tensor, got {values[name]!r}")
        names += _component_names(name, values[name])
    return names


def _component_names(name: str, value: Any) -> list[str]:
    """Names of the dense tensors of a tensor or of its TensorSpec."""
    if isinstance(value, tf.SparseTensor | tf.SparseTensorSpec):
        return [f"{name}_{part}" for part in ("indices", "values", "dense_shape")]
    if isinstance(value, tf.RaggedTensor | tf.RaggedTensorSpec):
        rank = value.ragged_rank
        splits = [f"{name}_row_splits{i}" for i in range(rank)] if rank > 1 else []
        return [f"{name}_values", *(splits or [f"{name}_row_splits"])]
    return [name]


def concrete_functions(model: Any, signatures: Any) -> dict[str, Any]:
    """The concrete functions to export, by the name of their signature.

    Args:
        model: A Keras model, tf.Module or loaded SavedModel.
        signatures: A tf.function with an input_signature, a concrete function, or a dictionary of
            those; None: what the model itself says.

    Raises:
        ValueError: If the model does not say, or there is none.
        TypeError: For what is no tf.function.
    """
    is_own = signatures is None
    if is_own:
        signatures = getattr(model, "signatures", None) or _keras_signature(model)
    if not isinstance(signatures, Mapping):
        signatures = {DEFAULT: signatures}
    if not signatures:
        raise ValueError("signatures= is empty; give a tf.function, or a dictionary of some")
    # Not in fe.inference(): a function that is traced now may train later.
    functions = {name: _concrete(name, function) for name, function in signatures.items()}
    if is_own:  # what applies deltas to an export is not of its model
        functions = {n: f for n, f in functions.items() if _CHANGE not in op_types(f.graph)}
    return functions


def is_locked(signature: Signature) -> bool:
    """Whether a signature is of an export of fused ops that was loaded."""
    return _LOCK in op_types(signature.graph)


def op_types(graph: tf.Graph) -> set[str]:
    """Types of the ops of a graph and of its functions."""
    graph_def = graph.as_graph_def()
    functions = [function.node_def for function in graph_def.library.function]
    return {node.op for nodes in [graph_def.node, *functions] for node in nodes}


def _concrete(name: str, function: Any) -> Any:
    if hasattr(function, "structured_outputs"):
        return function
    if not hasattr(function, "get_concrete_function"):
        raise TypeError(
            f"signatures[{name!r}] must be a tf.function or a concrete function, got {function!r}"
        )
    if function.input_signature is None:
        raise ValueError(
            f"signatures[{name!r}] has no input_signature: give it one, or give "
            "function.get_concrete_function(...)"
        )
    return function.get_concrete_function()


def _keras_signature(model: Any) -> Any:
    """A function that calls a Keras model for inference, with an argument for each input."""
    specs = keras_specs(model)
    if specs is None:
        raise ValueError(
            f"what {type(model).__name__} {getattr(model, 'name', '')!r} is called with is not "
            "known; give signatures=, a tf.function with an input_signature or a dictionary of some"
        )
    structure, names = specs
    flat = tf.nest.flatten(structure)
    components = {}
    for name, spec in zip(names, flat, strict=True):
        tensors = tf.nest.flatten(spec, expand_composites=True)
        for part, tensor in zip(_component_names(name, spec), tensors, strict=True):
            components[part] = tf.TensorSpec(tensor.shape, tensor.dtype, name=part)

    @tf.function(autograph=False)
    def serve(**arguments: tf.Tensor) -> Any:
        given = [arguments[name] for name in components]
        inputs = tf.nest.pack_sequence_as(structure, given, expand_composites=True)
        return model(inputs, training=False)

    return serve.get_concrete_function(**components)


def keras_specs(model: Any) -> tuple[Any, list[str]] | None:
    """What a Keras model is called with, as TensorSpecs and a name of each; None: not known."""
    if hasattr(model, "save_spec"):  # Keras 2
        spec = model.save_spec()
        structure = None if spec is None else spec[0][0]
        return None if spec is None else (structure, _input_names(model, structure, _spec_name))
    structure = _input_of_keras_3(model) if hasattr(model, "layers") else None
    if structure is None:
        return None
    names = _input_names(model, structure, lambda tensor, i: tensor.name)
    return tf.nest.map_structure(_spec_of_keras_3, structure), names


def _input_of_keras_3(model: Any) -> Any:
    try:
        return model.input
    except (AttributeError, ValueError):  # never called; which error depends on the version
        return None


def _spec_name(spec: Any, i: int) -> str:
    return getattr(spec, "name", None) or f"input_{i + 1}"


def _input_names(model: Any, structure: Any, name_of: Callable[[Any, int], str]) -> list[str]:
    flat = tf.nest.flatten(structure)
    if isinstance(structure, dict) and len(structure) == len(flat):
        names = sorted(structure)  # the order of tf.nest
    elif len(getattr(model, "input_names", None) or ()) == len(flat):
        names = model.input_names
    else:
        names = [name_of(value, i) for i, value in enumerate(flat)]
    return [re.sub(r"\W", "_", name) for name in names]


def _spec_of_keras_3(tensor: Any) -> Any:
    shape, dtype = tf.TensorShape(tensor.shape), tf.as_dtype(tensor.dtype)
    if getattr(tensor, "sparse", False):
        return tf.SparseTensorSpec(shape, dtype)
    if getattr(tensor, "ragged", False):
        return tf.RaggedTensorSpec(shape, dtype, ragged_rank=1)
    return tf.TensorSpec(shape, dtype)
