"""The embedding tables of a graph, session or Keras model: their sizes, slots and statistics."""

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.inspection.explain import graph_def_of
from fused_embedding.inspection.model_lookups import is_model, layers_of
from fused_embedding.inspection.read_variables import VARIABLES, read_variables
from fused_embedding.keras.table_of import table_of
from fused_embedding.variable.embedding_variable import STATISTICS, EmbeddingVariable
from fused_embedding.variable.row_size import describe_bytes
from fused_embedding.variable.scope import EMBEDDING_VARIABLES

Numbers = dict[str, int]
HEADER = ["table", "rows", "dim", "dtype", "bytes", "slots", "hits"]  # of TableFacts.cells
_UNKNOWN = "-"


class TableFacts(NamedTuple):
    """A table, or one partition of it.

    Attributes:
        name: Name of the variable.
        kind: "variable" or "EmbeddingVariable".
        rows: Number of rows now; None: not known.
        dim: Length of a row.
        dtype: Type of the values.
        num_bytes: Bytes of an ordinary variable's values; of an EmbeddingVariable's index, rows,
            slots and filters; None: not known.
        slot_bytes: Bytes of the slots of an ordinary variable; None: not known, or in `num_bytes`.
        statistics: Counters of an EmbeddingVariable, by name; None: not read.
    """

    name: str
    kind: str
    rows: int | None
    dim: int
    dtype: str
    num_bytes: int | None
    slot_bytes: int | None = None
    statistics: Numbers | None = None

    def cells(self) -> list[str]:
        """The table as a line below HEADER."""
        slots = _UNKNOWN if self.kind == "variable" or self.num_bytes is None else "included"
        return [
            self.name,
            _UNKNOWN if self.rows is None else f"{self.rows:,}",
            str(self.dim),
            self.dtype,
            _UNKNOWN if self.num_bytes is None else describe_bytes(self.num_bytes),
            slots if self.slot_bytes is None else describe_bytes(self.slot_bytes),
            _UNKNOWN if self.hit_rate is None else f"{self.hit_rate:.1%}",
        ]

    @property
    def hit_rate(self) -> float | None:
        """Share of the keys of lookups that had a row; None: not known, or nothing looked up."""
        return _share(self.statistics, lambda found: (found["hits"], found["misses"]))

    @property
    def memory_hit_rate(self) -> float | None:
        """Share of the rows that were in DRAM, of a table with a tier on an SSD; None: no tier."""
        if not self.statistics or not self.statistics.get("cold_gets"):
            return None
        return _share(
            self.statistics,
            lambda found: (
                found["hits"] + found["misses"] - found["cold_gets"],
                found["cold_gets"],
            ),
        )


def _share(
    statistics: Numbers | None, counts: Callable[[Numbers], tuple[int, int]]
) -> float | None:
    if statistics is None:
        return None
    found, others = counts(statistics)
    return found / (found + others) if found + others else None


def tables_of(value: Any, session: Any = None) -> list[TableFacts]:
    """The tables of a program.

    Args:
        value: A tf.Graph, GraphDef, concrete function or Keras model; columns have none.
        session: The session of a tf.Graph, to read the statistics of its EmbeddingVariables.

    Returns:
        The tables, the largest first.
    """
    if is_model(value):
        tables = _of_model(value)
    else:
        definition = graph_def_of(value)
        graph = getattr(value, "graph", value)
        tables = [] if definition is None else _of_graph(graph, definition, session)
    return sorted(tables, key=lambda table: -(table.num_bytes or 0))


# --- Graphs ---


def _of_graph(graph: Any, definition: Any, session: Any) -> list[TableFacts]:
    read = read_variables(definition)
    if not isinstance(graph, tf.Graph):
        return [_of_node(node) for node in definition.node if node.name in read]
    variables = _variables_of(graph)
    tables = [v for v in variables.values() if isinstance(v, EmbeddingVariable)]
    statistics = _statistics(graph, tables, session)
    others = None if hasattr(graph, "captures") else _all_variables(graph)
    return [
        *(_of_table(table, numbers) for table, numbers in zip(tables, statistics, strict=True)),
        *_of_dense(_ordinary(variables, read), others),
    ]


def _ordinary(variables: dict[str, Any], read: set[str]) -> dict[str, Any]:
    """The ordinary variables that are read as tables, by their own names."""
    found = (variable for node, variable in variables.items() if node in read)
    return {_path_of(v): v for v in found if not isinstance(v, EmbeddingVariable)}


def _variables_of(graph: tf.Graph) -> dict[str, Any]:
    """The variables of a graph by the name of the node that stands for them."""
    if hasattr(graph, "captures"):  # a function's: the node is the placeholder of a handle
        handles = {id(v.handle): v for v in graph.variables if hasattr(v, "handle")}
        captures = ((handles.get(id(outer)), inner) for outer, inner in graph.captures)
        return {inner.op.name: v for v, inner in captures if v is not None}
    return {v.op.name: v for v in _all_variables(graph)}


def _all_variables(graph: tf.Graph) -> list[Any]:
    names = (tf.compat.v1.GraphKeys.GLOBAL_VARIABLES, EMBEDDING_VARIABLES)
    found = [variable for name in names for variable in graph.get_collection(name)]
    return list({id(variable): variable for variable in found}.values())


def _of_node(node: Any) -> TableFacts:
    """A table of a GraphDef, from the attrs of the op that makes it."""
    dtype = tf.as_dtype(node.attr["dtype"].type)
    if node.op not in VARIABLES:
        dim = node.attr["dim"].i
        return TableFacts(node.name, "EmbeddingVariable", None, dim, dtype.name, None)
    shape = tf.TensorShape(node.attr["shape"].shape)
    return TableFacts(node.name, "variable", *_sizes(shape, dtype))


def _sizes(shape: tf.TensorShape, dtype: tf.DType) -> tuple[int | None, int, str, int | None]:
    """Rows, dim, dtype and bytes."""
    rows = shape[0] if shape.rank else None
    dim = shape[1:].num_elements() if shape.rank else None
    num_values = shape.num_elements()
    return rows, dim or 0, dtype.name, None if num_values is None else num_values * dtype.size


def _statistics(
    graph: tf.Graph, tables: list[EmbeddingVariable], session: Any
) -> list[Numbers | None]:
    """The counters of each table; None where they cannot be read."""
    if hasattr(graph, "captures"):
        return [_eager_statistics(table) for table in tables]
    if session is None:
        return [None] * len(tables)
    ops = _statistics_ops(graph, tables)
    values = iter(session.run([op for op in ops if op is not None]))
    return [None if op is None else _named(next(values)) for op in ops]


def _statistics_ops(graph: tf.Graph, tables: list[EmbeddingVariable]) -> list[Any]:
    """An output of counters for each table; a finalized graph has only those that it has."""
    ops = (op for op in graph.get_operations() if op.type == "EmbeddingVariableStatistics")
    counters = ((op.inputs[0], output) for op in ops for output in op.outputs)
    made = {handle.ref(): out for handle, out in counters if out.dtype == tf.int64}
    outputs = []
    for table in tables:
        output = made.get(table.handle.ref())
        if output is None and not graph.finalized:
            with graph.as_default(), tf.compat.v1.name_scope(None):
                any_counter = next(iter(table.statistics().values()))
            output = any_counter.op.inputs[0]
        outputs.append(output)
    return outputs


def _named(values: Iterable[Any]) -> Numbers:
    return {name: int(value) for name, value in zip(STATISTICS, values, strict=True)}


def _eager_statistics(table: EmbeddingVariable) -> Numbers | None:
    if not hasattr(table.handle, "numpy"):
        return None
    with tf.init_scope():
        return {name: int(value) for name, value in table.statistics().items()}


# --- Models ---


def _of_model(model: Any) -> list[TableFacts]:
    weights = [weight for layer in layers_of(model) for weight in _rows_of(layer)]
    found = [table_of(weight) for weight in [*weights, *model.variables]]
    tables = {id(table): table for table in found if table is not None}
    dense = {_path_of(weight): weight for weight in weights if table_of(weight) is None}
    return [
        *(_of_table(table, _eager_statistics(table)) for table in tables.values()),
        *_of_dense(dense, _optimizer_variables(model)),
    ]


def _rows_of(layer: Any) -> list[Any]:
    """The weights of a layer that lookups read."""
    if getattr(layer, "_feature_columns", None):
        return [weight for weight in layer.weights if "embedding_weights" in weight.name]
    has_rows = getattr(layer, "built", False) and getattr(layer, "embeddings", None) is not None
    return [layer.embeddings] if has_rows else []


def _optimizer_variables(model: Any) -> list[Any] | None:
    """What may be slots; None: the model has no optimizer."""
    variables = getattr(getattr(model, "optimizer", None), "variables", None)
    if variables is None:
        return None
    return list(variables() if callable(variables) else variables)


# --- Variables ---


def _of_table(table: EmbeddingVariable, statistics: Numbers | None) -> TableFacts:
    numbers = statistics or {}
    return TableFacts(
        _path_of(table),
        "EmbeddingVariable",
        numbers.get("size"),
        table.embedding_dim,
        table.dtype.name,
        numbers.get("memory_bytes"),
        None,
        statistics,
    )


def _of_dense(tables: dict[str, Any], others: Iterable[Any] | None) -> list[TableFacts]:
    """Facts of ordinary variables by name; their slots are among `others`, if that is known."""
    slots: dict[str, int | None] = dict.fromkeys(tables, None)
    if others is not None:
        slots.update(_slot_bytes(tables, others))
    return [
        TableFacts(name, "variable", *_sizes(tf.TensorShape(t.shape), tf.as_dtype(t.dtype)), slot)
        for (name, t), slot in zip(tables.items(), slots.values(), strict=True)
    ]


def _slot_bytes(tables: dict[str, Any], others: Iterable[Any]) -> dict[str, int]:
    """The bytes of each table's slots."""
    slots = dict.fromkeys(tables, 0)
    shapes = {name: tuple(table.shape) for name, table in tables.items()}
    for other in others:
        owner = _owner_of(_path_of(other), tuple(other.shape), shapes)
        if owner is not None:
            size = tf.as_dtype(other.dtype).size
            slots[owner] += size * int(tf.TensorShape(other.shape).num_elements() or 0)
    return slots


def _owner_of(name: str, shape: tuple[int, ...], tables: dict[str, tuple[int, ...]]) -> str | None:
    """The table whose slot a variable is: of its shape, named after it. None: of no table.

    v1: "TABLE/Adagrad"; Keras 2: "Adagrad/m/TABLE"; Keras 3: "adagrad/TABLE_accumulator", with _ in
    the place of /.
    """
    if name in tables:
        return None
    plain = _plain(name)
    owners = [table for table in tables if tables[table] == shape and _plain(table) in plain]
    return max(owners, key=len, default=None)


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _path_of(variable: Any) -> str:
    """A name that tells variables of a model apart: Keras 3 has the layer in `path` alone."""
    return str(getattr(variable, "path", None) or variable.name).removesuffix(":0")
