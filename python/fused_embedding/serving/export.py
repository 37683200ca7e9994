"""fe.export_for_serving."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import tensorflow as tf

from fused_embedding.ops.tf_private import Trackable, eager_mode
from fused_embedding.serving.applied_deltas import APPLY, AppliedDeltas, DenseVariable
from fused_embedding.serving.counted_tables import captured_counted, counted_handles
from fused_embedding.serving.generations import Generations
from fused_embedding.serving.graph_copy import GraphCopier, all_inputs
from fused_embedding.serving.graph_import import call_graph
from fused_embedding.serving.locked_tables import LockedTables
from fused_embedding.serving.looked_up import LookedUp
from fused_embedding.serving.object_paths import paths_of_tables, paths_of_variables
from fused_embedding.serving.onnx_file import write_onnx
from fused_embedding.serving.onnx_tables import OnnxRows, OnnxTables
from fused_embedding.serving.quantization import Quantization, RowErrors
from fused_embedding.serving.served_table import ServedTable
from fused_embedding.serving.signatures import (
    DEFAULT,
    Signature,
    concrete_functions,
    is_locked,
    signature_of_function,
    signature_of_graph,
)
from fused_embedding.serving.sources import (
    Resources,
    TableOfSession,
    captured_owners,
    content_of_variable,
    resources_of_model,
    resources_of_session,
)
from fused_embedding.serving.stock_forms import STOCK_OPS
from fused_embedding.serving.stock_ops import Lookups
from fused_embedding.variable.embedding_variable import EmbeddingVariable


def export_for_serving(  # noqa: PLR0913  # a model or a session, and what to write
    model: Any,
    path: str | os.PathLike[str],
    ops: Literal["stock", "fused"] = "stock",
    *,
    signatures: Any = None,
    inputs: dict[str, Any] | None = None,
    outputs: dict[str, Any] | None = None,
    format: Literal["saved_model", "onnx"] = "saved_model",
    overwrite: bool = False,
    quantize: str | Mapping[str, str] | None = None,
) -> dict[str, RowErrors] | None:
    """Exports a model for servers: its lookups only read, and insert and count nothing.

    Args:
        model: A Keras model (Keras 3 or 2), a tf.Module or a loaded SavedModel; or a
            tf.compat.v1.Session.
        path: Folder of the SavedModel, or name of the ONNX file.
        ops: "stock": lookups become stock ops, and EmbeddingVariables stock tables, which any
            server of TensorFlow loads. "fused": the ops of this package, which the server must
            load.
        signatures: For a model: a tf.function with an input_signature, a concrete function, or a
            dictionary of those by name. None: the signatures of a loaded SavedModel; for a Keras
            model its call with training=False, with one argument per input.
        inputs: For a session: tensors of its graph by name. A sparse or ragged tensor becomes
            several inputs, `NAME_values` and so on.
        outputs: For a session: the results of the signature "serving_default", tensors by name.
        format: "saved_model", or "onnx": a file of standard ONNX ops with one signature. In an ONNX
            file, a key without a row reads the mean of the initializer if that is random.
        overwrite: Whether to overwrite a SavedModel in the folder, file by file: a server that
            loads it meanwhile may see a mixture. An ONNX file is always replaced.
        quantize: Stores rows in fewer bytes, from which each lookup decodes float32. "int8": dim +
            8 bytes a row; "int4": dim / 2 + 4, in ONNX + 8; "bfloat16": 2 dim, not in ONNX. A
            format applies to all EmbeddingVariables, and to all float variables `[rows, dim]` that
            signatures only look up, whose rows become smaller. A dictionary has formats by the
            names of tables and variables, for these only. With ops="fused" one op decodes and adds
            up the rows of grouped lookups; all else is as in an export of stock ops. None: rows are
            stored as they are.

    Returns:
        With `quantize`, the errors of the rows of each table or variable that is stored in fewer
        bytes, by its name; else None.

    Raises:
        NotImplementedError: For an op that cannot be converted to stock ops or ONNX; names the op.
            For a format of `quantize` that ONNX files do not have.
        ValueError: If signatures, inputs or outputs are missing or do not belong to the model, the
            folder has a SavedModel, or an ONNX file would be larger than 2 GB. If `quantize` has an
            unknown format or name, a variable that is no float matrix or is not only looked up, or
            there is a row with numbers that its format does not have, such as NaN.
        ImportError: If format="onnx" and tf2onnx is not installed.
        TypeError: If a signature is not a tf.function, the model is a path or a MonitoredSession,
            or `quantize` is neither a format nor a dictionary.

    >>> class Model(tf.Module):
    ...     def __init__(self):
    ...         self.table = fe.get_embedding_variable("users", 4)
    ...     @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    ...     def serve(self, users):
    ...         return {"rows": tf.nn.embedding_lookup(self.table, users)}
    >>> model, folder = Model(), tempfile.mkdtemp()
    >>> fe.export_for_serving(model, folder, signatures=model.serve)
    >>> serve = tf.saved_model.load(folder).signatures["serving_default"]
    >>> serve(users=tf.constant([7], tf.int64))["rows"].shape
    TensorShape([1, 4])
    """
    _check_form(ops, format)
    quantization = Quantization(quantize, ops == "fused", format == "onnx")
    if quantization.are_lookups_fused:
        ops = "stock"  # but for the lookups of stored rows
    _check_model(model)
    path = os.fspath(path)
    if format == "saved_model" and not overwrite:
        _check_folder(path)
    if isinstance(model, tf.compat.v1.Session | tf.compat.v1.InteractiveSession):
        if signatures is not None:
            raise ValueError("a session has no signatures=: give inputs= and outputs=")
        signature = signature_of_graph(model.graph, inputs, outputs)
        if format == "onnx":
            _session_to_onnx(model, path, signature, quantization)
        else:
            _export_session(model, path, ops, signature, quantization)
        return quantization.errors()
    if inputs is not None or outputs is not None:
        raise ValueError(f"inputs= and outputs= are for a session, and {model!r} is none")
    if format == "onnx":
        _model_to_onnx(model, path, signatures, quantization)
    else:
        _export_model(model, path, ops, signatures, quantization)
    return quantization.errors()


def _check_form(ops: str, format: str) -> None:
    if ops not in ("stock", "fused"):
        raise ValueError(f'ops must be "stock" or "fused", got {ops!r}')
    if format not in ("saved_model", "onnx"):
        raise ValueError(f'format must be "saved_model" or "onnx", got {format!r}')
    if format == "onnx" and ops != "stock":
        raise ValueError(f"an ONNX file has no ops of this package, got ops={ops!r}: leave it out")


def _check_model(model: Any) -> None:
    if isinstance(model, str | bytes | os.PathLike):
        raise TypeError(
            f"the model to export was given as the path {model!r}, but a Keras model, a tf.Module, "
            "a loaded SavedModel or a tf.compat.v1.Session is required: load it, a SavedModel with "
            "tf.saved_model.load(path), a file of Keras with keras.models.load_model(path)"
        )
    train = tf.compat.v1.train
    if isinstance(model, train.MonitoredSession | train.SingularMonitoredSession):
        raise TypeError(
            f"the model to export was given as a {type(model).__name__}, whose graph is finalized, "
            "but reading its variables takes ops: build the graph again, restore the last "
            "checkpoint into a tf.compat.v1.Session of it, and give that session"
        )


def _check_folder(path: str) -> None:
    if tf.saved_model.contains_saved_model(path):
        raise ValueError(
            f"the folder {path!r} has a SavedModel, which servers may be loading: give a new "
            "folder, as the numbered ones of TensorFlow Serving are, or pass overwrite=True"
        )


def _model_to_onnx(model: Any, path: str, signatures: Any, quantization: Quantization) -> None:
    functions = concrete_functions(model, signatures)
    if len(functions) > 1:
        raise ValueError(
            f"an ONNX file has one signature, got {', '.join(functions)}: give one as signatures="
        )
    signature = signature_of_function(*functions.values())
    captured = captured_owners(signature, resources_of_model(model, [signature]))
    tables = OnnxTables()
    served = {
        handle: quantization.onnx_table(content_of_variable(owner), tables)
        for handle, owner in captured.items()
        if isinstance(owner, EmbeddingVariable)
    }
    given: dict[str, Any] = {}
    values = []
    for handle, inside in signature.captures:
        if handle.dtype == tf.resource:
            given[inside.name] = served.get(id(handle), handle)
        else:
            values.append(tf.Variable(handle))
            given[inside.name] = values[-1]
    dense = _dense_variables(_resources(captured))
    _save_onnx(path, _Function(signature, given), dense, values, tables, quantization)


def _session_to_onnx(
    session: Any, path: str, signature: Signature, quantization: Quantization
) -> None:
    tables = OnnxTables()
    copies = resources_of_session(
        session, signature, lambda table: quantization.onnx_table(table.content(), tables)
    )
    with eager_mode():
        function = _Function(signature, copies.handles | copies.values)
        dense = _dense_variables(copies.resources)
        _save_onnx(path, function, dense, [], tables, quantization)


def _save_onnx(  # what a file is made of
    path: str,
    function: "_Function",
    dense: list[DenseVariable],
    values: list[tf.Variable],
    tables: OnnxTables,
    quantization: Quantization,
) -> None:
    def trace(stand_ins: dict[int, LookedUp]) -> None:
        function.built(stand_ins, quantization.lookups)

    kept, stand_ins = quantization.variables(dense, trace)
    variables = [one.variable for one in kept if id(one.variable.handle) not in stand_ins]
    for stand_in in stand_ins.values():
        variables += stand_in.variables if isinstance(stand_in, OnnxRows) else []
    built = function.built(stand_ins, quantization.lookups)
    write_onnx(built, variables + values, tables, path)


def _export_model(
    model: Any, path: str, ops: str, signatures: Any, quantization: Quantization
) -> None:
    concrete = concrete_functions(model, signatures)
    described = {name: signature_of_function(function) for name, function in concrete.items()}
    owners = resources_of_model(model, described.values())
    captured: dict[int, Any] = {}
    for signature in described.values():
        captured |= captured_owners(signature, owners)
    resources = _resources(captured)
    dense = _dense_variables(resources, model)
    places = _places(model)
    if ops == "fused":
        _save_fused(path, concrete, described, resources, dense, places)
        return
    counted = captured_counted(described.values())
    tables = {
        handle: quantization.table(content_of_variable(owner, handle in counted))
        for handle, owner in captured.items()
        if isinstance(owner, EmbeddingVariable)
    }
    functions = {
        name: _Function(
            signature,
            {inside.name: tables.get(id(handle), handle) for handle, inside in signature.captures},
        )
        for name, signature in described.items()
    }
    in_order = [places.get(handle, "") for handle in tables]
    kept = _Kept(_resources(captured | tables), dense, in_order)
    _save_stock(path, functions, kept, quantization)


class _Function(NamedTuple):
    """A function of stock ops to be.

    Attributes:
        signature: What is exported.
        given: By the name of a tensor of its graph: what stands for it, a table, a handle, or a
            variable whose value does.
    """

    signature: Signature
    given: dict[str, Any]

    def built(
        self,
        stand_ins: Mapping[int, LookedUp],
        lookups: Lookups,
        generations: Generations | None = None,
    ) -> Any:
        """The concrete function.

        Args:
            stand_ins: What stands for variables instead, by the ids of their handles.
            lookups: What ops of this package become.
            generations: Those of the export, if it has tables that deltas change.
        """
        given = {name: _stand_in(one, stand_ins) for name, one in self.given.items()}
        return _stock_function(self.signature, given, generations, lookups)


def _stand_in(given: Any, stand_ins: Mapping[int, LookedUp]) -> Any:
    if not isinstance(given, tf.Variable):
        return stand_ins.get(id(given), given)
    stand_in = stand_ins.get(id(given.handle))
    return given if stand_in is None else stand_in.value()


class _Kept(NamedTuple):
    """What an export of stock ops keeps beside its functions.

    Attributes:
        resources: With `ServedTable`s as tables.
        dense: The dense variables, in the order of `resources`.
        places: Of the tables; None: not known.
    """

    resources: Resources
    dense: list[DenseVariable]
    places: list[str] | None = None


def _save_stock(
    path: str, functions: dict[str, _Function], kept: _Kept, quantization: Quantization
) -> None:
    def trace(stand_ins: dict[int, LookedUp]) -> None:
        for function in functions.values():
            function.built(stand_ins, quantization.lookups)

    dense, stand_ins = quantization.variables(kept.dense, trace)
    resources = kept.resources._replace(variables=[one.variable for one in dense])
    tables = resources.tables
    generations = Generations(tables, dense, kept.places) if tables else None
    built = {
        name: function.built(stand_ins, quantization.lookups, generations)
        for name, function in functions.items()
    }
    _save(path, built, resources, generations)


def _places(model: Any) -> dict[int, str]:
    """Where a model keeps its tables, by the id of their handles."""
    return paths_of_tables(model) if isinstance(model, Trackable) else {}


def _dense_variables(resources: Resources, model: Any = None) -> list[DenseVariable]:
    """The dense variables of an export, as checkpoints of the model or session name them."""
    paths = paths_of_variables(model) if isinstance(model, Trackable) else {}
    return [
        DenseVariable(paths.get(id(variable.handle), variable.name.removesuffix(":0")), variable)
        for variable in resources.variables
    ]


def _save_fused(
    path: str,
    functions: dict[str, Any],
    described: dict[str, Signature],
    resources: Resources,
    dense: list[DenseVariable],
    places: dict[int, str],
) -> None:
    # An export that was loaded has a lock of its own, and who holds it must not wait for another.
    if not resources.tables or any(map(is_locked, described.values())):
        _save(path, functions, resources)
        return
    handles = [id(table.handle) for table in resources.tables]
    counted = captured_counted(described.values())
    locked = LockedTables(
        resources.tables,
        dense,
        [places.get(handle, "") for handle in handles],
        [handle in counted for handle in handles],
    )
    served = {}
    for name, signature in described.items():
        given = {inside.name: handle for handle, inside in signature.captures}
        served[name] = _locked_function(signature, given, locked)
    _save(path, served, resources, locked)


def _resources(owners: dict[int, Any]) -> Resources:
    resources = Resources([], [], [])
    for owner in owners.values():
        if isinstance(owner, EmbeddingVariable | ServedTable):
            resources.tables.append(owner)
        elif isinstance(owner, tf.Variable):
            resources.variables.append(owner)
        else:
            resources.stock_tables.append(owner)
    return resources


def _export_session(
    session: Any, path: str, ops: str, signature: Signature, quantization: Quantization
) -> None:
    if ops == "fused":
        copies = resources_of_session(session, signature, TableOfSession.variable, all_inputs)
        counted = counted_handles(signature)
        are_counted = [n in counted for n, t in copies.handles.items() if _is_table(t)]
        with eager_mode():
            tables, dense = copies.resources.tables, _dense_variables(copies.resources)
            locked = LockedTables(tables, dense, None, are_counted) if tables else None
            given = {
                name: copy.handle if _is_table(copy) else copy
                for name, copy in (copies.handles | copies.values).items()
            }
            function = _locked_function(signature, given, locked)
            _save(path, {DEFAULT: function}, copies.resources, locked)
        return
    copies = resources_of_session(
        session, signature, lambda table: quantization.table(table.content())
    )
    with eager_mode():
        function = _Function(signature, copies.handles | copies.values)
        kept = _Kept(copies.resources, _dense_variables(copies.resources))
        _save_stock(path, {DEFAULT: function}, kept, quantization)


def _is_table(copy: Any) -> bool:
    return isinstance(copy, EmbeddingVariable)


def _stock_function(
    signature: Signature,
    given: dict[str, Any],
    generations: Generations | None = None,
    lookups: Lookups = STOCK_OPS,
) -> Any:
    """A concrete function that computes what a signature does with stock ops.

    Args:
        signature: What is exported.
        given: By the name of a tensor of its graph: the table or handle that stands for it, or the
            variable whose value does.
        generations: Those of the export, if it has tables that deltas change.
        lookups: What ops of this package become.
    """
    copier = GraphCopier(signature.graph, lookups)
    outputs = list(signature.outputs.values())

    def serve(arguments: dict[str, tf.Tensor]) -> list[tf.Tensor]:
        def compute(known: dict[str, Any]) -> list[tf.Tensor]:
            return copier.copy(known | arguments, outputs, signature.control_outputs)

        if generations is None:
            return compute(
                {n: v.read_value() if isinstance(v, tf.Variable) else v for n, v in given.items()}
            )
        return generations.answer(lambda is_odd: compute(generations.at(is_odd, given)), outputs)

    return _concrete(signature, serve)


def _locked_function(
    signature: Signature, given: dict[str, Any], locked: LockedTables | None
) -> Any:
    """A concrete function that computes what a signature does with the same ops."""

    def compute(known: dict[str, tf.Tensor]) -> list[tf.Tensor]:
        return call_graph(signature, known)

    def serve(arguments: dict[str, tf.Tensor]) -> list[tf.Tensor]:
        if locked is not None:
            return locked.answer(compute, given | arguments)
        return compute({name: tf.identity(value) for name, value in (given | arguments).items()})

    return _concrete(signature, serve)


def _concrete(
    signature: Signature, serve: Callable[[dict[str, tf.Tensor]], list[tf.Tensor]]
) -> Any:
    """A concrete function of a signature's inputs that returns its outputs, by their names.

    Args:
        signature: What is exported.
        serve: Called with what stands for the inputs by the name of the tensor; returns outputs.
    """

    @tf.function(autograph=False)
    def function(**arguments: tf.Tensor) -> dict[str, tf.Tensor]:
        results = serve({t.name: arguments[name] for name, t in signature.inputs.items()})
        # Each its own tensor, also where an output is an input.
        return dict(zip(signature.outputs, map(tf.identity, results), strict=True))

    return function.get_concrete_function(
        **{
            name: tf.TensorSpec(tensor.shape, tensor.dtype.base_dtype, name=name)
            for name, tensor in signature.inputs.items()
        }
    )


def _save(
    path: str,
    functions: dict[str, Any],
    resources: Resources,
    deltas: AppliedDeltas | None = None,
) -> None:
    root = tf.Module()
    root.dense_variables = resources.variables
    root.stock_tables = resources.stock_tables
    root.embedding_tables = [
        table.resources() if isinstance(table, ServedTable) else table for table in resources.tables
    ]
    if deltas is not None and resources.tables:
        if APPLY in functions:
            raise ValueError(f"the signature {APPLY!r} of an export applies deltas: rename yours")
        root.deltas = deltas
        functions = functions | {APPLY: deltas.apply_function()}
    tf.saved_model.save(root, path, signatures=functions)
