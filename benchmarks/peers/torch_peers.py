"""Peers outside of TensorFlow on the same ids and tables: torch's EmbeddingBag and FBGEMM's TBE.

benchmarks/README.md says what they need; without it the driver refuses their names. Invalid
ids, which they do not take, are dropped before anything is timed, and factors of ids computed.
"""

import dataclasses
import gc
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import oracle, timing, workloads

LEARNING_RATE = 0.01
ADAGRAD_EPSILON = 1e-8
CHECKED_STEPS = 2  # the second step shows what the first one left in the slots
# torch then gives large tensors huge pages, as our tables have.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def _embedding_bag_takes(workload: workloads.Workload) -> bool:
    return all(column.combiner in ("sum", "mean") for column in workload.columns)


def _tbe_takes(workload: workloads.Workload) -> bool:
    return workload.dtype != "bfloat16" and all(column.dim % 4 == 0 for column in workload.columns)


def _one_combiner(workload: workloads.Workload) -> bool:
    combiners = {column.combiner for column in workload.columns}
    return len(combiners) == 1 and combiners <= {"sum", "mean"}


def _has_factors(workload: workloads.Workload) -> bool:
    return any(not column.is_one_hot for column in workload.columns)


# Which workloads each peer takes. TBE has a mean of its own, and sums of rows times factors: 1/n
# of a mean. Which is faster depends on the step and on the machine.
_TAKES: dict[str, Callable[[workloads.Workload], bool]] = {
    "torch_embedding_bag": _embedding_bag_takes,
    "fbgemm_tbe": lambda workload: (
        _tbe_takes(workload)
        and _one_combiner(workload)
        and not any(column.is_weighted for column in workload.columns)
    ),
    "fbgemm_tbe_factors": lambda workload: _tbe_takes(workload) and _has_factors(workload),
}
NAMES = tuple(_TAKES)


def _trains(name: str, workload: workloads.Workload) -> bool:
    """Whether a peer trains a workload right. EmbeddingBag does not in bfloat16.

    It adds up the gradients of a row in bfloat16, where a sum of 256 equal numbers stops growing.
    Rows that a batch of H_bfloat16 looks up often change by up to 15 % less than the oracle's.
    """
    return name != "torch_embedding_bag" or workload.dtype != "bfloat16"


def able(names: list[str], workload: workloads.Workload) -> list[str]:
    """Returns the peers that take a workload.

    Raises:
        SystemExit: A name is none of a peer.
    """
    unknown = set(names) - set(NAMES)
    if unknown:
        raise SystemExit(f"no such peer: {sorted(unknown)}; there are {NAMES}")
    return [name for name in names if _TAKES[name](workload)]


@dataclasses.dataclass(frozen=True)
class _Bags:
    """One batch: ids of all columns and, in each, where the bag of a row begins."""

    ids: list  # of each column [nnz]
    offsets: list  # of each column [batch_size + 1]
    factors: list  # of each column [nnz], or None where its mode needs none
    all_ids: Any  # [nnz of all columns]
    all_offsets: Any  # [num_columns * batch_size + 1]
    all_factors: Any  # [nnz of all columns]


def _bags(workload: workloads.Workload, batch: workloads.Batch) -> _Bags:
    import torch

    columns = [ids.valid() for ids in batch.columns]
    lengths = [
        np.ones(workload.batch_size, np.int64) if ids.row_lengths is None else ids.row_lengths
        for ids in columns
    ]
    factors = [
        ids.factors(column.combiner).astype(np.float32)
        for ids, column in zip(columns, workload.columns, strict=True)
    ]

    def starts(row_lengths: np.ndarray) -> Any:
        return torch.from_numpy(np.concatenate([[0], np.cumsum(row_lengths)]))

    return _Bags(
        [torch.from_numpy(np.ascontiguousarray(ids.ids)) for ids in columns],
        [starts(row_lengths) for row_lengths in lengths],
        [
            torch.from_numpy(of).to(getattr(torch, workload.dtype)) if column.is_weighted else None
            for of, column in zip(factors, workload.columns, strict=True)
        ],
        torch.from_numpy(np.concatenate([ids.ids for ids in columns])),
        starts(np.concatenate(lengths)),
        torch.from_numpy(np.concatenate(factors)),
    )


def _filled(table: Any) -> Any:
    """Returns a table with values up to 0.05, as ours; in place, for memory may hold it once."""
    import torch

    values, cycle = table.view(-1), (torch.arange(1024) * 5e-5).to(table.dtype)
    whole = len(values) // len(cycle) * len(cycle)
    values[:whole].view(-1, len(cycle)).copy_(cycle)
    values[whole:] = cycle[: len(values) - whole]
    return table


@dataclasses.dataclass(frozen=True)
class _Peer:
    """A peer with tables of its own.

    Attributes:
        tables: of each column `[rows, dim]`.
        dtype: of the combined rows.
        forward: of a batch's bags, the combined rows.
        train: of a backward pass to be called, a step of the optimizer.
    """

    tables: list
    dtype: Any
    forward: Callable[[_Bags], Any]
    train: Callable[[Callable[[], None]], None]


class TorchPeers:
    """The peers on one workload."""

    def __init__(self, workload: workloads.Workload, names: list[str], threads: int):
        import torch

        torch.set_num_threads(threads)
        self._workload, self._names = workload, names
        batches = workload.batches()
        self._oracle = oracle.Oracle(workload, batches[0])
        self._touched = [torch.from_numpy(ids.touched()) for ids in batches[0].columns]
        self._batches = [_bags(workload, batch) for batch in batches]
        self._dtype = getattr(torch, workload.dtype)
        self._make: dict[str, Callable[[str], _Peer]] = {
            "torch_embedding_bag": self._embedding_bag,
            "fbgemm_tbe": lambda phase: self._tbe(phase, with_factors=False),
            "fbgemm_tbe_factors": lambda phase: self._tbe(phase, with_factors=True),
        }

    def steps(self, phase: str) -> dict[str, timing.Step]:
        """Makes tables for a phase, those of the phase before being gone.

        Args:
            phase: "forward", "sgd" or "adagrad"; there is nothing for "gradient".

        Returns:
            A callable of the batch number for each peer that computes this phase right.

        Raises:
            AssertionError: If what a peer's step computes differs from the oracle.
        """
        gc.collect()
        if phase == "gradient":
            return {}
        made = {}
        for name in self._names:
            if phase != "forward" and not _trains(name, self._workload):
                continue
            peer = self._make[name](phase)
            self._check(name, phase, peer)
            made[name] = self._step(phase, peer)
        return made

    def _check(self, name: str, phase: str, peer: _Peer) -> None:
        """Compares the combined rows of batch 0, and the rows after some steps on it."""
        import torch

        dtype, bags = self._workload.dtype, self._batches[0]
        start = self._touched_rows(peer)
        with torch.no_grad():
            combined = peer.forward(bags).float().numpy()
        got, want = self._oracle.split(combined), self._oracle.combined(start)
        oracle.assert_close(got, want, dtype, f"{name}: combined rows")
        if phase == "forward":
            return
        # Large enough to change rows of 16 bits, and small enough for torch, whose squares of sums
        # are in 16 bits too; positive, as the sign of a sum near 0 is chance.
        grad = np.random.default_rng(0).uniform(0.05, 0.15, combined.shape)
        top_grad = torch.from_numpy(grad).to(peer.dtype)
        for _ in range(CHECKED_STEPS):
            peer.train(lambda: peer.forward(bags).backward(top_grad))
        gradients = self._oracle.gradients(top_grad.float().numpy())
        options = (CHECKED_STEPS, LEARNING_RATE, ADAGRAD_EPSILON)
        want = oracle.change(gradients, phase, *options)
        got = [a - b for a, b in zip(self._touched_rows(peer), start, strict=True)]
        oracle.assert_close(got, want, dtype, f"{name}: change of rows by two steps of {phase}")

    def _touched_rows(self, peer: _Peer) -> oracle.Rows:
        pairs = zip(peer.tables, self._touched, strict=True)
        return [table.detach()[ids].double().numpy() for table, ids in pairs]

    def _step(self, phase: str, peer: _Peer) -> timing.Step:
        import torch

        batches = self._batches
        shape = (self._workload.batch_size, self._workload.total_dim)
        grad = torch.full(shape, 1e-3, dtype=peer.dtype)

        def look_up(i: int) -> None:
            with torch.no_grad():
                peer.forward(batches[i % len(batches)])

        def train(i: int) -> None:
            peer.train(lambda: peer.forward(batches[i % len(batches)]).backward(grad))

        return look_up if phase == "forward" else train

    def _embedding_bag(self, phase: str) -> _Peer:
        import torch

        workload = self._workload
        tables = [
            torch.nn.EmbeddingBag.from_pretrained(
                _filled(torch.empty(column.rows, column.dim, dtype=self._dtype)),
                freeze=False,
                # A weighted mean is a sum of rows times factors: weights go with sums alone.
                mode="sum" if column.is_weighted else column.combiner,
                sparse=True,
                include_last_offset=True,
            )
            for column in workload.columns
        ]

        def forward(bags: _Bags) -> Any:
            columns = zip(tables, bags.ids, bags.offsets, bags.factors, strict=True)
            return torch.cat([table(*of_column) for table, *of_column in columns], 1)

        def train(backward: Callable[[], None]) -> None:
            optimizer.zero_grad()
            backward()
            optimizer.step()

        parameters = [table.weight for table in tables]
        if phase == "adagrad":
            optimizer = torch.optim.Adagrad(parameters, lr=LEARNING_RATE, eps=ADAGRAD_EPSILON)
        else:
            optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE)
        return _Peer(parameters, self._dtype, forward, train)

    def _tbe(self, phase: str, with_factors: bool) -> _Peer:
        import fbgemm_gpu  # noqa: F401  registers the operators
        import torch
        from fbgemm_gpu import split_table_batched_embeddings_ops_common as common
        from fbgemm_gpu import split_table_batched_embeddings_ops_training as training
        from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType

        workload = self._workload
        place = training.EmbeddingLocation.HOST, training.ComputeDevice.CPU
        precision = SparseType.FP16 if workload.dtype == "float16" else SparseType.FP32
        is_mean = not with_factors and workload.columns[0].combiner == "mean"
        adagrad = phase == "adagrad"
        tables = training.SplitTableBatchedEmbeddingBagsCodegen(
            [(column.rows, column.dim, *place) for column in workload.columns],
            optimizer=EmbOptimType.EXACT_ADAGRAD if adagrad else EmbOptimType.EXACT_SGD,
            learning_rate=LEARNING_RATE,
            eps=ADAGRAD_EPSILON,
            weights_precision=precision,
            output_dtype=SparseType.FP32,  # its default
            stochastic_rounding=False,
            pooling_mode=common.PoolingMode.MEAN if is_mean else common.PoolingMode.SUM,
            bounds_check_mode=common.BoundsCheckMode.NONE,
        )
        weights = tables.split_embedding_weights()
        for table in weights:
            _filled(table)

        def forward(bags: _Bags) -> Any:
            factors = [bags.all_factors] if with_factors else []
            return tables(bags.all_ids, bags.all_offsets, *factors)

        # Its backward pass updates the tables.
        return _Peer(weights, torch.float32, forward, lambda backward: backward())
