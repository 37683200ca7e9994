r"""Times reads and updates of rows on an SSD, beside Damo-Embedding's.

    python -m benchmarks.tiers.peers --folder=/mnt/ssd/bench --peer_python=peer/bin/python

Both get the same distinct keys of the same Zipf batches and update them by Adagrad, in turns. The
peer is a process in an environment of its own (torch, numpy, damo-embedding==1.1.12). It reads
through the page cache, which has all the machine's memory, unless --confine_peer: then the peer may
grow by 1.5 x our table's budget, pages of files included. Writes one JSON file.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import TextIO, cast

import numpy as np
from absl import app, flags

from benchmarks.harness import confine, machine, resources, timing, workloads
from benchmarks.tiers import full_tables

_PEER = flags.DEFINE_string("peer_python", None, "Python that can import damo.", required=True)
_ROUNDS = flags.DEFINE_integer("rounds", 6, "Rounds of alternation.", lower_bound=1)
_BLOCK = flags.DEFINE_integer("block", 3, "Batches of a system in a round.", lower_bound=1)
_SETTLE = flags.DEFINE_integer("settle", 20, "Batches before the first that is timed.")
_CONFINE = flags.DEFINE_bool("confine_peer", False, "In a cgroup of version 1, as root.")

Call = Callable[[int], float]  # the batch's number; returns seconds


def main(_: list[str]) -> None:
    """Measures both, and writes the JSON file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    confined = confine.group("fe_damo_") if _CONFINE.value else contextlib.nullcontext()
    with confined as group, _peer(group) as (ask, peer):
        ours = Ours()
        print(f"damo: filled, {full_tables.NUM_KEYS.value / ask('fill'):,.0f} keys/s", flush=True)
        if group:
            confine.limit(group, 3 * full_tables.budget() // 2)
        calls: dict[str, dict[str, Call]] = {
            "ours": {"pull": ours.pull, "push": ours.push},
            "damo": {name: _ask_for(ask, name) for name in ("pull", "push")},
        }
        samples = _alternate(calls)
        peer_bytes = resources.resident_bytes("VmRSS", peer)
    cells = []
    for phase in ("pull", "push"):
        cell: dict = {"phase": phase, "systems": {}}
        for name, of_one in samples.items():
            figures = timing.summary(of_one[phase])
            keys = samples[name]["keys"]
            figures["keys_per_second"] = round(keys.sum() / of_one[phase].sum() * 1e6)
            cell["systems"][name] = figures
        speedup = timing.ratio(samples["damo"][phase], samples["ours"][phase])
        cell["systems"]["ours"]["speedup_over"] = {"damo": speedup}
        cells.append(cell)
        print(cell)
    axes = {"share": full_tables.SHARE.value, "batch": full_tables.BATCH.value}
    axes |= {"rounds": _ROUNDS.value, "block": _BLOCK.value, "zipf": workloads.ZIPF_EXPONENT}
    axes |= {"is_peer_confined": group is not None, "peer_resident_bytes": peer_bytes}
    mode = "tier_peers_confined" if _CONFINE.value else "tier_peers"
    full_tables.write(mode, "peers", cells, axes)


def _ask_for(ask: Callable[[str], float], name: str) -> Call:
    return lambda i: ask(f"{name} {i}")


def _alternate(calls: dict[str, dict[str, Call]]) -> dict[str, dict[str, np.ndarray]]:
    """`[rounds, block]` microseconds and keys of each system's batches, which are the same."""
    for i in range(_SETTLE.value):
        for of_one in calls.values():
            of_one["pull"](i), of_one["push"](i)
    full_tables.wait()
    shape = (_ROUNDS.value, _BLOCK.value)
    samples = {n: {k: np.empty(shape) for k in ("pull", "push", "keys")} for n in calls}
    rng = np.random.default_rng(0)
    for r in range(_ROUNDS.value):
        for name in rng.permutation(list(calls)):
            for b in range(_BLOCK.value):
                i = _SETTLE.value + r * _BLOCK.value + b
                for phase in ("pull", "push"):
                    samples[name][phase][r, b] = calls[name][phase](i) * 1e6
                samples[name]["keys"][r, b] = len(_keys(i))
    return samples


def _keys(i: int) -> np.ndarray:
    return workloads.distinct_zipf_keys(i, full_tables.NUM_KEYS.value, full_tables.BATCH.value)


class Ours:
    """A full table with a tier on an SSD."""

    def __init__(self) -> None:
        import tensorflow as tf  # here, so that --help starts fast

        self.tf = tf
        self.table = full_tables.Table.make("peers", on_ssd=True)
        self.table.fill()

    def pull(self, i: int) -> float:
        """Rows of batch i."""
        keys = self.tf.constant(_keys(i))
        start = time.perf_counter()
        self.tf.nn.embedding_lookup(self.table.variable, keys)
        return time.perf_counter() - start

    def push(self, i: int) -> float:
        """A gradient for each row of batch i."""
        keys = self.tf.constant(_keys(i))
        grads = self.tf.fill([len(keys), full_tables.DIM.value], 1e-3)
        slices = self.tf.IndexedSlices(grads, keys)
        start = time.perf_counter()
        self.table.optimizer.apply_gradients([(slices, self.table.variable)])
        return time.perf_counter() - start


@contextlib.contextmanager
def _peer(group: pathlib.Path | None) -> Iterator[tuple[Callable[[str], float], int]]:
    """A function that has the peer do something, and the peer's process id."""
    folder = pathlib.Path(full_tables.FOLDER.value) / "damo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sizes = (full_tables.NUM_KEYS.value, full_tables.DIM.value, full_tables.BATCH.value)
    command = [_PEER.value, "-m", "benchmarks.peers.damo_server", str(folder), *map(str, sizes)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        confine.command(command, group), cwd=machine.ROOT, stdin=pipe, stdout=pipe, text=True
    )

    stdin, stdout = cast(TextIO, process.stdin), cast(TextIO, process.stdout)

    def ask(call: str) -> float:
        stdin.write(call + "\n")
        stdin.flush()
        for line in stdout:
            if line.startswith("took"):
                return float(line.split()[1])
        raise SystemExit(f"the peer ended in {call}")

    try:
        yield ask, process.pid
    finally:
        stdin.close()
        process.wait(60)
        shutil.rmtree(folder)


if __name__ == "__main__":
    app.run(main)
