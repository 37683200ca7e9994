"""Functions of TensorFlow that are replaced while `fe.accelerate` is on, and how they return.

What is replaced are inner functions and methods, in which all public names of a function end, so
that a name which a program imported before is covered too.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

_ABSENT: Any = object()


class Replacement(NamedTuple):
    """An attribute of a module or class that is replaced.

    Attributes:
        owner: The module or class. A class that has inherited the attribute gets one of its own.
        name: The attribute.
        make: Makes the new function from stock's.
    """

    owner: Any
    name: str
    make: Callable[[Callable[..., Any]], Callable[..., Any]]


class Dispatch(NamedTuple):
    """A function that TensorFlow asks first, by `tf.experimental.dispatch_for_api`.

    Attributes:
        api: TensorFlow's function.
        types: The types of arguments, by name, for which the target is called.
        target: It has the arguments of `api`, and returns NotImplemented for a call of stock's.
    """

    api: Callable[..., Any]
    types: dict[str, Any]
    target: Callable[..., Any]


class _Replaced(NamedTuple):
    owner: Any
    name: str
    before: Any  # what the owner had itself, or _ABSENT
    ours: Any


class Installation:
    """Replacements in effect.

    Raises:
        RuntimeError: If TensorFlow lacks one of the attributes. Then nothing is replaced.
    """

    def __init__(self, replacements: Sequence[Replacement], dispatches: Sequence[Dispatch]):
        missing = [r for r in replacements if not hasattr(r.owner, r.name)]
        if missing:
            names = ", ".join(f"{r.name} in {r.owner.__name__}" for r in missing)
            raise RuntimeError(
                f"TensorFlow {tf.__version__} has no {names}, which fe.accelerate replaces; use "
                "TensorFlow 2.15 to 2.21, or name the fused functions: docs/feature_columns.md"
            )
        self._replaced = [_replace(replacement) for replacement in replacements]
        self._targets = [
            tf.experimental.dispatch_for_api(api, types)(_once(target))
            for api, types, target in dispatches
        ]

    def undo(self) -> None:
        """Gives every owner back what it had.

        A function of ours that somebody else wrapped since stays in that wrapper, where it calls
        stock's.
        """
        for owner, name, before, ours in reversed(self._replaced):
            if vars(owner).get(name) is not ours:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        for target in self._targets:
            tf.experimental.unregister_dispatch_for(target)


def _replace(replacement: Replacement) -> _Replaced:
    owner, name, make = replacement
    before = vars(owner).get(name, _ABSENT)
    stock = getattr(owner, name)
    ours = functools.wraps(stock)(make(stock))
    setattr(owner, name, ours)
    return _Replaced(owner, name, before, ours)


def _once(target: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own: TensorFlow knows targets by their identity."""

    @functools.wraps(target)
    def dispatched(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    return dispatched
