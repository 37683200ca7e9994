"""Copies what a graph computes as it is, with the ops of this package."""

from collections.abc import Mapping

import tensorflow as tf

from fused_embedding.serving.graph_copy import needed_operations, refuse_placeholder
from fused_embedding.serving.signatures import Signature


def call_graph(signature: Signature, given: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
    """Calls what computes the outputs of a signature, as a function of its own.

    Args:
        signature: What is computed.
        given: By the name of a tensor of its graph: the tensor that stands for it.

    Returns:
        What stands for each of its outputs.

    Raises:
        ValueError: If a placeholder is needed that is not given.
    """
    outputs = list(signature.outputs.values())

    def body(*inputs: tf.Tensor) -> list[tf.Tensor]:
        return _import(signature, dict(zip(given, inputs, strict=True)))

    # Not a tf.function, which puts control edges into loops of TF1.
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in given.values()]
    results = tf.compat.v1.wrap_function(body, specs)(*given.values())
    for result, tensor in zip(results, outputs, strict=True):
        result.set_shape(tensor.shape)  # that of a row is not known without the handle's
    return results


def _import(signature: Signature, given: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
    """Copies into the default graph what the outputs of a signature need."""
    outputs = list(signature.outputs.values())
    needed = needed_operations(given, outputs, signature.control_outputs)
    for op in needed:
        refuse_placeholder(op)
    read = {tensor.name for op in needed for tensor in op.inputs}
    tensors = [tensor.name for tensor in outputs if tensor.name not in given]
    imported = tf.graph_util.import_graph_def(
        _graph_def(signature.graph, needed),
        input_map={name: tensor for name, tensor in given.items() if name in read},
        return_elements=tensors + [op.name for op in signature.control_outputs],
        name="served",
    )
    made = dict(given) | dict(zip(tensors, imported, strict=False))
    with tf.control_dependencies(imported[len(tensors) :]):
        return [tf.identity(made[tensor.name]) for tensor in outputs]


def _graph_def(graph: tf.Graph, operations: list[tf.Operation]) -> tf.compat.v1.GraphDef:
    """Of some operations of a graph, on no device."""
    whole = graph.as_graph_def()
    part = tf.compat.v1.GraphDef(versions=whole.versions, library=whole.library)
    names = {op.name for op in operations}
    for node in whole.node:
        if node.name not in names:
            continue
        node.device = ""
        node.attr.pop("_class", None)  # where it is colocated: perhaps with what is left out
        inputs = [name for name in node.input if name[0] != "^" or name[1:] in names]
        del node.input[:]
        node.input.extend(inputs)
        part.node.append(node)
    return part
