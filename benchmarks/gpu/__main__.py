"""Measures the CUDA core on the GPU of this machine, beside others on the same GPU.

    python -m benchmarks.gpu --library=build/gpu_build/core_gpu.so --output=build/gpu

Times are CUDA events around runs that the GPU always has in its queue ("run"), around a plan with
its run ("step", with the host's wait in it), and the host's clock from plan to the end
("end_to_end"). Medians, with quartiles. Bytes are the formulas in benchmarks/gpu/measure.py; their
share is that of a copy of as many bytes, measured before. A peer that fails is named in the result,
and the exit code is 1. With a library of the emulation nothing is measured: sizes are tiny, and
nothing is stored.
"""

import argparse
import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from benchmarks.gpu import core, inputs, measure, peers, table_cells, targets
from benchmarks.harness import machine, workloads
from benchmarks.report import gpu_reports, results

Of = TypeVar("Of")
SCHEMA = results.GPU_SCHEMA
GPU_SAMPLES, CPU_SAMPLES = 64, 30
PLUG_BYTES = 1 << 30
CPU_WORKLOADS = ("W2", "W4")
CPU_THREADS = 16


def main() -> None:
    arguments = _parse()
    # JAX would take most of the memory for itself; read when it is imported.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    library = core.load(arguments.library)
    gpu = core.Machine(library)
    bench = measure.Bench(gpu, *((4, 1 << 12) if gpu.is_emulated else (GPU_SAMPLES, PLUG_BYTES)))
    cells = _gpu_cells(bench, arguments.only)
    if not arguments.only:
        cells |= _cpu_cells(library, gpu.is_emulated)
    if gpu.is_emulated:
        print(f"emulated: {len(cells)} cells ran; no figures, nothing stored")
        return
    record = {
        "schema": SCHEMA,
        "machine": machine.describe_host() | _describe_gpu(),
        **machine.provenance("benchmarks.gpu"),
        "peers": peers.versions(),
        "copy_gb_per_s": round(bench.copy_gb_per_s, 1),
        "cells": cells,
        "targets": targets.judge(cells),
    }
    if arguments.commit:
        record |= {"commit": arguments.commit, "dirty": False}
    results.write(record, f"gpu-{arguments.only}" if arguments.only else "gpu", arguments.output)
    _print(record)
    sys.exit(any("failed" in peer for cell in cells.values() for peer in _peers_of(cell).values()))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True, help="core_gpu.so")
    parser.add_argument("--output", default=".", help="folder of the JSON file")
    parser.add_argument("--commit", help="what the library was built from, without changes")
    parser.add_argument("--only", default="", help="sizes that begin so, such as table or criteo")
    return parser.parse_args()


def _gpu_cells(bench: measure.Bench, only: str) -> dict[str, dict]:
    emulated = bench.gpu.is_emulated
    has_torch = not emulated and peers.is_present("torch")
    torch = peers.TorchPeers(bench.samples, bench.plug) if has_torch else None
    cells: dict[str, dict] = {}
    for name, size in _sizes(inputs.TINY_SIZES if emulated else inputs.SIZES, only):
        of_size = _size_cells(bench, torch, size)
        cells |= {f"{name}_{phase}": cell for phase, cell in of_size.items()}
    if "unique".startswith(only):
        cells["unique"] = _unique_cell(bench, torch)
    for name, of_table in _sizes(table_cells.TINY_SIZES if emulated else table_cells.SIZES, only):
        cells |= table_cells.cells(bench, name, of_table)
    return cells


def _sizes(sizes: Mapping[str, Of], only: str) -> list[tuple[str, Of]]:
    return [(name, size) for name, size in sizes.items() if name.startswith(only)]


def _size_cells(
    bench: measure.Bench, torch: peers.TorchPeers | None, size: inputs.Size
) -> dict[str, dict]:
    """The phases of one size."""
    table = inputs.table(bench.gpu, size.num_tables * size.table_rows, size.dim)
    uniform = inputs.Batches(bench.gpu, size, table, half=False)
    forward: dict = bench.forward(uniform)
    _check_forward(bench.gpu, uniform)
    forward["peers"] = _forward_peers(torch, uniform)
    in_tables = {"table_forward": bench.table_forward(uniform)} if size.in_tables else {}
    half = inputs.Batches(bench.gpu, size, table, half=True)
    backward: dict = bench.backward(half)
    backward["peers"] = _peers(torch.backward if torch else None, half)
    step = inputs.RowWiseAdagrad(half)
    with_step: dict = bench.backward_row_wise_adagrad(step, is_fused=True)
    with_step["peers"] = _peers(torch.backward_row_wise_adagrad if torch else None, step)
    return {
        "forward": forward,
        "backward": backward,
        "backward_row_wise_adagrad": with_step,
        "backward_row_wise_adagrad_by_memory": bench.backward_row_wise_adagrad(
            step, is_fused=False
        ),
        **in_tables,
    }


def _unique_cell(bench: measure.Bench, torch: peers.TorchPeers | None) -> dict:
    emulated = bench.gpu.is_emulated
    rng = np.random.default_rng(0)
    num_keys = inputs.TINY_NUM_KEYS if emulated else inputs.NUM_KEYS
    keys = [
        workloads.hash64(inputs.half_unique(rng, num_keys, num_keys))
        for _ in range(inputs.NUM_BATCHES)
    ]
    cell: dict = bench.unique(keys)
    cell["peers"] = {
        **_peers(torch.unique if torch else None, keys),
        **_peers(torch.cupy_unique if torch and peers.is_present("cupy") else None, keys),
    }
    return cell


def _check_forward(gpu: core.Machine, batches: inputs.Batches) -> None:
    """Runs batch 0, for the peers to compare with, and compares one of its rows with numpy."""
    planned = gpu.plan(measure.lookups.group_lookup(batches.columns[0]))
    planned.run(batches.outputs())
    size = batches.size
    ids = batches.ids[0][-1, : size.ids_per_row]
    table = batches.columns[0][-1].table
    rows = [table.part(int(i) * size.dim, (size.dim,)).numpy() for i in ids]
    got = batches.outputs()[-1].part(0, (size.dim,)).numpy()
    np.testing.assert_allclose(got, np.sum(rows, 0), rtol=1e-5, atol=1e-5)


def _forward_peers(torch: peers.TorchPeers | None, batches: inputs.Batches) -> dict:
    return {
        **_peers(torch.forward if torch else None, batches),
        **_peers(torch.jax_forward if torch and peers.is_present("jax") else None, batches),
    }


def _peers(measured: Callable[..., dict] | None, given: object) -> dict[str, dict]:
    """What `measured` finds, or why it failed: the figures of others are not lost for it."""
    if measured is None:
        return {}
    try:
        return measured(given)
    except Exception as error:
        return {measured.__name__: {"failed": f"{type(error).__name__}: {error}"}}


def _peers_of(cell: dict) -> dict[str, dict]:
    return cell.get("peers", {})


def _cpu_cells(library: ctypes.CDLL, emulated: bool) -> dict[str, dict]:
    """Workloads of the CPU path on one thread and on 16, or on as many as there are cores."""
    threads = min(CPU_THREADS, os.cpu_count() or 1)
    machines = {n: core.Machine(library, threads=n) for n in {1, threads}}
    samples = 2 if emulated else CPU_SAMPLES
    cells = {}
    for name in ("tiny", "tiny_multi_hot") if emulated else CPU_WORKLOADS:
        cells[f"cpu_{name}"] = measure.cpu_times(machines, workloads.WORKLOADS[name], samples)
    return cells


def _describe_gpu() -> dict[str, str]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    told = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    name, driver = told.splitlines()[0].split(", ")
    return {"gpu": name, "driver": driver}


def _print(record: dict) -> None:
    host = record["machine"]
    print(f"{host['gpu']}, driver {host['driver']}, copy {record['copy_gb_per_s']} GB/s")
    for lines in (gpu_reports.cells, gpu_reports.targets, gpu_reports.host):
        print("\n" + "\n".join(lines(record)))


if __name__ == "__main__":
    main()
