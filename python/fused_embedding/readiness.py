"""Tables on servers of a cluster are part of what TensorFlow calls an initialized model.

A server that was restarted makes a table anew, without its rows, for the session that asks first.
Such a table is uninitialized until an initializer, a restore or an import has run on it, as an
ordinary variable is: ops that read or train it fail, and workers wait for it.

TensorFlow initializes, and waits for, the variables in GLOBAL_VARIABLES. That collection has no
tables, since other users of it read dense tensors. So the functions that make initializers and
reports are patched, and so is the session manager, which prepares a chief's session. Nothing is
patched before a table is made on a server.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from fused_embedding import raw_ops
from fused_embedding._tf_private import colocate_with, set_bool_attr, variables_module

_HANDLE, _INITIALIZE = "EmbeddingVariableHandle", "EmbeddingVariableInitialize"
_NEEDS_INITIALIZER = "needs_initializer"


def is_on_server(device: str) -> bool:
    """Whether a device, of a table in a graph, is a task of a cluster."""
    return tf.DeviceSpec.from_string(device or "").job not in (None, "localhost")


def make_initializer(handle: tf.Tensor, name: str) -> tf.Operation:
    """The initializer of a table in a graph; without effect where the table is on no server.

    Args:
        handle: Of the table, which is uninitialized from now on where it is on a server.
        name: Of the initializer.
    """
    if not is_on_server(handle.device):
        return tf.no_op(name=name)
    _install()
    set_bool_attr(handle.op, _NEEDS_INITIALIZER, True)
    return _initialize(handle, name)


def is_initialized(handle: tf.Tensor, name: str | None = None) -> tf.Tensor:
    """Whether a table may be used, a boolean scalar."""
    if not _needs_initializer(handle):
        return tf.constant(True, name=name)
    with colocate_with(handle):
        return raw_ops.EmbeddingVariableIsInitialized(resource=handle, name=name)


def _initialize(handle: tf.Tensor, name: str | None = None) -> tf.Operation:
    with colocate_with(handle):
        return raw_ops.EmbeddingVariableInitialize(resource=handle, name=name)


def _needs_initializer(handle: Any) -> bool:
    is_symbolic = not hasattr(handle, "numpy")
    return is_symbolic and handle.op.type == _HANDLE and handle.op.get_attr(_NEEDS_INITIALIZER)


class _Table:
    """A table of a graph, with what TensorFlow asks of a variable that it initializes."""

    def __init__(self, handle: tf.Tensor) -> None:
        self.op = handle.op
        self.dtype = handle.dtype
        self._handle = handle

    @property
    def initializer(self) -> tf.Operation:
        return _initialize(self._handle)

    def is_initialized(self, name: str | None = None) -> tf.Tensor:
        return is_initialized(self._handle, name)


def _tables() -> list[_Table]:
    """The tables of the graph that need an initializer, also those of an imported graph."""
    operations = tf.compat.v1.get_default_graph().get_operations()
    handles = [operation.outputs[0] for operation in operations if operation.type == _HANDLE]
    return [_Table(handle) for handle in handles if _needs_initializer(handle)]


def _with_tables(variables: Iterable[Any]) -> list[Any]:
    """A list of variables; with the tables of the graph where it has all global variables."""
    variables = list(variables)
    in_graph = {id(variable) for variable in tf.compat.v1.global_variables()}
    if not in_graph or not in_graph <= {id(variable) for variable in variables}:
        return variables
    named = {getattr(getattr(variable, "op", None), "name", None) for variable in variables}
    return variables + [table for table in _tables() if table.op.name not in named]


def _initialize_tables(session: Any) -> None:
    """Lets tables be used that neither a restore nor an init_op has initialized."""
    operations = [op for op in session.graph.get_operations() if op.type == _INITIALIZE]
    if operations:
        session.run(operations)


# --- Patches ---


@functools.cache
def _install() -> None:
    _patch_functions("variables_initializer", "initializers.variables", _wrap_initializer)
    _patch_functions(
        "global_variables_initializer", "initializers.global_variables", _wrap_global_initializer
    )
    _patch_functions("report_uninitialized_variables", None, _wrap_report)
    manager = tf.compat.v1.train.SessionManager
    manager.prepare_session = _wrap_prepare_session(manager.prepare_session)
    manager._restore_checkpoint = _wrap_restore_checkpoint(manager._restore_checkpoint)


def _patch_functions(name: str, alias: str | None, wrap: Callable[..., Any]) -> None:
    """Patches a function where TensorFlow calls it, and under its public names."""
    stock = getattr(variables_module, name)
    wrapped = functools.wraps(stock)(wrap(stock))
    setattr(variables_module, name, wrapped)
    setattr(tf.compat.v1, name, wrapped)
    if alias is not None:
        owner, public_name = alias.split(".")
        setattr(getattr(tf.compat.v1, owner), public_name, wrapped)


def _wrap_initializer(stock: Callable[..., Any]) -> Callable[..., Any]:
    def variables_initializer(var_list: Any, name: str = "init") -> Any:
        if not var_list or tf.executing_eagerly():
            return stock(var_list, name)
        return stock(_with_tables(var_list), name)

    return variables_initializer


def _wrap_global_initializer(stock: Callable[..., Any]) -> Callable[..., Any]:
    def global_variables_initializer() -> Any:
        tables = [] if tf.executing_eagerly() else _tables()
        if not tables:
            return stock()
        variables = [*tf.compat.v1.global_variables(), *tables]
        return tf.compat.v1.variables_initializer(variables)

    return global_variables_initializer


def _wrap_report(stock: Callable[..., Any]) -> Callable[..., Any]:
    def report_uninitialized_variables(
        var_list: Any = None, name: str = "report_uninitialized_variables"
    ) -> Any:
        if var_list is not None:
            return stock(_with_tables(var_list), name)
        tables = _tables()
        if not tables:
            return stock(None, name)
        return stock(
            [*tf.compat.v1.global_variables(), *tf.compat.v1.local_variables(), *tables], name
        )

    return report_uninitialized_variables


def _wrap_prepare_session(stock: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def prepare_session(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        manager, init_fn = bound.arguments["self"], bound.arguments.get("init_fn")
        given = (bound.arguments.get("init_op"), init_fn or None, manager._local_init_op)
        # With nothing to initialize a model, TensorFlow raises.
        if any(one is not None for one in given):
            bound.arguments["init_fn"] = _then_initialize_tables(init_fn)
        return stock(*bound.args, **bound.kwargs)

    return prepare_session


def _then_initialize_tables(init_fn: Callable[[Any], Any] | None) -> Callable[[Any], None]:
    def initialize(session: Any) -> None:
        if init_fn:
            init_fn(session)
        _initialize_tables(session)

    return functools.wraps(init_fn)(initialize) if init_fn else initialize


def _wrap_restore_checkpoint(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def restore_checkpoint(*args: Any, **kwargs: Any) -> Any:
        session, is_restored = stock(*args, **kwargs)
        if is_restored:  # a Saver may leave tables out
            _initialize_tables(session)
        return session, is_restored

    return restore_checkpoint
