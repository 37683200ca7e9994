"""The tables about training on parameter servers, and about plans of them."""

from collections.abc import Sequence

from benchmarks.report import markdown

MODE, PLANNED_MODE = "parameter_servers", "planned_servers"
WORKERS_MODE = "two_workers"
# Of each kind of tables, what messages are compared with.
_PAIRS = {
    "stock": "",
    "each_column": "stock",
    "messages": "each_column",
    "keyed_each_column": "stock",
    "keyed_messages": "keyed_each_column",
}


def table(records: Sequence[dict]) -> str:
    """Returns the table of `benchmarks.distributed.parameter_servers`."""
    lines = ["### Steps on parameter servers", ""]
    head = ["columns x ids", "servers", "lookups", "CPU ms", "worker", "servers' CPU", "beside"]
    lines += markdown.head([*head, "ops", "of them handles", "tensors that cross", "kB"])
    for record in sorted(records, key=lambda record: record["axes"]["columns"]):
        systems = record["cells"][0]["systems"]
        lines += [
            _row(record["axes"], name, other, systems[name])
            for name, other in _PAIRS.items()
            if name in systems
        ]
    return "\n".join(lines)


def planned_table(records: Sequence[dict]) -> str:
    """Returns the table of `benchmarks.distributed.planned_servers`."""
    lines = ["### Planned servers", ""]
    lines += markdown.head(["servers", "shards", "tensors", "predicted us", "measured us", "error"])
    for cell in (cell for record in records for cell in record["cells"]):
        pairs = zip(cell["predicted_seconds"], cell["measured_seconds"], strict=True)
        for predicted, measured in pairs:
            counts = [str(cell[name]) for name in ("servers", "shards", "messages")]
            times = [f"{1e6 * seconds:.0f}" for seconds in (predicted, measured)]
            lines.append(markdown.row([*counts, *times, f"{predicted / measured - 1:+.1%}"]))
    return "\n".join(lines)


def workers_table(records: Sequence[dict]) -> str:
    """Returns the table of `benchmarks.distributed.two_workers`."""
    lines = ["### Two workers beside one", ""]
    head = ["columns x ids", "servers", "lookups", "steps/s, one", "two", "two / one"]
    lines += markdown.head([*head, "CPU ms a step, one", "two"])
    for record in records:
        axes = record["axes"]
        for name, figures in record["cells"][0]["systems"].items():
            columns = f"{axes['columns']} x {axes['batch_size']}"
            rates = [f"{figures[key]:.0f}" for key in ("one", "two")]
            cpu = [f"{figures[f'{key}_cpu_ms']:.2f}" for key in ("one", "two")]
            lookups = name.replace("_", " ")
            lines.append(
                markdown.row(
                    [columns, str(axes["servers"]), lookups, *rates, f"{figures['gain']:.2f}", *cpu]
                )
            )
    return "\n".join(lines)


def _row(axes: dict, name: str, other: str, figures: dict) -> str:
    traffic = figures["traffic"]
    beside = ""
    if other:
        beside = f"{other.replace('_', ' ')} {figures['speedup_over'][other]['median']:.2f}"
    return markdown.row(
        [
            f"{axes['columns']} x {axes['batch_size']}",
            str(axes["servers"]),
            name.replace("_", " "),
            markdown.milliseconds(figures),
            f"{figures['worker_cpu_us'] / 1e3:.2f}",
            f"{figures['servers_cpu_us'] / 1e3:.2f}",
            beside,
            str(traffic["executed_ops"]),
            str(traffic["handle_ops"]),
            str(traffic["tensors"]),
            f"{(traffic['bytes_to_servers'] + traffic['bytes_to_worker']) / 1e3:.0f}",
        ]
    )
