"""How functions of the package are traced by tf.function."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import tensorflow as tf

F = TypeVar("F", bound=Callable[..., Any])


def traced_as_written(function: F) -> F:
    """Keeps AutoGraph from converting `function` and what it calls.

    AutoGraph would rewrite all of this package's Python code that a user's tf.function reaches: a
    second and more at the first trace, and several times the time of each later one. No code here
    branches on the value of a tensor.

    Args:
        function: A public function.

    Returns:
        It, for tf.function.
    """
    return cast(F, tf.autograph.experimental.do_not_convert(function))
