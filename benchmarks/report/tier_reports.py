"""The tables about tables with a tier on an SSD."""

from collections.abc import Callable, Sequence

from benchmarks.report import markdown

# What the project asks of each figure.
TARGETS = {
    "speed_of_memory": 0.3,
    "speed_of_bare": 0.8,
    "speed_of_fio": 0.7,
    "memory": 1.2,
    "points": 3.0,
}
MAX_DRIFT_PERCENT = 1.0
_SYSTEMS = {
    "memory": "in memory",
    "ssd": "tier on an SSD",
    "ssd_prefetch": "the same, rows fetched ahead",
    "ssd_resident": "the same, all rows of the step in memory",
}


def reports(records: Sequence[dict]) -> dict[str, str]:
    """Returns the tables of each kind that there are results of."""
    makers: dict[str, Callable[[dict], str]] = {
        "tiers": _steps,
        "tier_memory": _memory,
        "cold_reads": _reads,
        "tier_peers": _peers,
        "tier_peers_confined": _peers,
        "tier_clicks": _clicks,
        "soak": _soak,
    }
    of_tiers = [record for record in records if record["axes"].get("table") == "tier"]
    found: dict[str, list[str]] = {}
    for mode, make in makers.items():
        for record in of_tiers:
            if record["axes"]["mode"] == mode:
                found.setdefault(mode.removesuffix("_confined"), []).append(make(record))
    return {kind: "\n\n".join(tables) for kind, tables in found.items()}


def _title(record: dict, what: str) -> str:
    axes = record["axes"]
    title = f"### Tier on an SSD: {what}, {axes['num_keys']:,} keys, dim {axes['dim']} and Adagrad"
    return f"{title}, {axes['share']:.0%} in memory"


def _steps(record: dict) -> str:
    axes = record["axes"]
    lines = [_title(record, f"training steps of {axes['batch']:,} ids"), ""]
    head = ["table", "ms", "speed of memory's (target)", "of the step waited for the disk"]
    head += ["keys a step", "of these in memory", "read a step", "MB read a step"]
    head += ["reads a second, of fio's", "rows written a step", "written / given"]
    head += ["memory / budget", "disk / rows"]
    lines += markdown.head(head)
    # Timed steps, those that begin a block, and those that warm up.
    num_steps = axes["rounds"] * (axes["block"] + axes["untimed"]) + 5
    for name, figures in record["cells"][0]["systems"].items():
        row = [_SYSTEMS[name], markdown.milliseconds(figures)]
        speed = figures["speed_of_memory"]["median"]
        row.append(_target(speed, "speed_of_memory") if name.startswith("ssd") else "1")
        row.append(f"{figures['share_of_step_waited']:.0%}" if name in _WAITING else "")
        if "distinct_keys" in figures and name != "memory":
            row += [f"{figures['distinct_keys'] / num_steps:,.0f}"]
            row += [f"{figures['memory_hit_rate']:.1%}"]
            row += [f"{figures['cold_gets'] / num_steps:,.0f}"]
            row += [f"{figures['disk_bytes_read'] / num_steps / 1e6:.1f}"]
            rate = figures["disk_reads"] / num_steps / figures["median_us"] * 1e6
            row.append(_of_fio(rate, record["cells"][0]["fio_reads_per_second"]))
            row += [f"{figures['rows_written'] / num_steps:,.0f}"]
            row += [f"{figures['write_amplification']:.1f}", f"{figures['memory_of_budget']:.2f}"]
            row += [f"{figures['disk_of_rows']:.2f}"]
        lines.append(markdown.row(row + [""] * (len(head) - len(row))))
    return "\n".join(lines)


def _of_fio(rate: float, fio_rates: Sequence[float]) -> str:
    """Beside the mean of what fio had before and after."""
    share = f", {rate * len(fio_rates) / sum(fio_rates):.0%}" if fio_rates else ""
    return f"{rate:,.0f}{share}"


_WAITING = ("ssd", "ssd_prefetch")


def _memory(record: dict) -> str:
    axes, figures = record["axes"], record["cells"][0]["systems"]["ssd_prefetch"]
    lines = [_title(record, "memory of a process"), ""]
    lines += markdown.head(["", "MB", "of the budget (target)"])
    for text, name in (
        ("after the fill", "filled_of_budget"),
        (f"after {axes['steps']} steps", "grown_of_budget"),
        ("at most", "most_of_budget"),
    ):
        megabytes = figures[name] * figures["budget"] / 1e6
        lines.append(markdown.row([text, f"{megabytes:,.0f}", _most(figures[name])]))
    lines += ["", f"Beyond the {figures['tensorflow_bytes'] / 1e6:,.0f} MB of TensorFlow"]
    if "limit_bytes" in figures:
        lines[-1] += f", in a cgroup that ends a process which grows by {axes['limit']} budgets"
    lines[-1] += f"; {figures['demotions']:,} rows left memory, {figures['disk_reads']:,} reads of"
    lines[-1] += f" the disk brought {figures['disk_bytes_read'] / 1e6:,.0f} MB."
    return "\n".join(lines)


def _reads(record: dict) -> str:
    cell = record["cells"][0]
    lines = [_title(record, f"fetches of {record['axes']['batch']:,} rows from the disk"), ""]
    lines += markdown.head(["", "a second", "table's speed of it (target)"])
    ours = cell["systems"]["table"]
    for text, name in (
        ("`table.prefetch`", "table"),
        ("RocksDB alone, 32 threads on 32 sorted keys each", "bare"),
        ("RocksDB alone, one sorted MultiGet", "one_multi_get"),
        ("fio, 32 threads, reads of 4 KB at random", "fio"),
    ):
        figures = cell["systems"].get(name)
        if not figures:
            continue
        rate = figures.get("keys_per_second") or figures["reads_per_second"]
        row = [text, f"{rate:,.0f} ({figures['p25']:,.0f}-{figures['p75']:,.0f})"]
        share = ours.get(f"speed_of_{name}", {}).get("median")
        row.append("" if share is None else _target(share, f"speed_of_{name}"))
        lines.append(markdown.row(row))
    text = f"A key took {cell['reads_of_a_key']} reads and {cell['bytes_read_of_a_key']:,.0f} bytes"
    return "\n".join([*lines, "", f"{text}; {cell['cold_share']:.1%} of the keys were on disk."])


def _peers(record: dict) -> str:
    what = "keys a second, beside Damo-Embedding's"
    if record["axes"]["is_peer_confined"]:
        what += " in 1.5 x the memory"
    lines = [_title(record, what), ""]
    lines += markdown.head(["", "ours", "Damo-Embedding", "over it"])
    for cell in record["cells"]:
        ours, peer = (cell["systems"][name] for name in ("ours", "damo"))
        rates = [f"{figures['keys_per_second']:,}" for figures in (ours, peer)]
        speedup = ours["speedup_over"]["damo"]["median"]
        text = f"{speedup:.2f}" if speedup >= 1 else f"**{speedup:.2f}**"
        lines.append(markdown.row([cell["phase"], *rates, text]))
    peer_mb = record["axes"]["peer_resident_bytes"] / 1e6
    return "\n".join([*lines, "", f"The peer had {peer_mb:,.0f} MB, without pages of files."])


def _clicks(record: dict) -> str:
    axes = record["axes"]
    lines = [f"### Tier on an SSD: hits of memory, {axes['clicks']:,} clicks of diginetica", ""]
    head = ["ids in memory", "rows", "`LFU`", "`LRU`", "exact LRU", "exact LFU"]
    lines += markdown.head([*head, "points above the better (target)"])
    for cell in record["cells"]:
        names = ("table_lfu", "table_lru", "exact_lru", "exact_lfu")
        rates = [100 * cell["systems"][name]["hit_rate"] for name in names]
        above = points(cell)
        text = f"{above:+.1f} (-{TARGETS['points']:g})"
        row = [f"{float(cell['phase']):.0%}", f"{cell['rows']:,}", *(f"{r:.1f}" for r in rates)]
        lines.append(markdown.row([*row, text if above >= -TARGETS["points"] else f"**{text}**"]))
    return "\n".join(lines)


def points(cell: dict) -> float:
    """Returns hits of LFU minus those of the better of exact LRU and LFU, in 100 clicks."""
    rates = {name: 100 * figures["hit_rate"] for name, figures in cell["systems"].items()}
    return rates["table_lfu"] - max(rates["exact_lru"], rates["exact_lfu"])


def _soak(record: dict) -> str:
    axes, cell, last = record["axes"], record["cells"][0], record["series"][-1]
    title = f"training, erasing and saving for {axes['minutes']:.0f} minutes"
    lines = [_title(record, title), ""]
    lines += markdown.head(["", "drift in the second half, %", f"limit {MAX_DRIFT_PERCENT:g} %"])
    for name, percent in cell["drift_percent"].items():
        is_judged = name in cell["judged"]
        is_lost = is_judged and abs(percent) >= MAX_DRIFT_PERCENT
        text = f"**{percent:+.2f}**" if is_lost else f"{percent:+.2f}"
        verdict = "not judged" if not is_judged else "NOT MET" if is_lost else "met"
        lines.append(markdown.row([f"`{name}`", text, verdict]))
    lines += ["", f"{last['steps']:,} steps, {last['saves']} saves."]
    return "\n".join(lines)


def _target(value: float, name: str) -> str:
    """A missed target is printed in bold."""
    if name not in TARGETS:
        return f"{value:.2f}"
    text = f"{value:.2f} ({TARGETS[name]})"
    return text if value >= TARGETS[name] else f"**{value:.2f}** ({TARGETS[name]})"


def _most(value: float) -> str:
    text = f"{value:.2f}"
    return f"{text if value <= TARGETS['memory'] else f'**{text}**'} ({TARGETS['memory']})"
