"""Scopes for feature columns that are to be looked up together."""

import contextvars
import itertools
from collections.abc import Callable
from typing import Any

_current: contextvars.ContextVar[str | None] = contextvars.ContextVar("group", default=None)
_numbers = itertools.count()


class GroupScope:
    """The context manager that `group_embedding_column_scope` returns.

    Attributes:
        name: Name of the group.
    """

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> "GroupScope":
        outer = _current.get()
        if outer is not None:
            raise ValueError(
                f"group_embedding_column_scope({self.name!r}) is inside the one of {outer!r}, but "
                "a column belongs to one group; leave the outer scope first"
            )
        _current.set(self.name)
        return self

    def __exit__(self, *exception: Any) -> None:
        _current.set(None)


def group_embedding_column_scope(name: str | None = None) -> GroupScope:
    """A context whose embedding columns are looked up by one op, with one op for their gradients.

    It applies to `embedding_column`, `shared_embedding_columns` and `shared_embeddings` of this
    module. A column keeps its combiner, weights and max_norm. In the scope, `do_fusion=False` makes
    a stock column that is in no group; any other `do_fusion` selects the group's lookup.
    `fe.nn.group_embedding_lookup_sparse` describes which columns one op can look up; other columns
    have ops of their own.

    One op looks up the columns of a group that are in one layer: in the Keras 2 layers
    `DenseFeatures` and `SequenceFeatures`, in `input_layer` of DeepRec programs
    (`fe.compat.deeprec`), and in `input_layer` and `DenseFeatures` of this module, which have one
    op for all columns in any case. `tf.compat.v1.feature_column.input_layer` makes the table of a
    column only when it builds that column, so there each column has an op of its own, as with
    do_fusion="v3".

    Args:
        name: Name of the group; None: an unused name. Columns of two scopes with the same name are
            in one group.

    Returns:
        A context manager.

    Raises:
        TypeError: If `name` is not a string.
        ValueError: If `name` is empty, or the scope is entered inside another scope.

    Source: DeepRec's function of this name.

    >>> keys = ["seen", "bought"]
    >>> keys = [tf.feature_column.categorical_column_with_identity(key, 100) for key in keys]
    >>> with fe.feature_column.group_embedding_column_scope("items"):
    ...     columns = [fe.feature_column.embedding_column(key, 8) for key in keys]
    >>> [column.group for column in columns]
    ['items', 'items']
    """
    if name is None:
        return GroupScope(f"group_{next(_numbers)}")
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, or None for any, got {name!r}")
    if not name:
        raise ValueError("name must not be empty; pass None for a name that is not taken")
    return GroupScope(name)


def in_scope(make: Callable[[Any], list[Any]], do_fusion: Any) -> list[Any]:
    """Columns, in the group of the scope that this is called in, if any.

    Args:
        make: Makes columns with a `do_fusion`.
        do_fusion: The user's.

    Returns:
        What `make` returned, with the name of the group.
    """
    group = _current.get()
    is_grouped = do_fusion is None or do_fusion is True or do_fusion in ("v1", "v2", "v3")
    if group is None or not is_grouped:
        return make(do_fusion)
    return [column._replace(group=group) for column in make("v3")]
