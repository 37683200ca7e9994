"""How an EmbeddingVariable is found among the variables of a Keras model."""

from typing import Any

import tensorflow as tf

from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.partitions import PartitionedEmbeddingVariable


def table_of(value: Any) -> EmbeddingVariable | None:
    """The EmbeddingVariable that a variable of a model is or holds, if any."""
    value = value if isinstance(value, EmbeddingVariable) else getattr(value, "_value", None)
    return value if isinstance(value, EmbeddingVariable) else None


def held_table(embeddings: Any) -> Any:
    """The table for fe.nn. Not the value of a keras.Variable, which Keras may have cast.

    Args:
        embeddings: The weight of a layer.

    Returns:
        A tf.Variable, EmbeddingVariable or PartitionedEmbeddingVariable; a tensor while Keras 3
        infers shapes.
    """
    if isinstance(embeddings, tf.Variable | PartitionedEmbeddingVariable):
        return embeddings
    return embeddings.value if embeddings._value is None else embeddings._value
