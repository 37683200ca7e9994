"""Stand-ins for tf.compat.v1.nn's sparse lookups, with stock's signatures, over the fused ops."""

from fused_embedding.lookup.stock_signatures import (
    embedding_lookup_sparse_v1 as embedding_lookup_sparse,
)
from fused_embedding.lookup.stock_signatures import (
    embedding_lookup_v1 as embedding_lookup,
)
from fused_embedding.lookup.stock_signatures import (
    safe_embedding_lookup_sparse_v1 as safe_embedding_lookup_sparse,
)

__all__ = ["embedding_lookup", "embedding_lookup_sparse", "safe_embedding_lookup_sparse"]


def __dir__() -> list[str]:
    return sorted(__all__)
