"""Damo-Embedding's API for Keras: layers whose tables have an optimizer each, and save_model.

docs/migration/damo.md says what is the same and what is not.
"""

from typing import Any

from fused_embedding.doors.damo import embedding_class, load_model, save_model

# `Embedding` is one too: that of tf.keras.
__all__ = ["embedding_class", "load_model", "save_model"]


def __dir__() -> list[str]:
    return sorted([*__all__, "Embedding"])


def __getattr__(name: str) -> Any:
    """Embedding, for which tf.keras is imported when it is asked for."""
    if name != "Embedding":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return embedding_class()
