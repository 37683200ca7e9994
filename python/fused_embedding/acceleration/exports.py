"""Exports of an accelerated program: a SavedModel that has ops of this package is refused.

Where a SavedModel is built, stock's ops are built (contexts.py). What was built before it is saved,
the graph of a TF1 session or a concrete function, may have ours.
"""

from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.python.saved_model import builder_impl
from tensorflow.python.saved_model import save as save_lib

from fused_embedding.acceleration.replacements import Replacement
from fused_embedding.ops import raw_ops
from fused_embedding.ops.path_notes import ACCELERATED


def replacements() -> list[Replacement]:
    """What is replaced while `fe.accelerate` is on."""
    return [
        Replacement(save_lib, "_build_meta_graph", _build_meta_graph),
        Replacement(
            builder_impl._SavedModelBuilder, "_tag_and_add_meta_graph", _tag_and_add_meta_graph
        ),
    ]


def _build_meta_graph(stock: Callable[..., Any]) -> Callable[..., Any]:
    def replaced(
        obj: Any, signatures: Any, options: Any, meta_graph_def: Any = None, *args: Any, **kw: Any
    ) -> Any:
        result = stock(obj, signatures, options, meta_graph_def, *args, **kw)
        _refuse_ours(result[0] if meta_graph_def is None else meta_graph_def)
        return result

    return replaced


def _tag_and_add_meta_graph(stock: Callable[..., Any]) -> Callable[..., Any]:
    def replaced(self: Any, meta_graph_def: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_ours(meta_graph_def)
        return stock(self, meta_graph_def, *args, **kwargs)

    return replaced


def _refuse_ours(meta_graph_def: Any) -> None:
    """Raises ValueError for a graph with ops that fe.accelerate has put there."""
    found = next(_accelerated(meta_graph_def.graph_def), None)
    if found is None:
        return
    where, node = found
    raise ValueError(
        f"{where} has the op {node.name!r} ({node.op}), which fe.accelerate() put there instead of "
        "stock's: a server without fused_embedding could not load the SavedModel. Save it by "
        "fe.export_for_serving, which writes stock's ops, or build what is saved after "
        "fe.accelerate(False)"
    )


def _accelerated(graph: Any) -> Iterator[tuple[str, Any]]:
    """Ops of this package that are there because of fe.accelerate, and where."""
    parts = [("the graph", graph.node)]
    parts += [(f"the function {f.signature.name!r}", f.node_def) for f in graph.library.function]
    for where, nodes in parts:
        for node in nodes:
            if ACCELERATED in node.attr and hasattr(raw_ops, node.op):
                yield where, node
