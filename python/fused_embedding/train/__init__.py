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
    from fused_embedding.checkpoint.changes import Changes, read_changes
    from fused_embedding.train.checkpoint_manager import IncrementalCheckpointManager
    from fused_embedding.train.saver import Saver
    from fused_embedding.train.statistics_hook import StatisticsHook

# EmbeddingVariables import this package, and these import them.
_MODULES = {
    "Changes": "fused_embedding.checkpoint.changes",
    "IncrementalCheckpointManager": "fused_embedding.train.checkpoint_manager",
    "Saver": "fused_embedding.train.saver",
    "StatisticsHook": "fused_embedding.train.statistics_hook",
    "read_changes": "fused_embedding.checkpoint.changes",
}

__all__ = [
    "AdagradDecayOptimizer",
    "AdagradOptimizer",
    "AdamAsyncOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "Changes",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "IncrementalCheckpointManager",
    "MomentumOptimizer",
    "RMSPropOptimizer",
    "RowWiseAdagradOptimizer",
    "Saver",
    "StatisticsHook",
    "read_changes",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
