"""Peers of rows in fewer bytes: torch's quantized embedding bags, and FBGEMM's TBE for inference.

They get the valid ids alone, and add up where a workload has means: less work than ours. Their
rows are random bytes; those of `torch_int8` are laid out as ours, and checked.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import timing, workloads

NAMES = ("torch_int8", "torch_int4", "tbe_int8", "tbe_int4")
_CHECKED_ROWS = 100
_SCALE, _BIAS = 1 / 2048, -0.0625


def steps(
    workload: workloads.Workload, batches: list[workloads.Batch], names: list[str]
) -> dict[str, timing.Step]:
    """A callable of the batch number for each peer.

    Args:
        workload: Its columns have even dims.
        batches: Of the workload.
        names: Some of `NAMES`.

    Raises:
        SystemExit: A name is none of a peer.
        AssertionError: If `torch_int8` computes other sums than its rows have.
    """
    import torch

    if unknown := set(names) - set(NAMES):
        raise SystemExit(f"no such peer: {sorted(unknown)}; there are {NAMES}")
    torch.set_num_threads(1)
    bags = [[_bags(ids.valid()) for ids in batch.columns] for batch in batches]
    makers = {"torch": _torch, "tbe": _tbe}
    made = {}
    for name in names:
        library, row_format = name.split("_")
        made[name] = makers[library](workload, bags, 4 if row_format == "int4" else 8)
    return made


def _bags(ids: workloads.ColumnIds) -> tuple[Any, Any]:
    import torch

    lengths = np.ones(ids.ids.size, np.int64) if ids.row_lengths is None else ids.row_lengths
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return torch.from_numpy(np.ascontiguousarray(ids.ids)), torch.from_numpy(offsets)


def _torch(workload: workloads.Workload, bags: list, bits: int) -> timing.Step:
    import torch

    look_up = {
        8: torch.ops.quantized.embedding_bag_byte_rowwise_offsets,
        4: torch.ops.quantized.embedding_bag_4bit_rowwise_offsets,
    }[bits]
    tables = [torch.from_numpy(_rows(column.rows, column.dim, bits)) for column in workload.columns]

    def step(i: int) -> None:
        for table, (ids, offsets) in zip(tables, bags[i % len(bags)], strict=True):
            look_up(table, ids, offsets, include_last_offset=True)

    if bits == 8:
        _check(look_up, tables[0], bags[0][0], workload.columns[0].dim)
    return step


def _rows(num_rows: int, dim: int, bits: int) -> np.ndarray:
    """Random quants, then scale and bias: float32 of 8 bits, float16 of 4."""
    number = np.float32 if bits == 8 else np.float16
    rng = np.random.default_rng(0)
    numbers = np.array([_SCALE, _BIAS], number).view(np.uint8)
    num_bytes = dim * bits // 8
    table = np.empty([num_rows, num_bytes + numbers.size], np.uint8)
    cycle = rng.integers(0, 256, [4096, num_bytes], np.uint8)
    for first in range(0, num_rows, len(cycle)):
        part = table[first : first + len(cycle)]
        part[:, :num_bytes] = cycle[: len(part)]
    table[:, num_bytes:] = numbers
    return table


def _check(look_up: Callable[..., Any], table: Any, bags: tuple[Any, Any], dim: int) -> None:
    ids, offsets = bags
    got = look_up(table, ids, offsets, include_last_offset=True).numpy()
    for row in range(min(_CHECKED_ROWS, len(offsets) - 1)):
        of_row = ids[offsets[row] : offsets[row + 1]]
        quants = table[of_row].numpy()[:, :dim].astype(np.float64)
        np.testing.assert_allclose(got[row], (quants * _SCALE + _BIAS).sum(axis=0), atol=1e-4)


def _tbe(workload: workloads.Workload, bags: list, bits: int) -> timing.Step:
    import fbgemm_gpu  # noqa: F401  registers the operators
    import torch
    from fbgemm_gpu import split_table_batched_embeddings_ops_common as common
    from fbgemm_gpu import split_table_batched_embeddings_ops_inference as inference
    from fbgemm_gpu.split_embedding_configs import SparseType

    weights = SparseType.INT8 if bits == 8 else SparseType.INT4
    tables = inference.IntNBitTableBatchedEmbeddingBagsCodegen(
        [
            (f"t{i}", column.rows, column.dim, weights, common.EmbeddingLocation.HOST)
            for i, column in enumerate(workload.columns)
        ],
        device="cpu",
        pooling_mode=common.PoolingMode.SUM,
        output_dtype=SparseType.FP32,
        bounds_check_mode=common.BoundsCheckMode.NONE,
    )
    tables.fill_random_weights()
    joined = []
    for of_batch in bags:
        lengths = torch.cat([torch.diff(offsets) for _, offsets in of_batch])
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cumsum(lengths, 0)])
        ids = torch.cat([ids for ids, _ in of_batch])
        joined.append((ids.to(torch.int32), starts.to(torch.int32)))

    def step(i: int) -> None:
        tables(*joined[i % len(joined)])

    return step
