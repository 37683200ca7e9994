"""What each op of this package that infers becomes in a graph of stock ops."""

from fused_embedding.serving.stock_ops import LOCAL_OPS, Lookups
from fused_embedding.serving.stock_remote import REMOTE_OPS

STOCK_OPS: Lookups = LOCAL_OPS | REMOTE_OPS
