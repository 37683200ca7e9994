"""ONNX files whose inputs, outputs and axes are told as torch.onnx.export is told."""

import copy
import importlib
import keyword
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.checkpoint.whole_file import whole_file
from fused_embedding.serving.export import export_for_serving

Axes = Mapping[int, str] | Sequence[int]


class OnnxArguments(NamedTuple):
    """The inputs and outputs of an ONNX file.

    Attributes:
        dummy_input: An array to call the model with, or a list or dictionary of arrays; a list of
            one array means that array. Only shapes and dtypes are used, not values.
        input_names: A name for each array; None: the keys of a dictionary, else input_0 and so on.
        output_names: A name for each tensor of the result; None: output_0 and so on.
        dynamic_axes: Axes that may have any size, by the name of an input or output: their names,
            `{"ids": {0: "batch"}}`, or numbers, `{"ids": [0]}`. Other axes of inputs have the sizes
            of dummy_input. None: all axes of inputs have the sizes of dummy_input.
    """

    dummy_input: Any
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    dynamic_axes: Mapping[str, Axes] | None = None


def export_onnx(model: Any, path: pathlib.Path, arguments: OnnxArguments) -> None:
    """Writes a model that is called with arrays, in inference, as an ONNX file.

    Args:
        model: A Keras model.
        path: The file, made or replaced when all is written.
        arguments: Its inputs and outputs.

    Raises:
        ValueError: If a name or axis is wrong, or as of `export_for_serving`.
        TypeError: If dummy_input has something that is no array.
    """
    called_with = arguments.dummy_input
    if isinstance(called_with, list | tuple) and len(called_with) == 1:
        (called_with,) = called_with
    arrays = _arrays(called_with)
    inputs = _input_names(arguments, len(arrays))
    axes = {name: _axis_names(name, v) for name, v in (arguments.dynamic_axes or {}).items()}
    specs = [_spec(name, *array, axes) for name, array in zip(inputs, arrays, strict=True)]

    @tf.function(autograph=False, input_signature=specs)
    def serve(*given: tf.Tensor) -> dict[str, tf.Tensor]:
        results = model(tf.nest.pack_sequence_as(called_with, given), training=False)
        flat = tf.nest.flatten(results)
        return dict(zip(_output_names(arguments, inputs, len(flat)), flat, strict=True))

    function = serve.get_concrete_function()
    results = function.structured_outputs
    outputs = _output_names(arguments, inputs, len(results))
    _check_outputs(axes, inputs, {name: results[name].shape.rank for name in outputs})
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as unfinished:
        export_for_serving(model, unfinished, signatures=function, format="onnx")
        _finish(unfinished, inputs, outputs, axes)


def _arrays(dummy_input: Any) -> list[tuple[list[int], tf.DType]]:
    """Sizes and dtypes."""
    leaves = tf.nest.flatten(dummy_input)
    for leaf in leaves:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype") or hasattr(leaf, "dense_shape"):
            raise TypeError(
                "dummy_input must be an array that the model is called with, or a list or "
                f"dictionary of some, got {leaf!r}: give numpy arrays or tensors"
            )
    if not leaves:
        raise ValueError("dummy_input has no array: give what the model is called with")
    return [(list(leaf.shape), tf.as_dtype(leaf.dtype)) for leaf in leaves]


def _spec(
    name: str, shape: list[int], dtype: tf.DType, axes: dict[str, dict[int, str]]
) -> tf.TensorSpec:
    dynamic = axes.get(name, {})
    _check_axes(name, dynamic, len(shape))
    return tf.TensorSpec([None if i in dynamic else n for i, n in enumerate(shape)], dtype, name)


def _input_names(arguments: OnnxArguments, count: int) -> list[str]:
    given = arguments.dummy_input
    default = [f"input_{i}" for i in range(count)]
    if isinstance(given, Mapping) and len(given) == count:
        default = sorted(given)  # the order of tf.nest
    return _checked_names("input_names", arguments.input_names, default, [])


def _output_names(arguments: OnnxArguments, inputs: list[str], count: int) -> list[str]:
    default = [f"output_{i}" for i in range(count)]
    return _checked_names("output_names", arguments.output_names, default, inputs)


def _checked_names(
    argument: str, given: Sequence[str] | None, default: list[str], others: list[str]
) -> list[str]:
    """Names, of which there must be as many as by default, and none of `others`."""
    names = default if given is None else given
    if isinstance(names, str) or len(names) != len(default):
        raise ValueError(
            f"{argument} must be a list of {len(default)} names, one for each tensor, got {names!r}"
        )
    for name in names:
        if not _is_identifier(name):
            raise ValueError(f"{argument} must be identifiers, got {name!r}: rename it")
    twice = [name for name in names if [*names, *others].count(name) > 1]
    if twice:
        raise ValueError(
            f"{argument} has {twice[0]!r}, which is the name of two tensors: rename one"
        )
    return list(names)


def _is_identifier(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)


def _axis_names(name: str, axes: Axes) -> dict[int, str]:
    if isinstance(axes, Mapping):
        return dict(axes)
    return {axis: f"{name}_axis_{axis}" for axis in axes}


def _check_axes(name: str, axes: Mapping[int, str], rank: int | None) -> None:
    for axis, axis_name in axes.items():
        if not isinstance(axis, int) or axis < 0 or (rank is not None and axis >= rank):
            raise ValueError(
                f"dynamic_axes has axis {axis!r} of {name!r}, which has {rank} axes: count from 0"
            )
        if not isinstance(axis_name, str) or not axis_name:
            raise ValueError(
                f"dynamic_axes calls axis {axis} of {name!r} {axis_name!r}: give it a name, or "
                f"{{{name!r}: [{axis}]}} without one"
            )


def _check_outputs(
    axes: dict[str, dict[int, str]], inputs: list[str], ranks: dict[str, int | None]
) -> None:
    """Checks that the axes are of inputs or of outputs, of which `ranks` are given."""
    for name, given in axes.items():
        if name not in inputs and name not in ranks:
            raise ValueError(
                f"dynamic_axes has the name {name!r}, but inputs and outputs are "
                f"{', '.join([*inputs, *ranks])}: use one of these"
            )
        if name in ranks:
            _check_axes(name, given, ranks[name])


def _finish(
    path: pathlib.Path, inputs: list[str], outputs: list[str], axes: dict[str, dict[int, str]]
) -> None:
    """Brings inputs and outputs into their order, and gives axes their names."""
    onnx = importlib.import_module("onnx")
    file = onnx.load(path)
    for values, names in ((file.graph.input, inputs), (file.graph.output, outputs)):
        by_name = {value.name: copy.deepcopy(value) for value in values}
        del values[:]
        values.extend(by_name[name] for name in names)
        for value in values:
            sizes = value.type.tensor_type.shape.dim
            for axis, name in axes.get(value.name, {}).items():
                if axis < len(sizes):  # else the rank is not known, and so no size is fixed
                    sizes[axis].dim_param = name
    onnx.save(file, path)
