"""Which ids of adaptive columns have a row of their own: what the caller of `input_layer` says."""

import contextlib
import contextvars
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from fused_embedding.lookup.feature_ids import FeatureIds, KeyRule
from fused_embedding.lookup.ids import SparseIds, with_own_rows

_masks: contextvars.ContextVar[Mapping[str, Any] | None] = contextvars.ContextVar(
    "masks", default=None
)


@contextlib.contextmanager
def adaptive_masks(masks: Mapping[str, Any] | None, keys: Iterable[str]) -> Iterator[None]:
    """Lookups of adaptive columns inside ask these masks.

    Args:
        masks: Of feature keys: integers or bools, one for each value of the feature. None: the
            filters of the tables decide.
        keys: Those of the adaptive columns.

    Yields:
        Nothing.

    Raises:
        ValueError: For the mask of another key.
    """
    unknown = set(masks or {}) - set(keys)
    if unknown:
        raise ValueError(
            f"adaptive_mask_tensors has {sorted(unknown)}, but the adaptive columns have the keys "
            f"{sorted(set(keys))}; name one of them"
        )
    token = _masks.set(masks)
    try:
        yield
    finally:
        _masks.reset(token)


def _as_flags(mask: Any, key: str) -> tf.Tensor:
    """`[nnz]` bool."""
    values = mask.values if isinstance(mask, tf.SparseTensor) else tf.convert_to_tensor(mask)
    if values.dtype == tf.bool:
        return tf.reshape(values, [-1])
    if not values.dtype.is_integer:
        raise TypeError(
            f"adaptive_mask_tensors[{key!r}] must hold integers or bools, got "
            f"{values.dtype.name}; cast it"
        )
    return tf.reshape(tf.not_equal(values, tf.zeros([], values.dtype)), [-1])


def with_row_choice(ids: Any, column: Any, table: Any) -> Any:
    """The ids of an adaptive column, with which have rows of their own and which rows are shared.

    Args:
        ids: `SparseIds` or `FeatureIds`.
        column: The embedding column.
        table: An AdaptiveEmbeddingVariable.

    Returns:
        The ids.

    Raises:
        NotImplementedError: For strings of which another op makes ids: their hashes are lost.
    """
    categorical = column.categorical_column
    while hasattr(categorical, "categorical_column"):
        categorical = categorical.categorical_column
    key = categorical.key
    mask = (_masks.get() or {}).get(key)
    if mask is not None:
        flags = _as_flags(mask, key)
        is_made = isinstance(ids, SparseIds)
        ids = with_own_rows(ids, flags) if is_made else ids._replace(is_own=flags)
    if categorical.dtype != tf.string:
        return ids
    if not isinstance(ids, FeatureIds):
        raise NotImplementedError(
            f"column {key!r} is adaptive and its feature holds strings of rank other than 1 and 2, "
            "whose shared rows are not known; pass a feature of rank 1 or 2, or integers"
        )
    rule = KeyRule("hash", table.hash_bucket_size)
    features = tuple(feature._replace(rule=rule) for feature in ids.features)
    return ids._replace(shared=ids._replace(features=features, weights=None, is_own=None))
