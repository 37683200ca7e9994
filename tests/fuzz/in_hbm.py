"""Moves the tables of the fuzzed calls to HBM, on the emulation of a GPU."""

from typing import Any

from emulated_gpu import OPS, emulated_gpu
from fused_embedding.ops import raw_ops
from fuzz import cases, table_cases

# What a table in HBM can have, and the ops that have cases of such tables alone.
KINDS = ("plain", "counter")
NOT_FUZZED = ("EmbeddingVariableRestore",)  # its files are of incremental saves
_OF_DRAM = ("admission", "bloom_counters", "bloom_hashes", "max_capacity", "check_mode")
_emulated = emulated_gpu()


def begin() -> None:
    """From here on calls are of ops that have kernels for tables in HBM, on such tables."""
    _emulated.__enter__()
    make_gpu_handle = raw_ops.EmbeddingVariableGpuHandle

    def make_handle(**attrs: Any) -> Any:
        own = {name: value for name, value in attrs.items() if name not in _OF_DRAM}
        return make_gpu_handle(hbm_bytes=1 << 20, **own)

    raw_ops.EmbeddingVariableHandle = make_handle
    for name in set(table_cases.TABLES) - set(KINDS):
        del table_cases.TABLES[name]
    table_cases.ROOMY[:] = KINDS
    table_cases.REFUSES_NEGATIVE_COUNTS = False
    fuzzed = set(OPS) - set(NOT_FUZZED)
    cases.OPS = tuple(op for op in cases.OPS if op.name in fuzzed)
