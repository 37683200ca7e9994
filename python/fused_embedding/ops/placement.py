"""Where tables live: on the devices that device functions choose for ordinary variables."""

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from fused_embedding.ops import cuda
from fused_embedding.ops.tf_private import colocate_with, device_name

# The names that TensorFlow allows for ops; in a scratch graph a trailing "/" would be removed.
_OP_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/]*(?<!/)")


@contextlib.contextmanager
def placed_as_variable(name: str) -> Iterator[None]:
    """Places what is built inside as the device functions of the graph place a variable.

    Device functions see the variable's `name`: `ShardingPlan.device_setter` knows tables by it.

    tf.compat.v1.train.replica_device_setter sends variables to parameter servers in turn, and knows
    them by the types of their ops; it would leave a table's op to the worker. Here it is asked for
    a variable, in a graph that is thrown away.
    """
    if tf.executing_eagerly():
        yield
        return
    with tf.device(_device_of_variable(name)):
        yield


@contextlib.contextmanager
def _scratch_graph() -> Iterator[None]:
    """A graph with the device functions of the current one, to ask them."""
    functions = tf.compat.v1.get_default_graph()._device_functions_outer_to_inner
    with tf.Graph().as_default(), contextlib.ExitStack() as stack:
        for function in functions:
            stack.enter_context(tf.compat.v1.device(function))
        yield


def _device_of_variable(name: str) -> str:
    op_name = name if _OP_NAME.fullmatch(name) else "table"
    with _scratch_graph():
        # Of no size: strategies that balance loads know how large tables of fixed size are.
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="", name=op_name)
        return handle.device


def on_cpu() -> contextlib.AbstractContextManager[None]:
    """Puts what is built inside on the CPU of its task.

    Stages of lookups in tables on CPUs: some have kernels for GPUs, where TensorFlow would place
    them first, and keys and rows would go there and back, with a wait for each. And strings, which
    no GPU has.
    """
    return tf.device("/device:CPU:0")


def beside(table: tf.Tensor) -> contextlib.AbstractContextManager[None]:
    """Puts what is built inside where a table is, also what has no handle of it among its inputs.

    In the graph of a function a table is an argument. What calls the function gives its own device
    to the ops inside, and TensorFlow refuses an op that is also to be colocated with the argument.

    Args:
        table: A handle or a reference, or the argument of a function that stands for one.
    """
    device = ""
    while hasattr(table, "graph") and hasattr(table.graph, "captures"):
        outer = [outside for outside, inside in table.graph.captures if inside is table]
        if not outer:
            break
        table = outer[0]
        device = table.device or ""
    return tf.device(device) if device else colocate_with(table)


def on_gpu(name: str) -> contextlib.AbstractContextManager[None]:
    """Puts what is built inside, a table in a GPU's memory, on the GPU of the scope, or the first.

    Args:
        name: Name of the table.

    Raises:
        RuntimeError: Where there is no GPU, or this build has no kernels for it.
    """
    missing = why_no_gpu()
    if missing is not None:
        raise RuntimeError(
            f"the EmbeddingVariable {name!r} has storage_type = HBM, but {missing}; or pass "
            "StorageType.DRAM"
        )
    return tf.device(gpu_of_scope())


def why_no_gpu() -> str | None:
    """What is missing for tables in a GPU's memory, and what to do; None: nothing."""
    if not tf.config.list_physical_devices("GPU"):
        return "TensorFlow sees no GPU; run on a machine with one, and with tensorflow[and-cuda]"
    if not cuda.has_kernels():
        why = cuda.why_no_kernels()
        return f"the ops have no kernels for GPUs here: {why or 'build them, see docs/building.md'}"
    return None


def gpu_of_scope() -> str:
    """The GPU that the device scope names, else the first."""
    scope = device_name() if tf.executing_eagerly() else device_of_op()
    return scope if is_on_gpu(scope) else "/device:GPU:0"


def is_on_gpu(device: str) -> bool:
    """Whether `device`, of a table, is a GPU."""
    return tf.DeviceSpec.from_string(device or "").device_type == "GPU"


def lacks_kernels(device: str) -> bool:
    """Whether no op of this build can read a variable in place on `device`.

    An op with a variable's handle runs where the variable is, or is an error.
    """
    return is_on_gpu(device) and not cuda.has_kernels()


def is_in_another_task(device: str) -> bool:
    """Whether `device`, of a table, is of another task than what is built now.

    A table's device may leave the task open, or name the only one of a local program.

    Args:
        device: Name of a device, as variables and ops have it.

    Returns:
        Whether data would travel between tasks; also where that cannot be known.
    """
    table = tf.DeviceSpec.from_string(device or "")
    if table.job in (None, "localhost"):
        return False
    here = tf.DeviceSpec.from_string(device_of_op())
    return (table.job, table.task or 0) != (here.job, here.task or 0)


def device_of_op() -> str:
    """The device that an op gets which is built now, or as much of it as is said."""
    if tf.executing_eagerly():
        return tf.constant(0).device
    with _scratch_graph():
        return tf.raw_ops.NoOp().device
