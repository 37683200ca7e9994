"""The updates that an optimizer collects in a step, and does together."""

import collections
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeVar

import tensorflow as tf

# What stock gets for the update of a variable that `_finish` will do with all others.
LATER = object()


class _Update(Protocol):
    @property
    def variable(self) -> Any: ...


_UpdateT = TypeVar("_UpdateT", bound=_Update)


def _grouped(
    updates: Sequence[_UpdateT], kind_of: Callable[[_UpdateT], Hashable]
) -> list[tuple[int, list[_UpdateT]]]:
    """The updates that one op can do, each with which of its variable's updates they are."""
    groups: dict[tuple[int, str, Hashable], list[_UpdateT]] = {}
    seen: collections.Counter[int] = collections.Counter()
    for update in updates:
        turn = seen[id(update.variable)]
        seen[id(update.variable)] += 1
        key = (turn, update.variable.device or "", kind_of(update))
        groups.setdefault(key, []).append(update)
    return sorted(((key[0], group) for key, group in groups.items()), key=lambda pair: pair[0])


def apply_in_turns(
    updates: Sequence[_UpdateT],
    kind_of: Callable[[_UpdateT], Hashable],
    apply_group: Callable[[list[_UpdateT]], tf.Operation | None],
) -> list[tf.Operation]:
    """Does updates by one op for all variables of a device and kind.

    A variable that has several updates has them one after the other: of a's first, b's first and
    a's second, the first two are a group, and the third waits for it.

    Args:
        updates: What to do. Each has a `variable`.
        kind_of: What updates must have in common, beside the device, to be done by one op.
        apply_group: Makes the op for some of them. Returns None eagerly, where it has happened.

    Returns:
        The updates; none eagerly, where they have happened.
    """
    operations: list[tf.Operation] = []
    for turn, group in _grouped(updates, kind_of):
        with tf.control_dependencies(operations if turn else []):
            operation = apply_group(group)
        operations += [] if operation is None else [operation]
    return operations
