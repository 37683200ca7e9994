"""Fused sparse embedding lookups, with the signatures of DeepRec's and of tf.nn's functions.

The results are those of `tf.nn.safe_embedding_lookup_sparse`, forward and gradient. The gradient of
a table is `tf.IndexedSlices` whose ids are distinct, in the order of their first occurrence.
"""

from fused_embedding.lookup.deeprec_signatures import (
    fused_embedding_lookup_sparse,
    fused_embedding_lookup_sparse_v2,
    fused_embedding_lookup_sparse_v3,
    fused_safe_embedding_lookup_sparse,
)
from fused_embedding.lookup.group_signatures import (
    group_embedding_lookup,
    group_embedding_lookup_sparse,
)
from fused_embedding.lookup.stock_signatures import (
    embedding_lookup,
    embedding_lookup_sparse,
    handed_to_stock,
    safe_embedding_lookup_sparse,
)

__all__ = [
    "embedding_lookup",
    "embedding_lookup_sparse",
    "fused_embedding_lookup_sparse",
    "fused_embedding_lookup_sparse_v2",
    "fused_embedding_lookup_sparse_v3",
    "fused_safe_embedding_lookup_sparse",
    "group_embedding_lookup",
    "group_embedding_lookup_sparse",
    "handed_to_stock",
    "safe_embedding_lookup_sparse",
]


def __dir__() -> list[str]:
    return sorted(__all__)
