"""Is core as fast as it was? Two builds of it, alternating in one process, without TensorFlow.

    tools/core_speed.sh .venv/bin 2 REVISION    builds REVISION and this tree, and runs:
    python -m benchmarks.gpu.core_speed --old=OLD/core_emulated.so --new=NEW/core_emulated.so

Each row first checks that both libraries give the same bits (`--other_bits` times it even if they
do not, and says so), then times the old one against a copy of itself, and then old against new, on
one thread. The spread of a row is how far the quartiles of the copy's ratios are from 1. A row is
slower if its median ratio is above 1 by more than 2 % and by more than that spread, and it is not
judged if the spread is above 5 %: other programs were in the way. Exit code 1: a row is slower, or
has other bits. 2: none is, but not all were judged.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable

import numpy as np

from benchmarks.gpu import core
from benchmarks.gpu.core_rows import ROWS, SIZES, Row, Size
from benchmarks.harness import machine, timing
from benchmarks.report import core_reports, markdown, results

SCHEMA = results.CORE_SPEED_SCHEMA
ROUNDS = 21
BLOCK_STEPS = 20
SLOWER_SHARE = 0.02
EXIT_CODES = {"slower": 1, "other bits": 1, "not judged": 2, "as fast": 0}
Step = Callable[[int], object]


def main() -> None:
    arguments = _parse()
    size = SIZES[arguments.size]
    names = [name for name in ROWS if arguments.rows in name]
    with tempfile.TemporaryDirectory() as folder:
        # A library of another path is another library: loaded beside the first, not for it.
        copy = shutil.copy(arguments.old, os.path.join(folder, "copy.so"))
        machines = {
            name: core.Machine(core.load(os.path.abspath(path)), threads=1)
            for name, path in (("old", arguments.old), ("copy", copy), ("new", arguments.new))
        }
        print("\n".join(markdown.head(core_reports.HEAD)))
        rows = {}
        for name in names:
            rows[name] = measure(machines, ROWS[name], size, arguments)
            print(core_reports.row(name, rows[name]), flush=True)
    record = {
        "schema": SCHEMA,
        "machine": machine.describe_host(),
        **machine.provenance("benchmarks.gpu.core_speed"),
        "old_commit": arguments.old_commit,
        "new_commit": arguments.new_commit,
        "size": arguments.size,
        "rounds": arguments.rounds,
        "rows": rows,
    }
    results.write(record, "core-speed", arguments.output)
    sys.exit(_judge(rows))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", required=True, help="core_emulated.so of before")
    parser.add_argument("--new", required=True, help="core_emulated.so of now")
    parser.add_argument("--old_commit", default="unknown", help="what the old one was built from")
    parser.add_argument("--new_commit", default="unknown", help="what the new one was built from")
    parser.add_argument("--output", default="build/core_speed", help="folder of the JSON file")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rows", default="", help="those with this in their names; else all")
    parser.add_argument("--other_bits", action="store_true", help="time rows of other bits, too")
    parser.add_argument("--size", choices=list(SIZES), default="full")
    return parser.parse_args()


def measure(
    machines: dict[str, core.Machine], row: Row, size: Size, arguments: argparse.Namespace
) -> dict:
    """Times a row on the machines "old", "copy" and "new", each with a library of its own.

    Returns:
        Times of old and new, their ratio, the ratio of the copy, spread, load and verdict.
    """
    rounds = arguments.rounds
    lookup, changed = row.make(machines["old"], size)
    has_other_bits = _differ(machines["old"], machines["new"], lookup, changed)
    if has_other_bits and not arguments.other_bits:
        return {"verdict": "other bits"}
    steps = {name: _step(each, lookup, row.is_planned_once) for name, each in machines.items()}
    load = os.getloadavg()[0]
    copies = timing.alternate({n: steps[n] for n in ("old", "copy")}, rounds, BLOCK_STEPS)
    both = timing.alternate({n: steps[n] for n in ("old", "new")}, rounds, BLOCK_STEPS)
    of_copy = timing.ratio(copies["copy"], copies["old"])
    ratio = timing.ratio(both["new"], both["old"])
    spread = timing.spread(of_copy)
    return {
        "old": timing.summary(both["old"]),
        "new": timing.summary(both["new"]),
        "ratio": ratio,
        "copy_ratio": of_copy,
        "spread": spread,
        "load_average": round(max(load, os.getloadavg()[0]), 2),
        "has_other_bits": has_other_bits,
        "verdict": verdict(ratio["median"], spread),
    }


def verdict(ratio: float, spread: float) -> str:
    """What a median ratio of new over old says, where a copy of old has this spread."""
    if spread > timing.MAX_SPREAD:
        return "not judged"
    return "slower" if round(ratio - 1, 3) > max(SLOWER_SHARE, spread) else "as fast"


def _step(each: core.Machine, lookup: core.Lookup, is_planned_once: bool) -> Step:
    """A plan with its run, or the run alone."""
    planned = each.plan(lookup)
    outputs = planned.allocate()
    if is_planned_once:
        return lambda i: planned.run(outputs)
    return lambda i: each.plan(lookup).run(outputs)


def _differ(
    old: core.Machine, new: core.Machine, lookup: core.Lookup, changed: tuple[core.Array, ...]
) -> bool:
    """Whether outputs differ, or what a lookup makes of the arrays that it changes in place."""
    before = [array.numpy() for array in changed]
    bits = []
    for each in (old, new):
        outputs = each.run(lookup)
        bits.append([array.numpy().tobytes() for array in (*outputs, *changed)])
        for array, values in zip(changed, before, strict=True):
            each.copy(array.address, np.ascontiguousarray(values).ctypes.data, array.num_bytes)
    return bits[0] != bits[1]


def _judge(rows: dict[str, dict]) -> int:
    """Prints how many rows have each verdict; returns the exit code."""
    found = [row["verdict"] for row in rows.values()]
    for each in EXIT_CODES:
        if each in found:
            print(f"{found.count(each)} of {len(found)} rows: {each}")
    if "not judged" in found:
        most = f"{timing.MAX_SPREAD:.0%}"
        print(f"not judged: a copy of the old library differs from it by more than {most}")
    codes = {EXIT_CODES[each] for each in found}
    return 1 if 1 in codes else max(codes, default=0)


if __name__ == "__main__":
    main()
