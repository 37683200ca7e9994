"""Peers outside of TensorFlow on the same ids and tables: torch's EmbeddingBag and FBGEMM's TBE.

benchmarks/README.md says what they need; without it the driver refuses their names. Invalid
ids, which they do not take, are dropped before anything is timed.
"""

import dataclasses
import gc
from collections.abc import Callable

import numpy as np

from benchmarks.harness import timing, workloads

NAMES = ("torch_embedding_bag", "fbgemm_tbe")
LEARNING_RATE = 0.01
ADAGRAD_EPSILON = 1e-8


@dataclasses.dataclass(frozen=True)
class _Bags:
    """One batch: ids of all columns and, in each, where the bag of a row begins."""

    ids: list  # of each column [nnz]
    offsets: list  # of each column [batch_size + 1]
    all_ids: object  # [nnz of all columns]
    all_offsets: object  # [num_columns * batch_size + 1]


def _bags(batch: workloads.Batch) -> _Bags:
    import torch

    if batch.row_lengths is None:
        columns, lengths = list(batch.ids), [np.ones(batch.ids.shape[1], np.int64)] * len(batch.ids)
    else:
        kept = batch.ids >= 0
        num_rows = len(batch.row_lengths)
        columns = [batch.ids[kept]]
        lengths = [np.bincount(batch.row_ids()[kept], minlength=num_rows).astype(np.int64)]

    def starts(row_lengths: np.ndarray) -> object:
        return torch.from_numpy(np.concatenate([[0], np.cumsum(row_lengths)]))

    return _Bags(
        [torch.from_numpy(np.ascontiguousarray(ids)) for ids in columns],
        [starts(row_lengths) for row_lengths in lengths],
        torch.from_numpy(np.concatenate(columns)),
        starts(np.concatenate(lengths)),
    )


def _table(num_rows: int, dim: int) -> object:
    """`[num_rows, dim]` with the values of the limit loop's tables."""
    import torch

    size = num_rows * dim
    cycle = torch.arange(1024, dtype=torch.float32) * 1e-3 + 1e-3
    return cycle.repeat(-(-size // 1024))[:size].reshape(num_rows, dim).contiguous()


class TorchPeers:
    """The peers on one workload."""

    def __init__(self, workload: workloads.Workload, names: list[str], threads: int):
        import torch

        torch.set_num_threads(threads)
        self._workload, self._names = workload, names
        self._batches = [_bags(batch) for batch in workload.batches()]
        shape = (workload.batch_size, workload.num_columns * workload.dim)
        self._grad = torch.full(shape, 1e-3)
        self._make = {"torch_embedding_bag": self._embedding_bag, "fbgemm_tbe": self._tbe}

    def steps(self, phase: str, combined: np.ndarray | None = None) -> dict[str, timing.Step]:
        """Makes tables for a phase, those of the phase before being gone.

        Args:
            phase: "forward", "sgd" or "adagrad"; there is nothing for "gradient".
            combined: What the limit loop's forward pass makes of batch 0.

        Returns:
            A callable of the batch number for each peer.

        Raises:
            AssertionError: If a peer's result differs from `combined`.
        """
        gc.collect()
        if phase == "gradient":
            return {}
        return {name: self._make[name](phase, combined) for name in self._names}

    def _step(
        self, phase: str, forward: Callable, update: Callable, combined: np.ndarray | None
    ) -> timing.Step:
        import torch

        batches = self._batches
        if combined is not None:
            with torch.no_grad():
                np.testing.assert_allclose(forward(batches[0]).numpy(), combined, rtol=1e-5)

        def look_up(i: int) -> None:
            with torch.no_grad():
                forward(batches[i % len(batches)])

        def train(i: int) -> None:
            update(lambda: forward(batches[i % len(batches)]).backward(self._grad))

        return look_up if phase == "forward" else train

    def _embedding_bag(self, phase: str, combined: np.ndarray | None) -> timing.Step:
        import torch

        workload = self._workload
        tables = [
            torch.nn.EmbeddingBag.from_pretrained(
                _table(rows, workload.dim),
                freeze=False,
                mode=workload.combiner,
                sparse=True,
                include_last_offset=True,
            )
            for rows in workload.table_rows
        ]

        def forward(bags: _Bags) -> object:
            columns = zip(tables, bags.ids, bags.offsets, strict=True)
            return torch.cat([table(ids, offsets) for table, ids, offsets in columns], 1)

        def update(backward: Callable) -> None:
            optimizer.zero_grad()
            backward()
            optimizer.step()

        parameters = [table.weight for table in tables]
        if phase == "adagrad":
            optimizer = torch.optim.Adagrad(parameters, lr=LEARNING_RATE, eps=ADAGRAD_EPSILON)
        else:
            optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE)
        return self._step(phase, forward, update, combined)

    def _tbe(self, phase: str, combined: np.ndarray | None) -> timing.Step:
        import fbgemm_gpu  # noqa: F401  registers the operators
        from fbgemm_gpu import split_table_batched_embeddings_ops_common as common
        from fbgemm_gpu import split_table_batched_embeddings_ops_training as training
        from fbgemm_gpu.split_embedding_configs import EmbOptimType

        workload = self._workload
        place = training.EmbeddingLocation.HOST, training.ComputeDevice.CPU
        pooling = {"sum": common.PoolingMode.SUM, "mean": common.PoolingMode.MEAN}
        adagrad = phase == "adagrad"
        tables = training.SplitTableBatchedEmbeddingBagsCodegen(
            [(rows, workload.dim, *place) for rows in workload.table_rows],
            optimizer=EmbOptimType.EXACT_ADAGRAD if adagrad else EmbOptimType.EXACT_SGD,
            learning_rate=LEARNING_RATE,
            eps=ADAGRAD_EPSILON,
            pooling_mode=pooling[workload.combiner],
            bounds_check_mode=common.BoundsCheckMode.NONE,
        )
        for weights, rows in zip(
            tables.split_embedding_weights(), workload.table_rows, strict=True
        ):
            weights.copy_(_table(rows, workload.dim))
        # Its backward pass updates the tables.
        return self._step(
            phase,
            lambda bags: tables(bags.all_ids, bags.all_offsets),
            lambda backward: backward(),
            combined,
        )
