"""Where a program that is accelerated must get stock's ops all the same."""

import functools

import tensorflow as tf
from tensorflow.python.saved_model import save_context

from fused_embedding.ops import cuda
from fused_embedding.ops.disabled import is_disabled, why_disabled
from fused_embedding.ops.tf_private import GraphOrParentsInXlaContext, could_possibly_record
from fused_embedding.variable import estimator_mode


def reason_for_stock() -> str | None:
    """Why a lookup that is built now must be stock's, in words for users; None: it need not be.

    What is saved has to run in a server without this package: a SavedModel, the graph of an
    Estimator in mode PREDICT, a function that no gradient tape watches, which may be saved later.
    """
    if is_disabled("lookup"):
        return why_disabled("lookup")
    if estimator_mode.calling_for() == "infer":
        return "an Estimator calls it for mode PREDICT, which it exports"
    if _is_in_function() and not could_possibly_record():
        return "it is in a tf.function without a gradient tape, which may be saved"
    return _reason_of_context()


def reason_for_stock_update() -> str | None:
    """The same for an update by an optimizer, of which no gradient is taken."""
    return why_disabled("apply") if is_disabled("apply") else _reason_of_context()


def _reason_of_context() -> str | None:
    if save_context.in_save_context():
        return "it is part of a SavedModel"
    if tf.distribute.has_strategy():
        return f"it is under {type(tf.distribute.get_strategy()).__name__}"
    if _has_gpu_without_kernels():
        return "this machine has a GPU, and this build no kernels for it"
    is_graph = not tf.executing_eagerly()
    if is_graph and GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        return "XLA compiles it"
    return None


def _is_in_function() -> bool:
    """Whether a tf.function of an eager program is traced, not a TF1 graph or a part of one."""
    return not tf.executing_eagerly() and tf.compat.v1.executing_eagerly_outside_functions()


@functools.cache
def _has_gpu_without_kernels() -> bool:
    return not cuda.has_kernels() and bool(tf.config.list_physical_devices("GPU"))
