"""SavedModels for servers: of stock ops alone, or with the ops of this package."""

from fused_embedding.serving.delta import write_serving_delta
from fused_embedding.serving.export import export_for_serving
from fused_embedding.serving.quantization import RowErrors

__all__ = ["RowErrors", "export_for_serving", "write_serving_delta"]


def __dir__() -> list[str]:
    return sorted(__all__)
