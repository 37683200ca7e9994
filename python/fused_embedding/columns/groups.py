"""Feature columns that are looked up together: lookups are recorded, then done in one op.

While lookups are recorded, columns return what shall be looked up, `Column`, where they would
return a tensor.
"""

import contextlib
import contextvars
import enum
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from fused_embedding.columns.raw_features import (
    make_ragged_features_sparse,
    with_raw_features,
    with_raw_sequences,
)
from fused_embedding.columns.sequences import with_lengths
from fused_embedding.lookup.fusion_check import as_check
from fused_embedding.lookup.group import Column
from fused_embedding.lookup.run import run_group
from fused_embedding.ops.disabled import is_disabled
from fused_embedding.variable.inference import inference_unless_trained


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
    return inference_unless_trained(getattr(state_manager, "_layer", None), training)


def unwrapped(column: Any) -> Any:
    """The column that a layer of Keras holds, without what tracks it.

    Args:
        column: A feature column, maybe in a proxy.

    Returns:
        The feature column.
    """
    return getattr(column, "__wrapped__", column)


def is_looked_up_by_one_op(column: Any) -> bool:
    """Whether a column asks for the lookup of a group, alone or with others.

    Args:
        column: Any column.
    """
    return getattr(column, "do_fusion", None) in (True, "v3")


def _answering(column: Any, answering: Callable[..., Any], *call: Any) -> Any:
    """An equal column, which gets its features as they are where one op can make ids of them.

    Args:
        column: A column with `do_fusion`.
        answering: `with_raw_features` or `with_raw_sequences`.
        *call: The cache of the call, and the state manager where there is one.
    """
    if is_turned_off(column):
        make_ragged_features_sparse(call[0])
        return column
    is_fused = bool(column.do_fusion) and as_check(column.do_fusion) is None
    is_one_op = recording() is not Recording.NONE or is_looked_up_by_one_op(column)
    if not (is_fused and is_one_op):
        return column
    return column._replace(categorical_column=answering(column.categorical_column, *call))


def sequence_of_stock(
    stock: Callable[..., Any], column: Any, inputs: Any, *args: Any, **kwargs: Any
) -> Any:
    """What a method of stock's columns returns, with ids that one op makes of the feature.

    Args:
        stock: `_get_sequence_dense_tensor` of a class.
        column: A column of a subclass with `do_fusion`.
        inputs: The `_LazyBuilder` of the call.
        *args: More arguments of the method.
        **kwargs: The same by name.

    Returns:
        A pair of `[num_rows, num_steps, dim]` and `[num_rows]` lengths.
    """
    column = _answering(column, with_raw_sequences, inputs)
    return with_lengths(stock)(column, inputs, *args, **kwargs)


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
            column = _answering(self, with_raw_features, inputs)
            stock: Any = super(RecordsItsGroup, column)
            return stock._get_dense_tensor(inputs, *args, **kwargs)


class LooksUpItsGroup(RecordsItsGroup):
    """A column with `group`: the first of a group that a layer asks looks all of them up."""

    def get_dense_tensor(
        self, transformation_cache: Any, state_manager: Any, training: Any = None
    ) -> Any:
        """Returns what stock's method of this name returns."""
        if group_of(self) is None or recording() is not Recording.NONE:
            column = _answering(self, with_raw_features, transformation_cache, state_manager)
            stock: Any = super(LooksUpItsGroup, column)
            return stock.get_dense_tensor(transformation_cache, state_manager)
        call = (transformation_cache, state_manager, training)
        return _look_up(self, "get_dense_tensor", call)

    def get_sequence_dense_tensor(
        self, transformation_cache: Any, state_manager: Any, training: Any = None
    ) -> Any:
        """Returns what stock's method of this name returns."""
        if group_of(self) is None or recording() is not Recording.NONE:
            column = _answering(self, with_raw_sequences, transformation_cache, state_manager)
            stock: Any = super(LooksUpItsGroup, column)
            method = with_lengths(stock.get_sequence_dense_tensor.__func__)
            return method(column, transformation_cache, state_manager)
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
        tensors = looked_up(recorded, merges=merges)
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


def looked_up(recorded: Sequence[Any], *, merges: bool = True) -> list[Any]:
    """Does the lookups of columns that were recorded, all together.

    Args:
        recorded: Of each column a `Column`, or the pair of one and the lengths of sequences; or
            what a column returned that was not recorded.
        merges: See `run_group`.

    Returns:
        The same with tensors in place of each `Column`.
    """
    pending = [getattr(result, "dense_tensor", result) for result in recorded]
    lookups = [lookup for lookup in pending if isinstance(lookup, Column)]
    tensors = iter(run_group(lookups, merges=merges))
    results = []
    for result, lookup in zip(recorded, pending, strict=True):
        if not isinstance(lookup, Column):
            results.append(result)
        elif lookup is result:
            results.append(next(tensors))
        else:
            results.append(result._replace(dense_tensor=next(tensors)))
    return results
