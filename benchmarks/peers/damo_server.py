"""Damo-Embedding's store behind pipes, in an environment that has it: benchmarks/tiers/peers.py.

    python -m benchmarks.peers.damo_server FOLDER NUM_KEYS DIM BATCH

Of each line it reads, "fill", "pull 3" or "push 3", it says how many seconds that took. Keys are
those of `workloads.distinct_zipf_keys`. Called directly: the package's own `push` pulls.
"""

import json
import pathlib
import sys
import time

import damo
import numpy as np

from benchmarks.harness import workloads

KEYS_OF_A_FILL = 100_000


class Server:
    """A store in a folder."""

    def __init__(self, folder: pathlib.Path, num_keys: int, dim: int, batch: int) -> None:
        self.num_keys, self.dim, self.batch = num_keys, dim, batch
        optimizer = {"name": "adagrad", "gamma": 0.05, "eta": 0.0, "lambda": 0.0, "epsilon": 1e-8}
        initializer = {"name": "random_uniform", "min": -0.05, "max": 0.05}
        group = {"dim": dim, "group": 0, "initializer": initializer, "optimizer": optimizer}
        config = folder / "damo.json"
        config.write_text(
            json.dumps({"dir": str(folder / "rows"), "ttl": 0, "embeddings": [group]})
        )
        self.store = damo.PyDamo(str(config))

    def fill(self) -> float:
        """A pull gives a key its row."""
        start = time.perf_counter()
        for first in range(0, self.num_keys, KEYS_OF_A_FILL):
            ids = np.arange(first, min(first + KEYS_OF_A_FILL, self.num_keys))
            self._pull(workloads.hash64(ids))
        return time.perf_counter() - start

    def pull(self, i: int) -> float:
        """Rows of batch i."""
        keys = workloads.distinct_zipf_keys(i, self.num_keys, self.batch)
        start = time.perf_counter()
        self._pull(keys)
        return time.perf_counter() - start

    def push(self, i: int) -> float:
        """A gradient for each row of batch i."""
        keys = workloads.distinct_zipf_keys(i, self.num_keys, self.batch)
        grads = np.full(len(keys) * self.dim, 1e-3, np.float32)
        before = self._pull(keys[:1])
        start = time.perf_counter()
        self.store.push(i + 1, 0, keys, grads)
        seconds = time.perf_counter() - start
        assert (self._pull(keys[:1]) < before).all(), "no step was taken"
        return seconds

    def _pull(self, keys: np.ndarray) -> np.ndarray:
        rows = np.zeros(len(keys) * self.dim, np.float32)
        self.store.pull(0, keys, rows)
        return rows


def main() -> None:
    """Answers until there are no more lines."""
    folder, *sizes = sys.argv[1:]
    server = Server(pathlib.Path(folder), *map(int, sizes))
    for line in sys.stdin:
        call, *arguments = line.split()
        print("took", getattr(server, call)(*map(int, arguments)), flush=True)


if __name__ == "__main__":
    main()
