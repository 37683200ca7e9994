"""Stock's `input_layer` hands layers that have a column with `do_fusion=True` over to ours.

Stock shows a column to itself alone. So the first such column of a process replaces the function
inside stock's `input_layer`. A layer without one runs stock's code.
"""

import functools
from collections.abc import Callable
from typing import Any

from tensorflow.python.feature_column import feature_column as fc_v1

from fused_embedding.columns.input_layer import instead_of_stock
from fused_embedding.ops.disabled import is_disabled


def _ask_for_best(columns: list[Any]) -> bool:
    return any(getattr(column, "do_fusion", None) is True for column in columns)


def _choose(columns: list[Any], ours: Callable[[], Any], stock: Callable[[], Any]) -> Any:
    return ours() if _ask_for_best(columns) and not is_disabled("lookup") else stock()


@functools.cache
def _install() -> None:
    fc_v1._internal_input_layer = instead_of_stock(fc_v1._internal_input_layer, _choose)


def hand_over(columns: list[Any]) -> list[Any]:
    """Lets stock's input_layer hand over from now on, if a column asks for the best path.

    Args:
        columns: New columns.

    Returns:
        The same columns.
    """
    if _ask_for_best(columns):
        _install()
    return columns
