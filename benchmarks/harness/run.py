r"""Times embedding lookups: ours, stock TensorFlow and the limit loop, alternating in one process.

    python -m benchmarks.harness.run --workload=W1,W2,W3 --threads=1,2
    python -m benchmarks.harness.run --workload=W1 --batch_size=64 --phase=forward
    python -m benchmarks.harness.run --workload=W1 --batches=48 --ids=uniform
    python -m benchmarks.harness.run --workload=A,B,C --pairs --peer=torch_embedding_bag,fbgemm_tbe
    python -m benchmarks.harness.run --op=prune_and_fill

Systems must agree before they are timed. Each pair of workload and thread count is measured in a
process of its own, since TensorFlow fixes its thread pools once, and writes one JSON file. With
--pairs each other system is measured beside ours in a process of its own, since memory may not
hold the tables of all.
"""

import ctypes
import dataclasses
import gc
import os
import sys
from typing import Any, NamedTuple

import numpy as np
from absl import app, flags

from benchmarks.harness import limit, machine, pairs, processes, timing, workloads
from benchmarks.peers import torch_peers
from benchmarks.report import dense_reports, results

PHASES = ("forward", "gradient", "sgd", "adagrad")
# Those that need nothing but stock TensorFlow and tables with a vocabulary.
SYSTEMS = (
    *("group", "v3", "v2", "v1", "stock", "plain", "columns_v2", "columns_stock"),
    *("group_fused", "v2_fused", "stock_fused"),
    *("group_default", "v2_default", "stock_default"),
    *("group_fused_default", "v2_fused_default"),
)
# Of each phase: what is timed against itself too, and alone beside each other system of pairs.
OURS = dense_reports.OURS
ITSELF = "itself"

_WORKLOAD = flags.DEFINE_list(
    "workload", ["W1", "W2", "W3"], "Names from benchmarks/harness/workloads.py."
)
_PHASE = flags.DEFINE_list("phase", list(PHASES), "What a step does.")
_THREADS = flags.DEFINE_list("threads", ["1"], "Intra-op and inter-op threads.")
_SYSTEM = flags.DEFINE_list("system", list(SYSTEMS), "Names from benchmarks/harness/systems.py.")
_PEER = flags.DEFINE_list("peer", [], "Names from benchmarks/peers/torch_peers.py.")
_MODE = flags.DEFINE_enum("mode", "session", ["session", "function"], "How TensorFlow is run.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", None, "Instead of the workload's own.")
_BATCHES = flags.DEFINE_integer("batches", None, "Different ones; instead of the workload's own.")
_IDS = flags.DEFINE_enum("ids", None, ["uniform"], "Their law, instead of the workload's own.")
_TINY = flags.DEFINE_bool("tiny", False, "Few rows: does the driver work, nothing about speed.")
_PAIRS = flags.DEFINE_bool("pairs", False, "Ours beside each other system and peer, one by one.")
_LIMIT = flags.DEFINE_bool("limit", True, "Whether the limit loop, if there is one, is timed.")
_ROUNDS = flags.DEFINE_integer("rounds", 12, "Rounds of alternation.", lower_bound=1)
_BLOCK = flags.DEFINE_integer("block", 5, "Timed steps of a system in a round.", lower_bound=1)
_OP = flags.DEFINE_list("op", [], "Stems of benchmarks/ops: time these ops alone.")
_VARIANT = flags.DEFINE_string(
    "variant", None, "Added to the result's name: a choice of systems or phases of its own."
)
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the JSON; by default the machine's.")


def main(_: list[str]) -> None:
    """Measures what the flags ask for."""
    names = {"op": _OP.value} if _OP.value else {"workload": _WORKLOAD.value}
    axes = names | {"threads": _THREADS.value}
    processes.measure_each("harness.run", axes, lambda name, n: measure(name, int(n)))


def measure(name: str, threads: int) -> None:
    """Measures one workload or op at one number of threads and writes its JSON file."""
    _quieten()
    axes: dict[str, object] = {"threads": threads, "rounds": _ROUNDS.value, "block": _BLOCK.value}
    if _OP.value:
        axes |= {"op": name}
        record = results.record_of("benchmarks.harness.run", axes, _measure_op(name, threads))
    else:
        workload = _workload(name)
        axes |= {"workload": name, "batch_size": workload.batch_size, "mode": _MODE.value}
        axes |= {"tables": "keyed"} if _is_keyed() else {}
        axes |= {flag.name: flag.value for flag in (_BATCHES, _IDS, _TINY, _PAIRS) if flag.value}
        measure_cells = _measure_pairs if _PAIRS.value else _measure_workload
        record = results.record_of("benchmarks.harness.run", axes, measure_cells(workload, threads))
        record["ids"] = _ids_of(workload)
    axes |= {"variant": _VARIANT.value} if _VARIANT.value else {}
    results.write(record, _name(axes), _OUTPUT.value)


def _workload(name: str) -> workloads.Workload:
    """Returns a workload with what the flags change of it."""
    workload = workloads.WORKLOADS[name]
    changed: dict[str, Any] = {"batch_size": _BATCH_SIZE.value, "num_batches": _BATCHES.value}
    changed["is_uniform"] = True if _IDS.value == "uniform" else None
    changed = {field: value for field, value in changed.items() if value is not None}
    workload = dataclasses.replace(workload, **changed)
    return workload.tiny() if _TINY.value else workload


def _ids_of(workload: workloads.Workload) -> dict[str, object]:
    """Returns what is looked up, and whether a cache holds it."""
    return {
        "summary": workload.summary(),
        "batches": workload.num_batches,
        "touched_bytes": workload.touched_bytes(),
        "l3_bytes": machine.l3_bytes(),
    }


def _measure_op(name: str, threads: int) -> list[dict]:
    from benchmarks import ops

    return ops.measure(name, threads, _ROUNDS.value, _BLOCK.value)


def _measure_pairs(workload: workloads.Workload, threads: int) -> list[dict]:
    """Measures ours beside each other system, and beside each peer that takes the workload."""
    from benchmarks.harness import systems

    ours = list(dict.fromkeys(OURS[phase] for phase in _PHASE.value))
    others = [
        [f"--system={','.join([*ours, name])}", "--peer="]
        for name in _SYSTEM.value
        if name not in ours and systems.SYSTEMS[name].takes(workload)
    ]
    others += [
        [f"--system={','.join(ours)}", f"--peer={name}"]
        for name in torch_peers.able(_PEER.value, workload)
    ]
    which = [f"--workload={workload.name}", f"--threads={threads}"]
    # The limit loop is beside the first pair alone: W2 with a peer needs its memory.
    flags_of = [[*which, *other, *(["--nolimit"] if i else [])] for i, other in enumerate(others)]
    return pairs.measure("harness.run", flags_of)


def _quieten() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf  # here, so that --help and the parent of several runs start fast

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)


def _is_keyed() -> bool:
    """Whether any system has tables without a vocabulary: such results stand apart."""
    from benchmarks.harness import systems

    return any(systems.SYSTEMS[name].tables != "dense" for name in _SYSTEM.value)


def _measure_workload(workload: workloads.Workload, threads: int) -> list[dict]:
    loop = limit.compile_loop() if _LIMIT.value and limit.takes(workload) else None
    if loop is None and _LIMIT.value:
        why = f"{limit.SOURCE} is not there" if limit.takes(workload) else "not of this workload"
        print(f"limit skipped: {why}", file=sys.stderr)
    cells: dict[str, dict] = {
        phase: {"phase": phase, "check": "equal", "systems": {}} for phase in _PHASE.value
    }
    for names in _passes(workload):
        _measure_pass(workload, threads, names, loop, cells)
    return list(cells.values())


def _passes(workload: workloads.Workload) -> list[list[str]]:
    """Groups the systems by session configuration; memory holds the tables of one group."""
    from benchmarks.harness import systems

    groups: dict[bool, list[str]] = {False: [], True: []}
    for name in _SYSTEM.value:
        system = systems.SYSTEMS[name]
        if not system.takes(workload):
            continue
        if system.session_only and _MODE.value != "session":
            continue
        groups[system.arithmetic].append(name)
    return [names for names in groups.values() if names]


def _measure_pass(
    workload: workloads.Workload,
    threads: int,
    names: list[str],
    loop: ctypes.CDLL | None,
    cells: dict[str, dict],
) -> None:
    """Checks and times the systems of one session configuration, phase by phase."""
    from benchmarks.harness import steps, systems

    # Once: their figures do not depend on a session's configuration.
    peers = _peers(workload, threads) if not systems.SYSTEMS[names[0]].arithmetic else None
    make = steps.SessionRunner if _MODE.value == "session" else steps.FunctionRunner
    runner = make(workload, list(cells), names, threads)
    bound = None
    if loop:
        bound = limit.Limit(loop, workload, threads, "adagrad" in cells, by_key=_is_keyed())
    # The order of PHASES: a sparse update changes how stock's default reads its variables.
    for phase in (phase for phase in PHASES if phase in cells):
        able = [name for name in names if phase in systems.SYSTEMS[name].phases]
        _measure_phase(_Pass(workload, runner, able, bound, peers), cells[phase])
    runner.close()
    del runner, bound, peers
    gc.collect()


class _Pass(NamedTuple):
    """The systems of one session configuration that can do a phase, and what is beside them."""

    workload: workloads.Workload
    runner: Any
    able: list[str]
    bound: limit.Limit | None
    peers: torch_peers.TorchPeers | None


def _measure_phase(of_pass: _Pass, cell: dict) -> None:
    """Checks and times one phase, and adds its figures to the cell."""
    from benchmarks.harness import check

    runner, able, phase = of_pass.runner, of_pass.able, cell["phase"]
    check.assert_systems_agree(runner, able, phase)
    limits = of_pass.bound.steps(phase) if of_pass.bound else {}
    beside = of_pass.peers.steps(phase) if of_pass.peers else {}
    ours = {name: runner.step(name, phase) for name in able}
    again = {ITSELF: ours[OURS[phase]]} if OURS[phase] in ours else {}
    steps = ours | again | beside | limits
    samples = timing.alternate(steps, _ROUNDS.value, _BLOCK.value)
    fastest = min(limits, key=lambda name: np.median(samples[name]), default=None)
    suffix = "_default" if able[0].endswith("_default") else ""  # a limit of each pass
    for name in steps:
        if name in limits:
            cell["systems"][name + suffix] = timing.summary(samples[name])
        else:
            cell["systems"][name] = _figures(samples, name, fastest, OURS[phase])
    for name in able:
        profile = runner.profile(name, phase)
        cell["systems"][name] |= _kernels(profile, of_pass.workload.num_columns)
    _report(of_pass.workload.name, cell, [n + suffix * (n in limits) for n in steps])


def _peers(workload: workloads.Workload, threads: int) -> torch_peers.TorchPeers | None:
    names = torch_peers.able(_PEER.value, workload)
    return torch_peers.TorchPeers(workload, names, threads) if names else None


def _figures(samples: dict, name: str, fastest: str | None, repeated: str) -> dict:
    """Returns a system's times and, over the rounds, the others' times relative to it.

    That of `repeated` to itself is one of them.
    """
    from benchmarks.harness import systems

    figures = timing.summary(samples[name])
    if fastest is not None:
        figures |= {"limit": fastest, "x_limit": timing.ratio(samples[name], samples[fastest])}
    if limit.BY_KEY in samples:
        figures |= {f"x_{limit.BY_KEY}": timing.ratio(samples[name], samples[limit.BY_KEY])}
    if name in systems.SYSTEMS and systems.SYSTEMS[name].is_ours:
        left_out = {name, *limit.NAMES, *([] if name == repeated else [ITSELF])}
        others = [other for other in samples if other not in left_out]
        speedups = {other: timing.ratio(samples[other], samples[name]) for other in others}
        figures["speedup_over"] = speedups
    return figures


def _kernels(profile: list[dict], num_columns: int) -> dict:
    """Returns the executed ops: all, and those of ours for each column."""
    if not profile:
        return {}
    ours = sum(row["kernels"] for row in profile if row["op"] in _our_op_types())
    return {
        "kernels": sum(row["kernels"] for row in profile),
        "kernels_of_ours_per_column": round(ours / num_columns, 3),
        "profile": profile[:12],
    }


def _our_op_types() -> set[str]:
    package = sys.modules.get("fused_embedding")
    return set(dir(package.raw_ops)) if package else set()


def _report(title: str, cell: dict, names: list[str]) -> None:
    print(f"{title} {cell['phase']}: results are equal")
    for name in names:
        entry = cell["systems"][name]
        line = f"  {name:15s} {entry['median_us']:10.1f} us"
        if "x_limit" in entry:
            line += f"  x limit {entry['x_limit']['median']:6.2f}"
        for other, speedup in entry.get("speedup_over", {}).items():
            line += f"  {other} {speedup['median']:.2f}"
        print(line, flush=True)


def _name(axes: dict) -> str:
    """Names a result after its axes."""
    parts = [axes.get("workload") or axes["op"], *([axes["tables"]] if "tables" in axes else [])]
    parts += [f"t{axes['threads']}"]
    parts += [f"b{_BATCH_SIZE.value}"] if _BATCH_SIZE.value else []
    parts += [f"n{_BATCHES.value}"] if _BATCHES.value else []
    parts += [_IDS.value] if _IDS.value else []
    parts += ["tiny"] if _TINY.value else []
    parts += ["function"] if axes.get("mode") == "function" else []
    parts += [_VARIANT.value] if _VARIANT.value else []
    return "-".join(parts)


if __name__ == "__main__":
    app.run(main)
