"""What is measured on a machine, each with the bytes that it has to move."""

import numpy as np

from benchmarks.gpu import inputs, lookups, profile
from benchmarks.gpu.core import Array, Lookup, Machine
from benchmarks.harness import timing, workloads

FLOAT_BYTES, ID_BYTES, INDEX_BYTES = 4, 8, 4
Entry = dict[str, object]


class Bench:
    """A GPU and how it is measured.

    Attributes:
        copy_gb_per_s: Bytes read and written by a copy in its memory, over its time.
    """

    def __init__(self, gpu: Machine, samples: int, plug_bytes: int):
        self.gpu, self.samples = gpu, samples
        self.plug = gpu.empty((plug_bytes,), np.uint8)
        self.copy_gb_per_s = self._copy_bandwidth(plug_bytes)

    def _copy_bandwidth(self, num_bytes: int) -> float:
        source = self.gpu.empty((num_bytes,), np.uint8)
        to = self.gpu.empty((num_bytes,), np.uint8)
        micros = self.gpu.time_runs([lookups.copied(source)], [[to]], self.samples, None)
        return 2 * num_bytes / float(np.median(micros)) / 1e3

    def entry(self, asked: list[Lookup], outputs: list[Array], num_bytes: int) -> Entry:
        """Times a lookup: its run alone, and plan and run together, of the GPU and of the host."""
        all_outputs = [outputs] * len(asked)
        # The first of each: what the driver and the pool of memory do once.
        self.gpu.time_steps(asked, all_outputs, timing.WARM_UP_STEPS)
        run_us = self.gpu.time_runs(asked, all_outputs, self.samples, self.plug)
        step_us, host_us = self.gpu.time_steps(asked, all_outputs, self.samples)
        return {
            "run": timing.summary(run_us),
            "step": timing.summary(step_us),
            "end_to_end": timing.summary(host_us),
            "bytes": num_bytes,
            "run_share_of_copy": self.share_of_copy(num_bytes, run_us),
            "step_share_of_copy": self.share_of_copy(num_bytes, step_us),
            **self.counts(asked[0], outputs),
            "kernels": profile.kernels(self.gpu, asked, outputs),
        }

    def share_of_copy(self, num_bytes: int, micros: np.ndarray) -> float:
        """What a copy takes that moves as many bytes, over the median of these times."""
        return round(num_bytes / self.copy_gb_per_s / 1e3 / float(np.median(micros)), 3)

    def counts(self, lookup: Lookup, outputs: list[Array]) -> dict[str, int]:
        """Launches, waits and allocations of one plan with its run."""
        before = self.gpu.counters()
        planned = self.gpu.plan(lookup)
        planned.run(outputs)
        self.gpu.wait()
        counts = self.gpu.counters() - before
        counts["waits"] -= 1  # this one
        return counts

    def forward(self, batches: inputs.Batches) -> Entry:
        """A grouped lookup: reads each id and its row, writes combined.

        bytes = ids (8 + 4 dim) + rows 4 dim; row ids of the plan's check are not counted.
        """
        asked = [lookups.group_lookup(columns) for columns in batches.columns]
        return self.entry(asked, batches.outputs(), _bytes_of_forward(batches.size))

    def table_forward(self, batches: inputs.Batches) -> Entry:
        """The same in tables by key, which insert nothing: from ids to combined rows.

        One batch, since its plan makes the tables. The run has the plan's part of `forward`, and
        waits once. The bytes are those of `forward`: what keys and buckets take is not counted.
        """
        asked, outputs = [lookups.table_group_lookup(batches.columns[0])], [batches.outputs()]
        run_us = self.gpu.time_runs(asked, outputs, self.samples, None)
        num_bytes = _bytes_of_forward(batches.size)
        return {
            "run": timing.summary(run_us),
            "bytes": num_bytes,
            "run_share_of_copy": self.share_of_copy(num_bytes, run_us),
            "kernels": profile.kernels(self.gpu, asked, outputs[0]),
        }

    def backward(self, batches: inputs.Batches) -> Entry:
        """Its gradient: reads each id and its order, the gradients once, writes distinct rows.

        bytes = ids (8 + 4) + rows 4 dim + distinct ids (8 + 4 dim).
        """
        num_unique = batches.num_unique()
        num_bytes = _bytes_read(batches.size)
        num_bytes += num_unique * (ID_BYTES + batches.size.dim * FLOAT_BYTES)
        asked = [lookups.group_lookup_grad(columns) for columns in batches.columns]
        outputs = [self.gpu.plan(one).allocate() for one in asked]
        largest = [max(arrays, key=lambda a: a.size) for arrays in zip(*outputs, strict=True)]
        return {"distinct_ids": num_unique, **self.entry(asked, largest, num_bytes)}

    def backward_row_wise_adagrad(self, step: inputs.RowWiseAdagrad, is_fused: bool) -> Entry:
        """And a step: reads each id and its order, the gradients once, updates distinct rows.

        bytes = ids (8 + 4) + rows 4 dim + distinct ids 2 (4 dim + 4): rows and accumulators are
        read and written. The gradients of a step that is not fused, which go by way of memory, are
        not counted: they need not.
        """
        size, num_unique = step.batches.size, step.batches.num_unique()
        num_bytes = _bytes_read(size) + num_unique * 2 * (size.dim * FLOAT_BYTES + FLOAT_BYTES)
        return {"distinct_ids": num_unique, **self.entry(step.lookups(is_fused), [], num_bytes)}

    def unique(self, keys: list[np.ndarray]) -> Entry:
        """Distinct keys and counts: reads keys, writes unique_idx, then both for each distinct one.

        bytes = keys (8 + 4) + distinct keys (8 + 4); the hash table is not counted.
        """
        asked = [lookups.unique(self.gpu, self.gpu.upload(batch)) for batch in keys]
        num_unique = int(np.median([len(np.unique(batch)) for batch in keys]))
        outputs = [
            self.gpu.empty(keys[0].shape, np.int64),
            self.gpu.empty(keys[0].shape, np.int32),
        ]
        num_bytes = (keys[0].size + num_unique) * (ID_BYTES + INDEX_BYTES)
        return {"distinct_keys": num_unique, **self.entry(asked, outputs, num_bytes)}


def _bytes_of_forward(size: inputs.Size) -> int:
    row_bytes = size.dim * FLOAT_BYTES
    num_bytes = size.num_ids * (ID_BYTES + row_bytes)
    return num_bytes + size.num_tables * size.batch_size * row_bytes


def _bytes_read(size: inputs.Size) -> int:
    """By a gradient: each id and its order, and the gradients once."""
    of_gradients = size.num_tables * size.batch_size * size.dim * FLOAT_BYTES
    return size.num_ids * (ID_BYTES + INDEX_BYTES) + of_gradients


def cpu_times(
    machines: dict[int, Machine], workload: workloads.Workload, samples: int
) -> dict[str, Entry]:
    """Times of a plan with its run on the CPU, for each number of threads.

    Returns:
        For lookup and gradient: microseconds by threads, and how much faster than one most are.
    """
    first = next(iter(machines.values()))
    tables = [inputs.table(first, column.rows, column.dim) for column in workload.columns]
    dims = {column.dim for column in workload.columns}
    grads = {dim: inputs.table(first, workload.batch_size, dim) for dim in dims}
    batches = inputs.cpu_columns(first, workload, tables, grads)
    found: dict[str, Entry] = {}
    for name, lookup in (("lookup", lookups.group_lookup), ("gradient", lookups.group_lookup_grad)):
        asked = [lookup(columns) for columns in batches]
        by_threads: dict[int, dict] = {}
        for threads, machine in machines.items():
            # Arrays of the CPU are anybody's.
            outputs = [machine.plan(one).allocate() for one in asked]
            machine.time_steps(asked, outputs, timing.WARM_UP_STEPS)
            by_threads[threads] = timing.summary(machine.time_steps(asked, outputs, samples)[1])
        most = max(by_threads)
        speedup = by_threads[1]["median_us"] / by_threads[most]["median_us"]
        found[name] = {"threads": by_threads, f"speedup_of_{most}": round(speedup, 2)}
    return found
