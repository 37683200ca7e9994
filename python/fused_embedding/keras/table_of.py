"""How an EmbeddingVariable is found among the variables of a Keras model."""

from typing import Any

from fused_embedding.variable.embedding_variable import EmbeddingVariable


def table_of(value: Any) -> EmbeddingVariable | None:
    """The EmbeddingVariable that a variable of a model is or holds, if any."""
    value = value if isinstance(value, EmbeddingVariable) else getattr(value, "_value", None)
    return value if isinstance(value, EmbeddingVariable) else None
