"""The tables about tables without a vocabulary."""

from collections.abc import Callable, Iterable, Sequence

from benchmarks.report import markdown

_RAW_PHASES = {
    "grow_65536": "growing from nothing, by 65,536",
    "grow_4096": "growing from nothing, by 4,096",
    "insert": "insert new keys",
    "overwrite": "overwrite",
    "find_uniform": "find, uniform",
    "find_zipf": "find, Zipf",
    "find_missing": "find what is missing",
}


def reports(records: Sequence[dict]) -> dict[str, str]:
    """Returns the tables of each kind that there are results of."""
    makers: dict[str, Callable[[dict], str]] = {
        "raw": _raw_table,
        "keyed": _workload_table,
        "growing": _growth_table,
    }
    found = {}
    for kind, make in makers.items():
        of_kind = [r for r in records if kind in (r["axes"].get("table"), r["axes"].get("tables"))]
        if of_kind:
            found[kind] = "\n\n".join(map(make, of_kind))
    return found


def _workload_table(record: dict) -> str:
    axes = record["axes"]
    lines = [f"### {axes['workload']} on tables without a vocabulary, {axes['threads']} thread(s)"]
    head = ["step", "system", "ms", "x limit", "x limit by key", "over tfra", "of v2's time"]
    lines += ["", *markdown.head(head)]
    for cell in record["cells"]:
        for name, entry in cell["systems"].items():
            if name.startswith("limit"):
                continue
            speedups = entry.get("speedup_over", {})
            share = 1.0 / speedups["v2"]["median"] if "v2" in speedups else None
            row = [
                markdown.PHASES[cell["phase"]],
                f"`{name}`",
                markdown.milliseconds(entry),
                _median(entry),
            ]
            row.append(_number(entry.get("x_limit_by_key", {}).get("median")))
            row += [_number(speedups.get("tfra", {}).get("median")), _number(share)]
            lines.append(markdown.row(row))
    return "\n".join(lines)


def _raw_table(record: dict) -> str:
    axes, cells = record["axes"], {cell["phase"]: cell for cell in record["cells"]}
    title = (
        f"### Raw tables, {axes['num_keys']:,} keys, dim {axes['dim']}, {axes['threads']} thread"
    )
    lines = [title, ""]
    names = list(cells["insert"]["systems"])
    head = [f"`{name}`" for name in names]
    ours = [name for name in names if name.startswith("ours")]
    head += [f"{name} over {_peer(name)}" for name in ours]
    lines += markdown.head(["million keys a second", *head, "limit loop", "ours x limit"])
    for phase, text in _RAW_PHASES.items():
        systems = cells[phase]["systems"]
        row = [text, *(f"{systems[name]['million_keys_per_second']:.1f}" for name in names)]
        for name in ours:
            speedup = systems[name]["speedup_over"].get(_peer(name), {})
            row.append(_number(speedup.get("median")))
        limit = systems.get("limit")
        row += [
            f"{limit['million_keys_per_second']:.1f}" if limit else "",
            _median(systems["ours"]),
        ]
        lines.append(markdown.row(row))
    return "\n".join([*lines, "", *_latencies(cells), "", *_sizes(cells["memory"])]) + (
        "\n\n" + "\n".join(_collisions(cells["colliding"]))
    )


def _peer(name: str) -> str:
    return name.replace("ours", "tfra")


def _latencies(cells: dict[str, dict]) -> Iterable[str]:
    head = ("median", "p99.9", "longest", "p99.9 of tfra's")
    yield from markdown.head(["insert while growing, ms", "batch", *head])
    for phase in ("grow_65536", "grow_4096"):
        for name, entry in cells[phase]["systems"].items():
            share = entry.get("p999_of", {}).get(_peer(name))
            figures = [entry[key] / 1e3 for key in ("median_us", "p999_us", "max_us")]
            row = [f"`{name}`", phase[5:], *(f"{value:.2f}" for value in figures)]
            yield markdown.row([*row, _number(share)])


def _sizes(cell: dict) -> Iterable[str]:
    yield from markdown.head(["memory of a key", "bytes", "x payload"])
    for name, entry in cell["systems"].items():
        yield markdown.row([f"`{name}`", str(entry["bytes_per_entry"]), str(entry["x_payload"])])


def _collisions(cell: dict) -> Iterable[str]:
    yield from markdown.head(
        [f"{cell['num_keys']:,} chosen keys", "find x random", "grow x random"]
    )
    for name, entry in cell["systems"].items():
        figures = [entry[key]["median"] for key in ("find_x_random", "insert_x_random")]
        yield markdown.row([name, *(f"{value:.2f}" for value in figures)])


def _growth_table(record: dict) -> str:
    axes, (cell,), last = record["axes"], record["cells"], record["series"][-1]
    lines = [f"### W5: growth and drift, {axes['steps']:,} steps, {axes['threads']} thread(s)", ""]
    lines += markdown.head(
        ["", f"step {cell['early_step']:,}", f"step {axes['steps']:,}", "quotient"]
    )
    early = next(p for p in record["series"] if p["step"] >= cell["early_step"])
    times = [f"{cell[name] / 1e3:.2f}" for name in ("early_us", "late_us")]
    lines.append(markdown.row(["ms of a step", *times, f"{cell['late_over_early']:.3f}"]))
    if "limit_late_over_early" in cell:
        drift = f"{cell['limit_late_over_early']:.3f}"
        lines.append(markdown.row(["the limit loop's, beside it", "", "", drift]))
    for text, name, unit in (
        ("rows, millions", "rows", 1e6),
        ("tables, MB", "memory_bytes", 1e6),
        ("process, MB", "resident_bytes", 1e6),
    ):
        values = [f"{point[name] / unit:,.1f}" for point in (early, last)]
        lines.append(markdown.row([text, *values, f"{last[name] / early[name]:.3f}"]))
    return "\n".join(lines)


def _median(entry: dict) -> str:
    return f"{entry['x_limit']['median']:.2f}" if "x_limit" in entry else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
