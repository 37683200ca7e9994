import pathlib
import sys

import numpy as np
import pytest

import processes
from cases.tiers import needs_rocksdb

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are no installed package

from benchmarks.report import results, tier_reports  # noqa: E402
from benchmarks.tiers import click_caches  # noqa: E402

POINTS = 0.03  # of all clicks


@needs_rocksdb
def test_real_clicks_hit_memory_as_often_as_with_the_better_of_lru_and_lfu(tmp_path):
    if not click_caches.PATH.exists():
        pytest.skip(f"needs {click_caches.PATH}")
    # So many that LRU and a queue are more than that behind LFU: 4 and 5.5 points.
    clicks = click_caches.read_clicks(60_000)
    figures = click_caches.table_hits(clicks, 1700, "lfu", str(tmp_path))
    room = round(figures["rows_in_memory"])
    best = max(click_caches.lru_hits(clicks, room), click_caches.lfu_hits(clicks, room))
    assert room < 1900
    assert figures["cold_hits"] > 5000
    assert figures["hits"] > best - POINTS * len(clicks)
    assert figures["hits"] < best + 2 * POINTS * len(clicks)  # else something is not counted


@pytest.mark.parametrize("seed", range(3))
def test_simulated_caches_do_what_they_say(seed):
    clicks = np.random.default_rng(seed).zipf(1.3, 600) % 40
    for hits, value_of in (
        (click_caches.lru_hits(clicks, 8), lambda row, now: (last(clicks, row, now),)),
        (
            click_caches.lfu_hits(clicks, 8),
            lambda row, now: ((clicks[:now] == row).sum(), last(clicks, row, now)),
        ),
    ):
        cache, want = set(), 0
        for now, click in enumerate(clicks.tolist()):
            want += click in cache
            if click not in cache and len(cache) == 8:
                cache.remove(min(cache, key=lambda row, now=now: value_of(row, now)))
            cache.add(click)
        assert hits == want


def last(clicks, row, now):
    return np.flatnonzero(clicks[:now] == row)[-1]


@pytest.mark.slow
@needs_rocksdb
@pytest.mark.parametrize(
    ("module", "flags"),
    [
        ("steps", ["--history=9", "--settle=2", "--rounds=2", "--block=2", "--fio_seconds=0"]),
        ("memory", ["--steps=2", "--limit=30"]),
        ("cold_reads", ["--rounds=2", "--fetch=1000", "--fetches=2", "--fio_seconds=0"]),
    ],
)
def test_benchmarks_of_tiers_run_and_are_reported(tmp_path, module, flags):
    sizes = ["--num_keys=200000", "--dim=32", "--share=0.4", "--batch=4096"]
    folders = [f"--folder={tmp_path / 'ssd'}", f"--output={tmp_path / 'json'}"]
    done = processes.run_module(f"benchmarks.tiers.{module}", *sizes, *folders, *flags, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    (path,) = (tmp_path / "json").iterdir()
    record = results.load(path)
    (text,) = tier_reports.reports([record]).values()
    assert "###" in text
    if module == "steps":
        measured = record["cells"][0]["systems"]
        assert measured["ssd"]["cold_gets"] > 1000
        assert measured["ssd_resident"]["cold_gets"] == 0
