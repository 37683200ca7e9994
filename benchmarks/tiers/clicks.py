r"""Hits of memory on real clicks: a table with a tier on an SSD beside exact LRU and LFU.

    python -m benchmarks.tiers.clicks --folder=/mnt/ssd/bench

The clicks are diginetica's, in their order, from `../shared/data` beside the repository. The table
looks them up and inserts what is new, a few at a time, with room in memory for a share of the ids.
The others are simulated one click at a time, with room for as many rows as the table had in memory
on average: rows on their way to the disk too. LFU remembers all counts for ever. Writes one JSON
file.
"""

import os

import numpy as np
from absl import app, flags

from benchmarks.tiers import click_caches, full_tables

_SHARES = flags.DEFINE_list("clicks_share", ["0.01", "0.1", "0.25"], "In memory, of distinct ids.")
_CLICKS = flags.DEFINE_integer("clicks", None, "The first so many; by default all.")
_AT_ONCE = flags.DEFINE_integer("clicks_at_once", 64, "Clicks of a lookup.", lower_bound=1)


def main(_: list[str]) -> None:
    """Measures each share, and writes the JSON file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if not click_caches.PATH.exists():
        raise SystemExit(f"no {click_caches.PATH}: nothing was measured")
    clicks = click_caches.read_clicks(_CLICKS.value)
    cells = []
    for share in map(float, _SHARES.value):
        num_rows = int(len(np.unique(clicks)) * share)
        systems = {}
        for strategy in ("lfu", "lru"):
            figures = click_caches.table_hits(clicks, num_rows, strategy, full_tables.FOLDER.value)
            systems[f"table_{strategy}"] = figures
        room = round(max(figures["rows_in_memory"] for figures in systems.values()))
        systems["exact_lru"] = {"hits": click_caches.lru_hits(clicks, room)}
        systems["exact_lfu"] = {"hits": click_caches.lfu_hits(clicks, room)}
        for figures in systems.values():
            figures["hit_rate"] = round(figures["hits"] / len(clicks), 4)
        cells.append({"phase": f"{share:g}", "rows": room, "systems": systems})
        print(cells[-1], flush=True)
    axes = {"clicks": len(clicks), "clicks_at_once": _AT_ONCE.value, "dim": click_caches.DIM}
    full_tables.write("tier_clicks", "clicks", cells, axes)


if __name__ == "__main__":
    app.run(main)
