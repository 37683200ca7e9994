"""The argument `rows` of `input_layer`: which columns have an index, by feature or column."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from fused_embedding.lookup.names import feature_name
from fused_embedding.lookup.row_index import as_row_indices


def index_name(column: Any) -> str:
    """What errors call the index of a column.

    Args:
        column: A dense column.

    Returns:
        A name such as "rows of feature 'user'".
    """
    return f"rows of {feature_name(column)}"


def rows_of_columns(rows: Mapping[Any, Any] | None, columns: Iterable[Any]) -> dict[Any, tf.Tensor]:
    """The indices of columns.

    Args:
        rows: An index `[num_items]` by feature key or column; a column's own index goes before that
            of its features. None: no column has one.
        columns: The columns of a layer.

    Returns:
        The index of each column that has one.

    Raises:
        TypeError: If `rows` is not a mapping, or an index is not a dense tensor of integers.
        ValueError: If a key of `rows` is neither a column nor a feature of one, if the features of
            a column have different indices, or if an index is not of rank 1.
    """
    if rows is None:
        return {}
    if not isinstance(rows, Mapping):
        raise TypeError(
            f"rows must be a dict from feature keys or columns to indices, got {type(rows)}; "
            'pass rows={"user_id": index}'
        )
    features = {column: sorted(column._parse_example_spec) for column in columns}
    _check_keys(rows, features)
    indices = [_index_of(column, keys, rows) for column, keys in features.items()]
    tensors = as_row_indices(indices, [index_name(column) for column in features])
    pairs = zip(features, tensors, strict=True)
    return {column: tensor for column, tensor in pairs if tensor is not None}


def _check_keys(rows: Mapping[Any, Any], features: Mapping[Any, list[str]]) -> None:
    """Refuses keys that are neither a column nor a feature; `features` are those of each column."""
    keys = set(itertools.chain(*features.values()))
    unknown = [key for key in rows if key not in keys and key not in features]
    if unknown:
        raise ValueError(
            f"rows has the keys {unknown}, but no column of the layer reads such a feature or is "
            f"such a column; the features are {sorted(keys)}"
        )


def _index_of(column: Any, keys: list[str], rows: Mapping[Any, Any]) -> Any:
    if column in rows:
        return rows[column]
    indices = [rows.get(key) for key in keys]
    if any(index is not indices[0] for index in indices):
        raise ValueError(
            f"column {column.name!r} reads the features {keys}, which must have the same index in "
            f"rows or none, but {[key for key in keys if key in rows]} have one; give all of them "
            "one index, or pass the column as the key"
        )
    return indices[0] if indices else None
