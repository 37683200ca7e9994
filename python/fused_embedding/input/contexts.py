"""Where examples must be parsed by stock's op all the same."""

import tensorflow as tf
from tensorflow.python.saved_model import save_context

from fused_embedding.ops.disabled import is_disabled, why_disabled
from fused_embedding.ops.tf_private import could_possibly_record
from fused_embedding.variable import estimator_mode


def reason_for_stock() -> str | None:
    """Why an op that parses must be stock's, in words for users; None: it need not be.

    What is saved has to run in a server without this package. A function of a dataset is not saved,
    unless it is in another function that may be.
    """
    if is_disabled("parse"):
        return why_disabled("parse")
    if estimator_mode.calling_for() == "infer":
        return "an Estimator calls it for mode PREDICT, which it exports"
    if save_context.in_save_context():
        return "it is part of a SavedModel"
    if _is_in_function() and not could_possibly_record() and not is_in_dataset_function():
        return "it is in a tf.function without a gradient tape, which may be saved"
    return None


def _is_in_function() -> bool:
    return not tf.executing_eagerly() and tf.compat.v1.executing_eagerly_outside_functions()


def is_in_dataset_function() -> bool:
    """Whether the outermost function that is traced is one that a `tf.data.Dataset` calls.

    TensorFlow names it after the method: Dataset_map_parse.
    """
    graph = tf.compat.v1.get_default_graph()
    outermost = ""
    while graph is not None and hasattr(graph, "outer_graph"):
        outermost = graph.name
        graph = graph.outer_graph
    return outermost.startswith("Dataset_")
