"""EmbeddingVariables that exist, and who else is to know of a new one.

Optimizers, Savers and Keras have to know EmbeddingVariables as soon as there are any. They register
themselves here, so that a variable needs none of them.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

_on_table: list[Callable[[Any], None]] = []
_on_variable: list[Callable[[Sequence[Any]], None]] = []
# Not a set: EmbeddingVariables refuse to be hashed.
_live: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def on_table(callback: Callable[[Any], None]) -> None:
    """Registers what is called with each EmbeddingVariable: each partition, loaded ones too."""
    _on_table.append(callback)


def on_variable(callback: Callable[[Sequence[Any]], None]) -> None:
    """Registers what is called with the partitions of each variable that a program asks for."""
    _on_variable.append(callback)


def announce_table(table: Any) -> None:
    """Notes an EmbeddingVariable that is being made; its handle exists."""
    _live[id(table)] = table
    for callback in _on_table:
        callback(table)


def announce_variable(parts: Sequence[Any]) -> None:
    """Notes a variable of `fe.get_embedding_variable`, all of whose partitions are made."""
    for callback in _on_variable:
        callback(parts)


def live_tables() -> list[Any]:
    """The EmbeddingVariables that exist."""
    return list(_live.values())
