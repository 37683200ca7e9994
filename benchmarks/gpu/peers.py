"""What others need for the same lookups on the same GPU, with tables and ids in the same memory.

* `torch_embedding_bag`: torch.nn.functional.embedding_bag for each table; its gradient is the
  sparse one, coalesced, so that each distinct row is there once, as ours is.
* `torch_fused`: by hand, over all tables as one with offsets added to the ids. Forward: one
  index_select, and for bags one embedding_bag. Backward: unique, then index_add of the rows; with
  a step, that of row-wise Adagrad on the distinct rows.
* `jax`: jit of a gather and segment_sum over all tables as one.
* `torch_unique`, `cupy_unique`: their unique with inverse and counts; they sort.

The sums of ids with offsets are made before anything is timed.
"""

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu import inputs
from benchmarks.gpu.core import Array
from benchmarks.harness import timing

Step = Callable[[int], object]
Entry = dict[str, object]
# FBGEMM and TensorFlow are looked for, so that a result says what was not compared.
WANTED = ("torch", "jax", "cupy", "fbgemm_gpu", "tensorflow")
NOT_MEASURED = ("fbgemm_gpu", "tensorflow")
RELATIVE = 1e-5
NUM_PLUGS, RUNS = 8, 16  # of a series, as FeTimeRuns has them


def versions() -> dict[str, str]:
    """The version of each peer, or that it is absent."""
    found = {}
    for name in WANTED:
        try:
            module = importlib.import_module(name)
        except (ImportError, OSError):
            found[name] = "absent"
            continue
        found[name] = str(getattr(module, "__version__", "unknown"))
        if name in NOT_MEASURED:
            found[name] += ", which nothing here measures"
    return found


def is_present(name: str) -> bool:
    """Whether a peer can be imported."""
    return not versions()[name].endswith("absent")


class TorchPeers:
    """PyTorch on the arrays of a benchmark, and JAX and CuPy where they are there."""

    def __init__(self, samples: int, plug: Array):
        import torch

        self.torch, self.samples = torch, samples
        self.plug = self.view(plug)

    def view(self, array: Array) -> Any:
        """The array in place."""
        return self.torch.as_tensor(array, device="cuda")

    def time(self, step: Step) -> Entry:
        """Times `step` of a batch's number: of the stream, ahead of it, and of the host."""
        torch = self.torch
        for i in range(timing.WARM_UP_STEPS):
            step(i)
        torch.cuda.synchronize()
        run_us = np.concatenate([self._series(step) for _ in range(0, self.samples, RUNS)])
        host_us = time_host(step, torch.cuda.synchronize, self.samples)
        return {"run": timing.summary(run_us), "end_to_end": timing.summary(host_us)}

    def _series(self, step: Step) -> np.ndarray:
        """`[RUNS]` microseconds; many launches a step are no longer ahead at the end."""
        event = self.torch.cuda.Event
        marks = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(RUNS)]
        for _ in range(NUM_PLUGS):
            self.plug.zero_()
        for i, (start, end) in enumerate(marks):
            start.record()
            step(i)
            end.record()
        self.torch.cuda.synchronize()
        return np.array([start.elapsed_time(end) * 1e3 for start, end in marks])

    def forward(self, batches: inputs.Batches) -> dict[str, Entry]:
        """The forward peers, whose results are compared with `batches.combined`, batch 0."""
        size, torch = batches.size, self.torch
        whole, want = self.view(batches.whole_table), self.view(batches.combined)
        tables = whole.view(size.num_tables, size.table_rows, size.dim)
        fused_ids, column_ids = self._ids(batches)
        num_rows = size.num_tables * size.batch_size
        fused_offsets = torch.arange(num_rows, device="cuda") * size.ids_per_row
        offsets = fused_offsets[: size.batch_size]
        bag = torch.nn.functional.embedding_bag

        def per_table(i: int) -> list:
            ids = column_ids[i % len(column_ids)]
            columns = zip(ids, tables, strict=True)
            return [bag(of_one, table, offsets, mode="sum") for of_one, table in columns]

        def fused(i: int) -> Any:
            ids = fused_ids[i % len(fused_ids)]
            if size.is_one_hot:
                return torch.index_select(whole, 0, ids)
            return bag(ids, whole, fused_offsets, mode="sum")

        for got in (torch.stack(per_table(0)), fused(0)):
            torch.testing.assert_close(
                got.reshape(want.shape), want, rtol=RELATIVE, atol=size.ids_per_row * RELATIVE
            )
        return {"torch_embedding_bag": self.time(per_table), "torch_fused": self.time(fused)}

    def backward(self, batches: inputs.Batches) -> dict[str, Entry]:
        """The gradient alone by hand, and that of embedding_bag with its forward pass."""
        size, torch = batches.size, self.torch
        tables = self.view(batches.whole_table).view(size.num_tables, size.table_rows, size.dim)
        leaves = [table.detach().requires_grad_() for table in tables]
        grads = self.view(batches.grad).view(size.num_tables, size.batch_size, size.dim)
        column_ids = self._ids(batches)[1]
        offsets = torch.arange(size.batch_size, device="cuda") * size.ids_per_row
        bag = torch.nn.functional.embedding_bag

        def per_table(i: int) -> list:
            found = []
            columns = zip(column_ids[i % len(column_ids)], leaves, grads, strict=True)
            for ids, leaf, grad in columns:
                out = bag(ids, leaf, offsets, mode="sum", sparse=True)
                found.append(torch.autograd.grad(out, leaf, grad)[0].coalesce())
            return found

        return {
            "torch_embedding_bag_with_forward": self.time(per_table),
            "torch_fused": self.time(self._fused_gradient(batches)),
        }

    def _fused_gradient(self, batches: inputs.Batches) -> Callable[[int], tuple]:
        """Distinct ids of all tables as one, and their rows, of a batch's number."""
        size, torch = batches.size, self.torch
        grads = self.view(batches.grad)
        fused_ids = self._ids(batches)[0]
        row_of_pair = torch.arange(size.num_ids, device="cuda") // size.ids_per_row

        def gradient(i: int) -> tuple:
            ids, idx = torch.unique(fused_ids[i % len(fused_ids)], return_inverse=True)
            of_pairs = grads if size.is_one_hot else grads.index_select(0, row_of_pair)
            rows = torch.zeros(len(ids), size.dim, device="cuda")
            return ids, rows.index_add_(0, idx, of_pairs)

        return gradient

    def backward_row_wise_adagrad(self, step: inputs.RowWiseAdagrad) -> dict[str, Entry]:
        """Gradient and step by hand, on a copy of the tables; the first is compared with ours."""
        torch, gradient = self.torch, self._fused_gradient(step.batches)
        ours, ours_accumulator = self.view(step.batches.whole_table), self.view(step.accumulator)
        table, accumulator = ours.clone(), ours_accumulator.clone()

        def update(i: int) -> object:
            ids, rows = gradient(i)
            numbers = accumulator.index_select(0, ids) + rows.square().mean(1)
            accumulator.index_copy_(0, ids, numbers)
            scales = -step.learning_rate / (numbers.sqrt() + step.epsilon)
            return table.index_add_(0, ids, rows * scales[:, None])

        update(0)
        torch.cuda.synchronize()  # ours has a stream of its own
        step.batches.machine.run(step.lookups(is_fused=True)[0])
        step.batches.machine.wait()
        ids = gradient(0)[0]
        for got, want in ((table, ours), (accumulator, ours_accumulator)):
            of_ids = (each.index_select(0, ids) for each in (got, want))
            torch.testing.assert_close(*of_ids, rtol=RELATIVE, atol=RELATIVE)
        return {"torch_fused": self.time(update)}

    def jax_forward(self, batches: inputs.Batches) -> dict[str, Entry]:
        """JAX on the same tables. Timed by the host: several calls, then one wait."""
        import jax

        size = batches.size
        whole = jax.dlpack.from_dlpack(self.view(batches.whole_table))
        ids = [jax.numpy.asarray(ids.cpu().numpy(), np.int32) for ids in self._ids(batches)[0]]
        num_rows = size.num_tables * size.batch_size
        row_of_pair = jax.numpy.arange(size.num_ids) // size.ids_per_row

        @jax.jit
        def look_up(table: Any, of_batch: Any) -> Any:
            rows = table[of_batch]
            if size.is_one_hot:
                return rows
            return jax.ops.segment_sum(rows, row_of_pair, num_rows, indices_are_sorted=True)

        last = [look_up(whole, ids[0])]

        def step(i: int) -> None:
            last[0] = look_up(whole, ids[i % len(ids)])

        def finish() -> None:
            last[0].block_until_ready()

        got, want = np.asarray(last[0]), batches.combined.numpy().reshape(num_rows, size.dim)
        np.testing.assert_allclose(got, want, RELATIVE, size.ids_per_row * RELATIVE)
        for i in range(timing.WARM_UP_STEPS):
            step(i)
        finish()
        start = time.perf_counter_ns()
        for i in range(self.samples):
            step(i)
        finish()
        in_a_row = (time.perf_counter_ns() - start) / 1e3 / self.samples
        host_us = time_host(step, finish, self.samples)
        run = timing.summary(np.array([in_a_row])) | {"timed_by": "the host, calls in a row"}
        return {"jax": {"run": run, "end_to_end": timing.summary(host_us)}}

    def unique(self, keys: list[np.ndarray]) -> dict[str, Entry]:
        """PyTorch's unique."""
        torch = self.torch
        on_gpu = [torch.from_numpy(batch).cuda() for batch in keys]

        def step(i: int) -> object:
            return torch.unique(on_gpu[i % len(on_gpu)], return_inverse=True, return_counts=True)

        return {"torch_unique": self.time(step)}

    def cupy_unique(self, keys: list[np.ndarray]) -> dict[str, Entry]:
        """CuPy's, which is on the same stream: the default one."""
        import cupy

        on_gpu = [cupy.asarray(batch) for batch in keys]

        def step(i: int) -> object:
            batch = on_gpu[i % len(on_gpu)]
            return cupy.unique(batch, return_inverse=True, return_counts=True)

        return {"cupy_unique": self.time(step)}

    def _ids(self, batches: inputs.Batches) -> tuple[list, list]:
        """Of each batch: ids of all tables as one `[num_ids]`, and of each table."""
        torch, size = self.torch, batches.size
        columns = [torch.from_numpy(ids).cuda() for ids in batches.ids]
        starts = torch.arange(size.num_tables, device="cuda")[:, None] * size.table_rows
        return [(ids + starts).reshape(-1) for ids in columns], columns


def time_host(step: Step, finish: Callable[[], object], samples: int) -> np.ndarray:
    """`[samples]` float64 microseconds of a step and the wait for its end."""
    host_us = np.empty(samples)
    for i in range(samples):
        start = time.perf_counter_ns()
        step(i)
        finish()
        host_us[i] = (time.perf_counter_ns() - start) / 1e3
    return host_us
