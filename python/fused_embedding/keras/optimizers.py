"""The optimizers of fe.keras: those of tf.keras, with all sparse updates of a step in one op.

Keras writes this module's name into `.keras` files.
"""

from typing import Any

from fused_embedding.keras.fused import fused_optimizers
from fused_embedding.keras.rules import RULES


def __getattr__(name: str) -> Any:
    """Imports tf.keras when the first of its optimizers is asked for."""
    if name not in RULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(fused_optimizers(), name)


def __dir__() -> list[str]:
    return sorted(RULES)
