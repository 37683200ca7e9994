"""Optimizers: stock's v1 ones, faster on ordinary variables, and some that stock has not; a Saver.

The stock v1 optimizers train EmbeddingVariables without anything of this: docs/training.md.
"""

import importlib
from typing import TYPE_CHECKING, Any

from fused_embedding.train.fused_optimizers import (
    AdagradOptimizer,
    AdamOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    RMSPropOptimizer,
)
from fused_embedding.train.optimizers import (
    AdagradDecayOptimizer,
    AdamAsyncOptimizer,
    AdamWOptimizer,
    RowWiseAdagradOptimizer,
)

if TYPE_CHECKING:
    from fused_embedding.train.saver import Saver

__all__ = [
    "AdagradDecayOptimizer",
    "AdagradOptimizer",
    "AdamAsyncOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "RMSPropOptimizer",
    "RowWiseAdagradOptimizer",
    "Saver",
]


def __getattr__(name: str) -> Any:
    # EmbeddingVariables import this package, and the Saver imports them.
    if name == "Saver":
        return importlib.import_module("fused_embedding.train.saver").Saver
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
