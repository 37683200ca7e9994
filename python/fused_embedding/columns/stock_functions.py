"""TensorFlow's own functions, in which a global name means something else.

Nothing of TensorFlow is copied or patched, and no other thread or column can notice.
"""

import types
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def with_globals(function: Callable, **names: Any) -> Callable:
    """A copy of `function`, and of the functions in it, for which `names` mean something else.

    Args:
        function: A function or method of TensorFlow.
        **names: Global names that it uses, and what they shall mean.

    Returns:
        A function of the same arguments.

    Raises:
        RuntimeError: If `function` does not use one of the names.
    """
    missing = names.keys() - _names_in(function.__code__)
    if missing:
        raise RuntimeError(
            f"TensorFlow {tf.__version__} has no {', '.join(missing)} in {function.__qualname__}, "
            "which do_fusion needs; use TensorFlow 2.15 to 2.21 or do_fusion=None"
        )
    copy = types.FunctionType(
        function.__code__,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _names_in(code: types.CodeType) -> set[str]:
    """The global names that a function and the functions inside it use."""
    inner = [_names_in(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*inner)
