"""Fused sparse embedding lookup for stock TensorFlow.

`fe.nn` looks up, `fe.feature_column` puts `do_fusion` on feature columns, `fe.raw_ops` are the ops,
`fe.compat.v1.nn` stands in for tf.compat.v1.nn.
"""

from fused_embedding import compat, feature_column, gradients, nn, raw_ops

__version__ = "0.1.0"

__all__ = ["compat", "feature_column", "nn", "raw_ops"]

del gradients  # imported for its registrations
