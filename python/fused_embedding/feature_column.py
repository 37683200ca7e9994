"""Feature columns of `tf.feature_column` with one more argument, `do_fusion`.

The columns are accepted wherever stock ones are (`tf.compat.v1.feature_column.input_layer`, Keras 2
`DenseFeatures` and `SequenceFeatures`, Estimators) and beside them. Variables, their names and
their checkpoints stay those of stock TensorFlow, so `do_fusion` can be changed at any time.
`DenseFeatures` is a layer of Keras 2 that looks all of its columns up by one op.
"""

from typing import Any

from fused_embedding.columns.api import (
    categorical_column_with_embedding,
    embedding_column,
    input_layer,
    linear_model,
    sequence_categorical_column_with_embedding,
    shared_embedding_columns,
    shared_embeddings,
)
from fused_embedding.columns.composed_api import (
    categorical_column_with_adaptive_embedding,
    categorical_column_with_multihash,
)
from fused_embedding.columns.dense_features import dense_features
from fused_embedding.columns.examples import parse_example
from fused_embedding.columns.group_scope import group_embedding_column_scope

__all__ = [
    "categorical_column_with_adaptive_embedding",
    "categorical_column_with_embedding",
    "categorical_column_with_multihash",
    "embedding_column",
    "group_embedding_column_scope",
    "input_layer",
    "linear_model",
    "parse_example",
    "sequence_categorical_column_with_embedding",
    "shared_embedding_columns",
    "shared_embeddings",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "DenseFeatures"])


def __getattr__(name: str) -> Any:
    # Neither a class of this module nor in __all__: importing tf_keras takes seconds, and there
    # may be none.
    if name == "DenseFeatures":
        return dense_features()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
