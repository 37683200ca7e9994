"""Variables and tables of a model or a session, as those of an export."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from fused_embedding.ops import raw_ops
from fused_embedding.ops.tf_private import Trackable, eager_mode
from fused_embedding.serving.counted_tables import counted_handles
from fused_embedding.serving.graph_copy import needed_operations, read_inputs
from fused_embedding.serving.served_table import TableContent, table_content
from fused_embedding.serving.signatures import Signature
from fused_embedding.variable.content import import_whole
from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.options import EmbeddingVariableOption
from fused_embedding.variable.partitions import parts_of
from fused_embedding.variable.storage_options import TABLE_HANDLES, dram_attributes_of

_VARIABLES = ("VarHandleOp", "Variable", "VariableV2")
_STOCK_TABLES = ("HashTableV2", "MutableDenseHashTableV2", "MutableHashTableV2")


class Resources(NamedTuple):
    """What an export keeps beside its graph.

    Attributes:
        variables: Dense variables.
        stock_tables: Tables of stock TensorFlow, and other objects that own a handle or a file.
        tables: EmbeddingVariables, in whatever form.
    """

    variables: list[Any]
    stock_tables: list[Any]
    tables: list[Any]


# --- Models ---


def resources_of_model(model: Any, signatures: Iterable[Signature]) -> dict[int, Any]:
    """Who owns each handle that signatures may capture.

    Args:
        model: A Keras model, tf.Module or loaded SavedModel.
        signatures: Of its functions.

    Returns:
        By the id of the handle, which the owner keeps alive: the owner.
    """
    owners: list[Any] = []
    for signature in signatures:
        owners += getattr(signature.graph, "variables", ())
    if isinstance(model, Trackable):
        owners += tf.train.TrackableView(model).descendants()
    by_handle: dict[int, Any] = {}
    for owner in owners:
        parts = [part for part in parts_of(owner) if _handle(part) is not None]
        by_handle |= {id(_handle(part)): part for part in parts}
    return by_handle


def _handle(owner: Any) -> Any:
    if isinstance(owner, EmbeddingVariable | tf.Variable):
        return owner.handle
    for name in ("resource_handle", "asset_path"):
        handle = getattr(owner, name, None)
        if tf.is_tensor(handle):
            return handle
    return None


def captured_owners(signature: Signature, owners: dict[int, Any]) -> dict[int, Any]:
    """Those of `owners` whose handles a signature captures.

    Raises:
        ValueError: If nobody is known to own a handle.
    """
    captured = {}
    for handle, inside in signature.captures:
        owner = owners.get(id(handle))
        if owner is not None:
            captured[id(handle)] = owner
        elif handle.dtype == tf.resource:
            raise ValueError(
                f"the function {signature.graph.name!r} uses the resource {inside.name!r}, which "
                "no attribute of the model holds: make its owner, variable or table, an attribute"
            )
    return captured


def content_of_variable(variable: EmbeddingVariable, is_counted: bool = False) -> TableContent:
    """The content of an EmbeddingVariable that was made eagerly, as `table_content`."""
    exported = variable.export_content()._asdict()
    name = variable.name.removesuffix(":0")
    return table_content(name, variable.table_attributes, exported, is_counted)


# --- Sessions ---


class SessionResources(NamedTuple):
    """Copies of a session's variables and tables.

    Attributes:
        handles: By the name of a tensor of the graph: the handle, or table, to read instead.
        values: By the name of a reference variable: the variable to read instead.
        resources: All copies.
    """

    handles: dict[str, Any]
    values: dict[str, tf.Variable]
    resources: Resources


def resources_of_session(
    session: Any,
    signature: Signature,
    make_table: Callable[["TableOfSession"], Any],
    inputs_of: Callable[[tf.Operation], Iterable[tf.Tensor]] = read_inputs,
) -> SessionResources:
    """Copies what the outputs of a signature need out of a session.

    Args:
        session: A tf.compat.v1.Session.
        signature: Of its graph.
        make_table: Makes of an EmbeddingVariable what stands for its handle.
        inputs_of: The inputs of an operation that are copied with it.

    Raises:
        ValueError: If the graph is finalized: reading a table takes an op.
    """
    given = [tensor.name for tensor in signature.inputs.values()]
    needed = needed_operations(given, list(signature.outputs.values()), inputs_of=inputs_of)
    fetches = {op.name: _fetch(op) for op in needed if op.type in (*_VARIABLES, *_STOCK_TABLES)}
    fetches |= {op.name: _fetch_table(op) for op in needed if op.type in TABLE_HANDLES}
    fetched = session.run(fetches)
    counted = counted_handles(signature)
    copies = SessionResources({}, {}, Resources([], [], []))
    with eager_mode():
        for op in needed:
            if op.name in fetched:
                if op.type in TABLE_HANDLES:
                    is_counted = op.outputs[0].name in counted
                    table = make_table(TableOfSession(op, fetched[op.name], is_counted))
                    copies.resources.tables.append(table)
                    copies.handles[op.outputs[0].name] = table
                else:
                    _copy_resource(op, fetched[op.name], copies)
    return copies


def _check_not_finalized(graph: tf.Graph) -> None:
    if graph.finalized:
        raise ValueError(
            "the graph is finalized, and reading variables takes ops: restore a checkpoint into a "
            "tf.compat.v1.Session, and give that one instead of a MonitoredSession's"
        )


def _fetch(op: tf.Operation) -> Any:
    handle = op.outputs[0]
    if op.type in ("Variable", "VariableV2"):
        return handle
    _check_not_finalized(op.graph)
    with op.graph.as_default(), tf.control_dependencies(None):
        if op.type == "VarHandleOp":
            return tf.raw_ops.ReadVariableOp(resource=handle, dtype=op.get_attr("dtype"))
        return tf.raw_ops.LookupTableExportV2(
            table_handle=handle,
            Tkeys=op.get_attr("key_dtype"),
            Tvalues=op.get_attr("value_dtype"),
        )


def _fetch_table(op: tf.Operation) -> Any:
    dtype = op.get_attr("dtype")
    _check_not_finalized(op.graph)
    with op.graph.as_default(), tf.control_dependencies(None):
        return raw_ops.EmbeddingVariableExport(
            resource=op.outputs[0],
            dtype=dtype,
            slot_dtype=tf.float64 if dtype == tf.float64 else tf.float32,
        )._asdict()


class TableOfSession(NamedTuple):
    """An EmbeddingVariable of a graph.

    Attributes:
        op: The op that makes its handle.
        exported: Outputs of the op EmbeddingVariableExport by name, as arrays.
        is_counted: Whether lookups read how often keys have occurred.
    """

    op: tf.Operation
    exported: dict[str, np.ndarray]
    is_counted: bool = False

    def content(self) -> TableContent:
        """What inference reads."""
        return table_content(self.op.name, self._attributes(), self.exported, self.is_counted)

    def variable(self) -> EmbeddingVariable:
        """A copy that is made eagerly."""
        attributes = self._attributes()
        for name in ("container", "shared_name", "frozen", "needs_initializer"):
            attributes.pop(name, None)
        dtype = tf.as_dtype(attributes["dtype"])
        matrix = np.frombuffer(self.op.get_attr("initializer_matrix"), dtype.as_numpy_dtype)
        attributes |= {"dtype": dtype, "initializer_matrix": matrix.reshape(-1, attributes["dim"])}
        variable = EmbeddingVariable(
            self.op.name, attributes, option=EmbeddingVariableOption(), trainable=False
        )
        # Without the counters of a Bloom filter, which nobody reads who does not train.
        bloom = {"bloom": tf.zeros([1, 0], tf.uint8), "bloom_layout": tf.constant("")}
        content = {name: tf.constant(array) for name, array in self.exported.items()}
        import_whole([variable], content | bloom)
        return variable

    def _attributes(self) -> dict[str, Any]:
        """Attrs by name of an op that makes such a table in DRAM, strings as str."""
        values = {attr.name: self.op.get_attr(attr.name) for attr in self.op.op_def.attr}
        del values["initializer_matrix"]  # bytes
        decoded = {k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()}
        return dram_attributes_of(self.op.type, decoded)


def _copy_resource(op: tf.Operation, fetched: Any, copies: SessionResources) -> None:
    name = op.outputs[0].name
    if op.type in _VARIABLES:
        variable = tf.Variable(fetched, trainable=False, name=op.name)
        copies.resources.variables.append(variable)
        if op.type == "VarHandleOp":
            copies.handles[name] = variable.handle
        else:
            copies.values[name] = variable
    else:
        stock = _stock_table(op, *fetched)
        copies.resources.stock_tables.append(stock)
        copies.handles[name] = stock.resource_handle


def _stock_table(op: tf.Operation, keys: Any, values: Any) -> Any:
    """A copy of a table of stock TensorFlow that a session has."""
    key_dtype, value_dtype = op.get_attr("key_dtype"), op.get_attr("value_dtype")
    # What a key reads that is not there is an input of each lookup.
    default = tf.zeros(values.shape[1:], value_dtype)
    table = tf.lookup.experimental.MutableHashTable(key_dtype, value_dtype, default)
    table.insert(tf.constant(keys, key_dtype), tf.constant(values, value_dtype))
    return table
