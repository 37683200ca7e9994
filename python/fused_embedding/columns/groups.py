"""Feature columns that are looked up together: lookups are recorded, then done in one op.

While lookups are recorded, columns return what shall be looked up, `Column`, where they would
return a tensor.
"""

import contextlib
import contextvars
import enum
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import tensorflow as tf

from fused_embedding.columns.raw_features import make_ragged_features_sparse, with_raw_features
from fused_embedding.lookup.fusion_check import as_check
from fused_embedding.lookup.group import Column
from fused_embedding.lookup.run import run_group
from fused_embedding.ops.disabled import is_disabled
from fused_embedding.variable.inference import inference


class Recording(enum.Enum):
    """Which lookups of columns with `do_fusion` return a `Column`."""

    NONE = enum.auto()
    MATRICES = enum.auto()  # of ids of rank 2
    GROUPS = enum.auto()  # of ids of rank 2, of columns in a group
    ALL = enum.auto()


_recording = contextvars.ContextVar("recording", default=Recording.NONE)


@contextlib.contextmanager
def recording_lookups(recording: Recording = Recording.MATRICES) -> Iterator[None]:
    """Lookups of columns with `do_fusion` return a `Column`: what would be looked up.

    Args:
        recording: Which lookups.

    Yields:
        Nothing.
    """
    token = _recording.set(recording)
    try:
        yield
    finally:
        _recording.reset(token)


def recording() -> Recording:
    """Which lookups are recorded in this context."""
    return _recording.get()


def is_turned_off(column: Any) -> bool:
    """Whether FE_DISABLE has stock TensorFlow look up a column with `do_fusion`.

    Args:
        column: A column with `do_fusion`.
    """
    return is_disabled("lookup") and not column.has_embedding_variable


def group_of(column: Any) -> str | None:
    """Name of the group that a feature column is looked up with; None: it is in none.

    Args:
        column: Any column.

    Returns:
        The name.
    """
    if getattr(column, "do_fusion", None) != "v3" or is_turned_off(column):
        return None
    return column.group


def mode_of_keras(state_manager: Any, training: Any) -> contextlib.AbstractContextManager[Any]:
    """The mode in which a layer of Keras 2 has its columns looked up.

    Args:
        state_manager: The layer's.
        training: What the layer was called with.

    Returns:
        A context, in which tables stay as they are if the layer does not train.
    """
    # Keras passes a bool where it knows the mode, and 0 or a tensor where nobody has set one. Such
    # a call trains, or a loop that leaves `training` out would never fill the table.
    layer = getattr(state_manager, "_layer", None)
    is_frozen = training is False or not getattr(layer, "trainable", True)
    return inference() if is_frozen else contextlib.nullcontext()


def unwrapped(column: Any) -> Any:
    """The column that a layer of Keras holds, without what tracks it.

    Args:
        column: A feature column, maybe in a proxy.

    Returns:
        The feature column.
    """
    return getattr(column, "__wrapped__", column)


def _with_raw_features(column: Any, *call: Any) -> Any:
    """An equal column, which gets its features as they are where one op can make ids of them."""
    if is_turned_off(column):
        make_ragged_features_sparse(call[0])
        return column
    is_fused = bool(column.do_fusion) and as_check(column.do_fusion) is None
    is_one_op = recording() is not Recording.NONE or column.do_fusion in (True, "v3")
    if not (is_fused and is_one_op):
        return column
    return column._replace(categorical_column=with_raw_features(column.categorical_column, *call))


class RecordsItsGroup:
    """A column of `tf.compat.v1` with `group`.

    Attributes:
        has_embedding_variable: Whether its table is an EmbeddingVariable.
    """

    has_embedding_variable = False

    def _get_dense_tensor(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        is_left_out = recording() is Recording.GROUPS and group_of(self) is None
        stop = recording_lookups(Recording.NONE) if is_left_out else contextlib.nullcontext()
        with stop:
            column = _with_raw_features(self, inputs)
            stock: Any = super(RecordsItsGroup, column)
            return stock._get_dense_tensor(inputs, *args, **kwargs)


class LooksUpItsGroup(RecordsItsGroup):
    """A column with `group`: the first of a group that a layer asks looks all of them up."""

    def get_dense_tensor(
        self, transformation_cache: Any, state_manager: Any, training: Any = None
    ) -> Any:
        """Returns what stock's method of this name returns."""
        if group_of(self) is None or recording() is not Recording.NONE:
            column = _with_raw_features(self, transformation_cache, state_manager)
            stock: Any = super(LooksUpItsGroup, column)
            return stock.get_dense_tensor(transformation_cache, state_manager)
        call = (transformation_cache, state_manager, training)
        return _look_up(self, "get_dense_tensor", call)

    def get_sequence_dense_tensor(
        self, transformation_cache: Any, state_manager: Any, training: Any = None
    ) -> Any:
        """Returns what stock's method of this name returns."""
        if group_of(self) is None or recording() is not Recording.NONE:
            return super().get_sequence_dense_tensor(  # type: ignore[misc]
                transformation_cache, state_manager
            )
        call = (transformation_cache, state_manager, training)
        return _look_up(self, "get_sequence_dense_tensor", call)


class StateManagerOfOriginals:
    """A layer's state manager, which looks up variables by the columns that the user passed."""

    def __init__(self, stock: Any, original: dict[Any, Any]):
        self._stock = stock
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stock, name)

    def get_variable(self, column: Any, name: str) -> Any:
        """The layer's variable for a column that stands for one of the layer's."""
        return self._stock.get_variable(self._original.get(column, column), name)


# By the cache of transformed features, of which a layer makes one for each of its calls.
_looked_up: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def _look_up(column: Any, method: str, call: tuple[Any, Any, Any]) -> Any:
    """What `method` of a column returns in a `call` of a layer."""
    transformation_cache, state_manager, training = call

    def record(columns: list[Any]) -> list[Any]:
        return [
            getattr(c, method)(transformation_cache, state_manager, training=training)
            for c in columns
        ]

    key = (state_manager, method)
    members = _members(column, state_manager)
    with mode_of_keras(state_manager, training):
        return looked_up_together(column, members, transformation_cache, key, record)


def looked_up_together(
    column: Any,
    columns: list[Any],
    transformation_cache: Any,
    key: Hashable,
    record: Callable[[list[Any]], list[Any]],
    *,
    merges: bool = True,
) -> Any:
    """The result of one column of a layer, which is looked up with all others in one op.

    Args:
        column: The column that the layer asks.
        columns: It and those that are looked up with it.
        transformation_cache: That of the call of the layer. It keeps the results of the others.
        key: What tells several results of a column in one call apart.
        record: Calls the columns while lookups are recorded.
        merges: See `run_group`.

    Returns:
        A tensor, or a pair of one and its lengths.
    """
    results = _looked_up.setdefault(transformation_cache, {})
    if (key, column) not in results:
        with recording_lookups(Recording.ALL):
            recorded = record(columns)
        tensors = _run(recorded, merges)
        results.update(zip([(key, c) for c in columns], tensors, strict=True))
    return results[key, column]


def _members(column: Any, state_manager: Any) -> list[Any]:
    """The columns of a layer that are in the group of one of them."""
    members = [c for c in columns_of_layer(state_manager) if group_of(c) == group_of(column)]
    return members if column in members else [column]


def columns_of_layer(state_manager: Any) -> list[Any]:
    """The columns of the layer of Keras 2 that a state manager belongs to.

    Args:
        state_manager: What a column gets from the layer that calls it.

    Returns:
        Its columns; none, if it is of no layer.
    """
    layer = getattr(state_manager, "_layer", None)
    return [unwrapped(c) for c in getattr(layer, "_feature_columns", [])]


def _run(recorded: list[Any], merges: bool) -> list[Any]:
    """Recorded results of columns, a `Column` or the pair of one and the lengths, with tensors."""
    pairs = [isinstance(result, tuple) and not isinstance(result, Column) for result in recorded]
    lookups = [r.dense_tensor if pair else r for r, pair in zip(recorded, pairs, strict=True)]
    tensors: list[tf.Tensor] = run_group(lookups, merges=merges)
    return [
        result._replace(dense_tensor=tensor) if pair else tensor
        for result, pair, tensor in zip(recorded, pairs, tensors, strict=True)
    ]
