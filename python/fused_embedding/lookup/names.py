"""Names of lookups in errors: the feature, layer or argument with the ids, and the table.

    feature 'user' (embedding 'input_layer/user_embedding/embedding_weights'): id 7 at ...

The ops number their columns, and do not know the user's features.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

_reader: contextvars.ContextVar[str | None] = contextvars.ContextVar("reader", default=None)


@contextlib.contextmanager
def lookups_of(reader: str) -> Iterator[None]:
    """A context whose lookups belong to a feature or a layer.

    Args:
        reader: Its name in errors, such as "feature 'user'".

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
    return lookups_of(feature_name(column))


def feature_name(column: Any) -> str:
    """The name of a column's feature in errors.

    Args:
        column: A feature column.

    Returns:
        A name such as "feature 'user'".
    """
    while hasattr(column, "categorical_column"):  # of an embedding, of weights, of a sequence
        column = column.categorical_column
    return f"feature {column.name!r}"


def ids_name(argument: str) -> str:
    """The name of a lookup's ids in errors.

    Args:
        argument: Name of the argument with the ids.

    Returns:
        The feature or layer of the present context, else `argument`.
    """
    return _reader.get() or argument


def table_name(owner: Any) -> str:
    """The name of a table in errors.

    Args:
        owner: A variable, EmbeddingVariable or tensor.

    Returns:
        Its name; "" if it has none, such as an eager tensor.
    """
    try:
        name = owner.name
    except AttributeError:
        return ""
    return str(name).partition(":")[0]


def column_name(ids: str, table: str) -> str:
    """The name of a lookup in errors.

    Args:
        ids: Name of the ids.
        table: Name of the table, or "".

    Returns:
        The name of the ids, followed by that of the table if there is one.
    """
    return f"{ids} (embedding {table!r})" if table else ids
