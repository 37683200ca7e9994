"""The tables of what `benchmarks.gpu` measured, in its output and on the page of a machine."""

from collections.abc import Iterator

from benchmarks.report import commands, markdown

PHASES = ("run", "step", "end_to_end")
COUNTS = ("run_share_of_copy", "step_share_of_copy", "launches", "waits")
HEAD = ("", "run", "step", "end to end, ms", "run: share of copy", "step", "launches", "waits")
VERDICTS = {True: "met", False: "**missed**", None: "not measured"}


def blocks(record: dict) -> dict[str, str]:
    """Returns the blocks of a machine's page."""
    return {
        "caption": _caption(record),
        "gpu": "\n".join(cells(record)),
        "gpu_targets": "\n".join(targets(record)),
        "gpu_host": "\n".join(host(record)),
        "commands": f"[{record['file']}]({_path(record)}): `{commands.today(record['command'])}`",
    }


def _caption(record: dict) -> str:
    of, peers = record["machine"], record["peers"]
    versions = ", ".join(f"{name} {version}" for name, version in peers.items())
    return (
        f"{of['gpu']}, driver {of['driver']}, {of['cores']} cores of {of['cpu']}, commit "
        f"{record['commit']}, {record['date'][:10]}; a copy in its memory moves "
        f"{record['copy_gb_per_s']} GB/s, read and written. Peers: {versions}."
    )


def _path(record: dict) -> str:
    return f"../../benchmarks/results/{record['folder']}/{record['file']}"


def cells(record: dict) -> Iterator[str]:
    """Yields the lines of the table of lookups and their peers."""
    yield from markdown.head(HEAD)
    for name, cell in record["cells"].items():
        if "step" not in cell:
            continue
        counts = [str(cell.get(each, "")) for each in COUNTS]
        yield markdown.row([name, *_times(cell), *counts])
        for peer, of_peer in cell.get("peers", {}).items():
            failed = "failed" in of_peer
            times = [""] * 3 if failed else _times(of_peer)
            yield markdown.row([f"- {peer}{' failed' * failed}", *times, *[""] * len(COUNTS)])


def _times(cell: dict) -> list[str]:
    return [markdown.milliseconds(cell[each]) if each in cell else "" for each in PHASES]


def targets(record: dict) -> Iterator[str]:
    """Yields the lines of the table of targets."""
    yield from markdown.head(("target", "", "figure", ""))
    for judged in record["targets"]:
        figures = [judged["bound"], str(judged["figure"]), VERDICTS[judged["is_met"]]]
        yield markdown.row([judged["target"], *figures])


def host(record: dict) -> Iterator[str]:
    """Yields the lines of the table of the CPU's workloads, by threads."""
    yield from markdown.head(("workload", "one thread, ms", "16 threads, ms", "faster"))
    for name, cell in record["cells"].items():
        if not name.startswith("cpu_"):
            continue
        for phase, of in cell.items():
            by_threads = [markdown.milliseconds(each) for _, each in _sorted(of["threads"])]
            speedup = next(str(value) for key, value in of.items() if key.startswith("speedup"))
            yield markdown.row([f"{name.removeprefix('cpu_')}, {phase}", *by_threads, speedup])


def _sorted(threads: dict) -> list[tuple]:
    return sorted(threads.items(), key=lambda item: int(item[0]))
