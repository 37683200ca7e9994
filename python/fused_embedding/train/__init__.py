"""Optimizers: stock's v1 ones, faster on ordinary variables, and some that stock has not; a Saver.

The stock v1 optimizers train EmbeddingVariables without anything of this: docs/training.md.
"""

from fused_embedding.checkpoint.changes import Changes, read_changes
from fused_embedding.checkpoint.checkpoint_manager import IncrementalCheckpointManager
from fused_embedding.checkpoint.saver import Saver
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
from fused_embedding.train.statistics_hook import StatisticsHook

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
