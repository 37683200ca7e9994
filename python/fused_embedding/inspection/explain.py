"""`fe.explain`: which lookup takes which path, and why."""

import collections
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.columns.fused_column import is_embedding_column, version_of
from fused_embedding.columns.keyed_column import categorical_column_of_table
from fused_embedding.inspection.model_lookups import is_model, layer_lookups, layers_of
from fused_embedding.inspection.update_share import UpdateShare, update_share
from fused_embedding.lookup.fusion_check import FusionCheck
from fused_embedding.ops.disabled import is_disabled, why_disabled
from fused_embedding.ops.path_notes import ACCELERATED, CHECK, REASON, STOCK

_PATH_OF_OP = {
    "FusedEmbeddingSparsePostLookUp": "v1",
    "FusedEmbeddingSparsePostLookUpV2": "v2",
    "FusedEmbeddingGroupLookup": "v3",
    "FusedEmbeddingResourceGroupLookup": "v3",
    "EmbeddingVariableGroupLookup": "v3",
    "FusedEmbeddingRemoteLookup": "remote",
}
_STOCK_REDUCTIONS = ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN")
# What stands between stock's rows of distinct ids and their sum, where they have weights.
_BETWEEN = (
    *("Cast", "DynamicPartition", "DynamicStitch", "Gather", "GatherV2", "Identity"),
    *("Maximum", "Mul", "ParallelDynamicStitch", "RealDiv", "Reshape", "ResourceGather", "Unique"),
)


# Stock's ops for a sparse update of one variable.
_STOCK_UPDATES = ("ResourceSparseApply", "SparseApply")
_ONE_OP = "one line has one op do all, fe.accelerate() or an optimizer of fe.train"


class Lookup(NamedTuple):
    """One lookup op.

    Attributes:
        name: Its scope in the graph, or the name of its column.
        path: "v1", "v2", "v3", "remote" (a message each way for each server), "stock", or "check"
            with a fused lookup and stock's.
        num_columns: How many columns the op looks up.
        why: Why it takes this path.
    """

    name: str
    path: str
    num_columns: int
    why: str


class Explanation(list[Lookup]):
    """The lookups; as a string, a table of them, and what stock's optimizers do beside it.

    Attributes:
        stock_updates: Stock's ops for sparse updates by type, and how many a graph has.
        update_share: Time of stock's updates in a traced step; None: no trace was given.
    """

    def __init__(self, lookups: Iterable[Lookup] = (), stock_updates: dict[str, int] | None = None):
        super().__init__(lookups)
        self.stock_updates = stock_updates or {}
        self.update_share: UpdateShare | None = None

    def __str__(self) -> str:
        lines = [self.table()]
        for op, count in self.stock_updates.items():
            lines.append(f"{count} sparse updates by {op}, one each: {_ONE_OP}")
        if self.update_share is not None:
            lines.append(str(self.update_share))
        return "\n".join(lines)

    def table(self) -> str:
        """The lookups alone, a line each."""
        rows = [("lookup", "path", "columns", "why")]
        rows += [(o.name, o.path, str(o.num_columns), o.why) for o in self]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join(lines) if self else "no sparse embedding lookup was found"


def explain(graph_or_columns: Any, *, run_metadata: Any = None) -> Explanation:
    """Prints which path each lookup takes, and why.

    For a graph it lists the lookups in it; a function is listed once, however often it is called.
    For columns it lists the path that each column requests, because their tables do not exist yet.
    For a Keras model it lists the embedding layers, and the columns of `DenseFeatures`.

    Args:
        graph_or_columns: A tf.Graph, GraphDef or concrete function, an embedding column, a list of
            columns, or a Keras model.
        run_metadata: A tf.compat.v1.RunMetadata of a training step that `session.run` traced: adds
            the share of its kernels' time that updates by stock's v1 optimizers take.

    Returns:
        The printed Explanation.

    Raises:
        TypeError: If `graph_or_columns` or `run_metadata` is something else.
        ValueError: If `run_metadata` has no trace.

    >>> table = tf.Variable(tf.zeros([10, 4]))
    >>> @tf.function
    ... def look_up(ids):
    ...     return fe.nn.fused_safe_embedding_lookup_sparse(table, ids, name="user")
    >>> ids = tf.sparse.from_dense([[1, 2], [3, 0]])
    >>> lookups = fe.explain(look_up.get_concrete_function(ids))
    lookup  path  columns  why
    user    v3    1        one op can do it
    """
    explanation = explanation_of(graph_or_columns)
    if run_metadata is not None:
        explanation.update_share = update_share(run_metadata)
    print(explanation)
    return explanation


def explanation_of(graph_or_columns: Any) -> Explanation:
    """What `explain` prints, without a trace.

    Args:
        graph_or_columns: As for `explain`.

    Returns:
        The Explanation.

    Raises:
        TypeError: If `graph_or_columns` is something else.
    """
    definition = graph_def_of(graph_or_columns)
    if definition is not None:
        bodies = list(_bodies(definition))
        return Explanation(_lookups(bodies), _stock_updates(bodies))
    of_layers: Iterable[Lookup] = ()
    if is_model(graph_or_columns):
        of_layers = (Lookup(*lookup) for lookup in layer_lookups(graph_or_columns))
    return Explanation([*_of_columns(_columns(graph_or_columns)), *of_layers])


def graph_def_of(value: Any) -> tf.compat.v1.GraphDef | None:
    """The GraphDef of a graph or concrete function; None for what is no graph."""
    value = getattr(value, "graph", value)  # of a concrete function
    if isinstance(value, tf.compat.v1.GraphDef):
        return value
    return value.as_graph_def() if isinstance(value, tf.Graph) else None


def _columns(value: Any) -> list[Any]:
    if is_model(value):
        layers = layers_of(value)
        of_layers = (getattr(layer, "_feature_columns", None) or () for layer in layers)
        return list(itertools.chain.from_iterable(of_layers))
    columns = [value] if _is_column(value) else value
    if isinstance(columns, dict):
        columns = columns.values()
    if not isinstance(columns, Iterable) or isinstance(columns, str | bytes):
        raise TypeError(
            "graph_or_columns must be a tf.Graph, a GraphDef, a concrete function, feature columns "
            f"or a Keras model, got {type(value)}; a tf.function has get_concrete_function"
        )
    columns = list(columns)
    if not all(map(_is_column, columns)):
        raise TypeError(f"graph_or_columns must hold feature columns and nothing else: {columns}")
    return columns


def _is_column(value: Any) -> bool:
    return hasattr(value, "parse_example_spec") or hasattr(value, "_parse_example_spec")


def _of_columns(columns: list[Any]) -> Iterator[Lookup]:
    columns = [column for column in columns if is_embedding_column(column)]
    groups = [_group(column) for column in columns]
    for column, group in zip(columns, groups, strict=True):
        path, why = _path_of_column(column)
        if group is not None:
            num_others = groups.count(group) - 1
            why += f"; fe.feature_column.input_layer: one op with {num_others} other columns"
        yield Lookup(column.name, path, 1, why)


def _group(column: Any) -> Any:
    """What columns of one op in `fe.feature_column.input_layer` have in common; None: no op."""
    is_turned_off = is_disabled("lookup") and not _has_embedding_variable(column)
    if is_turned_off or isinstance(_version(column), FusionCheck):
        return None
    creator = getattr(column, "shared_embedding_column_creator", None)
    is_safe = getattr(creator, "_use_safe_embedding_lookup", None)
    is_safe = column.use_safe_embedding_lookup if is_safe is None else is_safe
    return is_safe, _has_embedding_variable(column)


def _version(column: Any) -> Any:
    return version_of(column) if hasattr(column, "do_fusion") else None


def _has_embedding_variable(column: Any) -> bool:
    return categorical_column_of_table(column.categorical_column) is not None


def _path_of_column(column: Any) -> tuple[str, str]:
    version = _version(column)
    if version is None:
        return "stock", "its do_fusion is not set"
    if version == "stock":
        return version, why_disabled("lookup")
    if isinstance(version, FusionCheck):
        return "check", version.describe()
    if version != "v3":
        return version, f"do_fusion = {column.do_fusion!r}"
    return "v3", "remote if its table is divided into shards or in another task"


def _bodies(definition: tf.compat.v1.GraphDef) -> Iterator[dict[str, Any]]:
    """The nodes by name, of a graph and of each function that it calls."""
    functions = {f.signature.name: f.node_def for f in definition.library.function}
    waiting, seen = [definition.node], set()
    while waiting:
        nodes = {node.name: node for node in waiting.pop(0)}
        yield nodes
        for node in nodes.values():
            for name in () if CHECK in node.attr else _called(node):
                if name in functions and name not in seen:
                    seen.add(name)
                    waiting.append(functions[name])


def _lookups(bodies: Iterable[dict[str, Any]]) -> Iterator[Lookup]:
    for nodes in bodies:
        for node in nodes.values():
            lookup = _lookup_of(node, nodes)
            if lookup is not None:
                yield lookup


def _stock_updates(bodies: Iterable[dict[str, Any]]) -> dict[str, int]:
    ops = (node.op for nodes in bodies for node in nodes.values())
    return dict(collections.Counter(op for op in ops if op.startswith(_STOCK_UPDATES)))


def _called(node: Any) -> Iterator[str]:
    """Names of functions that a node calls."""
    for attr in node.attr.values():
        yield attr.func.name
        yield from (function.name for function in attr.list.func)


def _lookup_of(node: Any, nodes: dict[str, Any]) -> Lookup | None:
    """The lookup whose last op `node` is."""
    name = node.name.rpartition("/")[0] or node.name
    noted_reason, check = _note(node, REASON), _note(node, CHECK)
    path = _PATH_OF_OP.get(node.op)
    if path is not None:
        return _fused(name, path, node)
    if node.op in ("If", "StatelessIf") and check:
        return Lookup(name, "check", 1, check)
    if STOCK in node.attr:
        return Lookup(name, "stock", 1, _note(node, STOCK))
    if _ends_stock_lookup(node, nodes):
        return Lookup(
            name, "stock", 1, noted_reason or "it is called as a function of stock TensorFlow"
        )
    return None


def _fused(name: str, path: str, node: Any) -> Lookup:
    why = {"v3": _why_v3, "remote": _why_remote}.get(path)
    if why is None:
        return Lookup(name, path, 1, _note(node, REASON) or f'"{path}" was asked for')
    return Lookup(name, path, node.attr["num_columns"].i, why(node))


def _why_v3(node: Any) -> str:
    return "fe.accelerate() replaced stock's" if ACCELERATED in node.attr else "one op can do it"


def _why_remote(node: Any) -> str:
    servers = node.attr["num_servers"].i
    of_servers = "its server" if servers == 1 else f"each of {servers} servers"
    return f"{_note(node, REASON)}: one message each way for {of_servers}"


def _note(node: Any, attribute: str) -> str:
    return node.attr[attribute].s.decode() if attribute in node.attr else ""


def _ends_stock_lookup(node: Any, nodes: dict[str, Any]) -> bool:
    if node.op.removesuffix("WithNumSegments") in _STOCK_REDUCTIONS:
        return True
    return node.op == "SegmentSum" and _comes_from_unique(node, nodes)


def _comes_from_unique(node: Any, nodes: dict[str, Any]) -> bool:
    """Whether what is summed are rows of distinct ids."""
    waiting, seen = [node.input[0]], set()
    while waiting:
        name = waiting.pop().split(":")[0]
        node = nodes.get(name)
        if name in seen or node is None or node.op not in _BETWEEN:
            continue
        if node.op == "Unique":
            return True
        seen.add(name)
        waiting += node.input
    return False
