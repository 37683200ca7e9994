"""What errors of a lookup call it: the feature, layer or argument that has the ids, and the table.

    feature 'user' (embedding 'input_layer/user_embedding/embedding_weights'): id 7 at ...

The ops know their columns by number, and not which of a user's features that is.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

_reader: contextvars.ContextVar[str | None] = contextvars.ContextVar("reader", default=None)


@contextlib.contextmanager
def lookups_of(reader: str) -> Iterator[None]:
    """Lookups in this context are those of a feature or a layer.

    Args:
        reader: What errors call it: "feature 'user'".

    Yields:
        Nothing.
    """
    token = _reader.set(reader)
    try:
        yield
    finally:
        _reader.reset(token)


def lookups_of_column(column: Any) -> contextlib.AbstractContextManager[None]:
    """`lookups_of` the feature of a column.

    Args:
        column: A feature column.

    Returns:
        A context.
    """
    while hasattr(column, "categorical_column"):  # of an embedding, of weights, of a sequence
        column = column.categorical_column
    return lookups_of(f"feature {column.name!r}")


def ids_name(argument: str) -> str:
    """What errors call the ids of a lookup.

    Args:
        argument: The argument that a function got them as.

    Returns:
        Who reads them, if that is known, else `argument`.
    """
    return _reader.get() or argument


def table_name(owner: Any) -> str:
    """What errors call a table.

    Args:
        owner: A variable, EmbeddingVariable or tensor.

    Returns:
        Its name; "" where it has none, as an eager tensor.
    """
    try:
        name = owner.name
    except AttributeError:
        return ""
    return str(name).partition(":")[0]


def column_name(ids: str, table: str) -> str:
    """What errors call a lookup.

    Args:
        ids: Name of the ids.
        table: Name of the table, or "".

    Returns:
        Both.
    """
    return f"{ids} (embedding {table!r})" if table else ids
