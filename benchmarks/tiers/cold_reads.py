r"""Times reads of rows that are on the SSD alone, beside RocksDB without us, and the disk itself.

    python -m benchmarks.tiers.cold_reads --folder=/mnt/ssd/bench --num_keys=4000000

A table fetches keys that it does not have in memory (`table.prefetch`); a bare RocksDB, with the
same options, reads the same keys from the same files: 32 threads of which each asks for 32 sorted
keys at a time, as the table does, and one sorted MultiGet of all; fio reads 4 KB at random from a
file of the same size by 32 threads. They take turns. Writes one JSON file.
"""

import ctypes
import json
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Callable

import numpy as np
from absl import app, flags

from benchmarks.harness import timing, workloads
from benchmarks.tiers import disk, full_tables

_ROUNDS = flags.DEFINE_integer("rounds", 8, "Rounds of alternation.", lower_bound=1)
_FETCH = flags.DEFINE_integer("fetch", 16384, "Keys of a fetch.", lower_bound=1)
_FETCHES = flags.DEFINE_integer("fetches", 4, "Fetches of a round.", lower_bound=1)
_FIO_SECONDS = flags.DEFINE_integer("fio_seconds", 3, "Of fio in a round; 0: none.")

KEYS_PER_CALL = 32
SOURCE = pathlib.Path(__file__).with_suffix("").parent / "bare_multi_get.cc"
# Those of core/storage/rocksdb/rocksdb_store.cc that are for reads.
OPTIONS = (
    "compression=kNoCompression;compaction_style=kCompactionStyleUniversal;use_direct_reads={direct}"
    ";max_open_files=128;info_log_level=HEADER_LEVEL;skip_stats_update_on_db_open=true;"
    "block_based_table_factory={{block_size=4096;block_align=true;"
    "filter_policy=bloomfilter:10:false;whole_key_filtering=true;partition_filters=true;"
    "index_type=kTwoLevelIndexSearch;metadata_block_size=4096;cache_index_and_filter_blocks=true;"
    "cache_index_and_filter_blocks_with_high_priority=true;pin_top_level_index_and_filter=true;"
    "block_cache={{capacity={cache};high_pri_pool_ratio=0.9}}}}"
)


def main(_: list[str]) -> None:
    """Measures all, and writes the JSON file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    table = full_tables.Table.make("cold_reads", on_ssd=True)
    table.fill()
    stream = _KeysInTurn()
    _make_cold(table, stream)
    bare = Bare(_folder_of_store())
    num_bytes = table.counters()["cold_bytes"]
    fio = disk.Fio(full_tables.FOLDER.value, num_bytes, _FIO_SECONDS.value)
    full_tables.wait()
    seconds: dict[str, list[float]] = {"table": [], "bare": [], "one_multi_get": []}
    fio_rates: list[float] = []
    before = table.counters()
    rng = np.random.default_rng(1)
    for _round in range(_ROUNDS.value):
        fetches = [stream.take(_FETCH.value) for _ in range(_FETCHES.value)]
        systems: dict[str, Callable] = {
            "table": lambda keys: _seconds(table.variable.prefetch, keys),
            "bare": lambda keys: bare.seconds(keys, disk.READERS, KEYS_PER_CALL),
            "one_multi_get": lambda keys: bare.seconds(keys, 1, len(keys)),
        }
        for name in rng.permutation([*systems, "fio"]):
            if name != "fio":
                # The slow one reads a part: its rate is all that is wanted.
                keys = fetches[:1] if name == "one_multi_get" else fetches
                seconds[name].append(sum(map(systems[name], keys)) / len(keys))
            else:
                fio_rates += fio.reads_a_second()
    figures = full_tables.counted(before, table.counters(), before["size"])
    asked = _ROUNDS.value * _FETCHES.value * _FETCH.value
    cell = {"phase": "cold_reads", "cold_share": round(figures["cold_gets"] / asked, 4)}
    cell["found_share"] = round(bare.num_found / bare.num_asked, 4)
    cell["reads_of_a_key"] = round(figures["disk_reads"] / figures["cold_gets"], 3)
    cell["bytes_read_of_a_key"] = round(figures["disk_bytes_read"] / figures["cold_gets"], 1)
    cell["rows_written_meanwhile"] = figures["rows_written"]
    cell["systems"] = _figures(seconds, fio_rates)
    print(json.dumps(cell, indent=1))
    axes = {"share": full_tables.SHARE.value, "batch": _FETCH.value, "rounds": _ROUNDS.value}
    full_tables.write("cold_reads", "cold_reads", [cell], axes)
    bare.close()


def _figures(seconds: dict[str, list[float]], fio_rates: list[float]) -> dict[str, dict]:
    samples = {name: np.array(of_one)[:, None] for name, of_one in seconds.items()}
    systems: dict[str, dict] = {}
    for name, of_one in samples.items():
        low, median, high = (_FETCH.value / np.percentile(of_one, [75, 50, 25])).round().tolist()
        systems[name] = {"keys_per_second": median, "p25": low, "p75": high}
    for name in ("bare", "one_multi_get"):
        systems["table"][f"speed_of_{name}"] = timing.ratio(samples[name], samples["table"])
    if fio_rates:
        low, median, high = np.percentile(fio_rates, [25, 50, 75]).round().tolist()
        systems["fio"] = {"reads_per_second": median, "p25": low, "p75": high}
        of_fio = _FETCH.value / np.array(fio_rates)[:, None]
        systems["table"]["speed_of_fio"] = timing.ratio(of_fio, samples["table"])
        systems["bare"]["speed_of_fio"] = timing.ratio(of_fio, samples["bare"])
    return systems


def _seconds(function: Callable, *args: object) -> float:
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


class _KeysInTurn:
    """Every key once, in an order of chance: what was not taken yet was not fetched."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        self.ids, self.num_taken = rng.permutation(full_tables.NUM_KEYS.value), 0

    def take(self, n: int) -> np.ndarray:
        """`[n]` int64 keys."""
        if self.num_taken + n > len(self.ids):
            raise SystemExit("too few keys for so many fetches: ask for fewer --rounds")
        self.num_taken += n
        return workloads.hash64(self.ids[self.num_taken - n : self.num_taken])


def _make_cold(table: full_tables.Table, stream: _KeysInTurn) -> None:
    """Fetches others until no row in memory is left from the fill, and waits for the store."""
    num_rows = full_tables.budget() // full_tables.row_bytes()
    for _ in range(0, 3 * num_rows // 2, _FETCH.value):
        table.variable.prefetch(stream.take(_FETCH.value))
    last, now = None, table.counters()
    while last is None or now["cold_bytes_written"] != last["cold_bytes_written"]:
        time.sleep(5)
        last, now = now, table.counters()


def _folder_of_store() -> pathlib.Path:
    """The newest: the first one had rows without the slot."""
    root = pathlib.Path(full_tables.FOLDER.value) / "cold_reads"
    return max(root.glob("*/*/data"), key=lambda path: path.stat().st_ctime)


class Bare:
    """RocksDB on the files of a table's store."""

    def __init__(self, path: pathlib.Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            library = pathlib.Path(folder) / "bare.so"
            command = ["c++", "-O2", "-std=c++17", "-shared", "-fPIC", str(SOURCE), "-lrocksdb"]
            subprocess.run([*command, "-o", str(library)], check=True)
            self.library = ctypes.CDLL(str(library))
        self.library.bare_open.restype = ctypes.c_void_p
        self.library.bare_get.restype = ctypes.c_int64
        # As a table divides its budget.
        memory = min(max(full_tables.budget() // 10, 4 << 20), 256 << 20)
        options = OPTIONS.format(direct="true", cache=memory // 8 * 6)
        opened = self.library.bare_open(str(path).encode(), options.encode())
        if not opened:
            raise SystemExit(f"cannot open {path}")
        self.opened = ctypes.c_void_p(opened)
        self.num_asked = self.num_found = 0

    def seconds(self, keys: np.ndarray, num_threads: int, keys_per_call: int) -> float:
        """What a read of `[n]` int64 keys takes, sorting included."""
        value_bytes = full_tables.row_bytes() - 8
        values = np.empty(len(keys) * value_bytes, np.uint8)
        start = time.perf_counter()
        encoded = (np.sort(keys).view(np.uint64) ^ np.uint64(1 << 63)).astype(">u8")
        found = self.library.bare_get(
            *(self.opened, ctypes.c_void_p(encoded.ctypes.data), ctypes.c_int64(len(keys))),
            *(ctypes.c_int64(value_bytes), ctypes.c_void_p(values.ctypes.data)),
            *(ctypes.c_int64(keys_per_call), ctypes.c_int(num_threads)),
        )
        self.num_asked += len(keys)
        self.num_found += found
        return time.perf_counter() - start

    def close(self) -> None:
        """Before the table removes the files."""
        self.library.bare_close(self.opened)


if __name__ == "__main__":
    app.run(main)
