"""Writes the tables of docs/performance.md from the newest results; no figure is typed by hand.

python -m benchmarks.tables [--folder=benchmarks/results/MACHINE]
"""

import pathlib
import re

from absl import app, flags

from benchmarks import keyed_reports, machine, results

_FOLDER = flags.DEFINE_string(
    "folder", None, "Folder of results; by default the machine with most."
)

PAGE = machine.ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- begin generated -->", "<!-- end generated -->"
PHASES = {
    "forward": "forward",
    "gradient": "forward + gradient",
    "sgd": "forward + backward + SGD",
    "adagrad": "forward + backward + Adagrad",
}
# A system of ours and what it is compared with, in the order of the columns.
PAIRS = (
    ("v2", "stock"),
    ("v2_default", "stock_default"),
    ("v2", "plain"),
    ("v1", "stock"),
    ("columns_v2", "columns_stock"),
)


def workload_table(record: dict) -> str:
    """Returns the table of one result of a workload."""
    axes = record["axes"]
    title = f"### {axes['workload']}, {axes['threads']} thread(s), batch {axes['batch_size']}"
    title += ", tf.function" if axes["mode"] == "function" else ""
    head = ["step", "v2 ms", "x limit", "kernels of ours per column", "all kernels (stock's)"]
    head += [f"{ours} over {other}" for ours, other in PAIRS]
    lines = [title, "", _row(head), _row(["---"] * len(head))]
    for cell in record["cells"]:
        lines.append(_row(_workload_row(cell["phase"], cell["systems"])))
    return "\n".join(lines)


def _workload_row(phase: str, systems: dict) -> list[str]:
    v2 = systems["v2"]
    row = [PHASES[phase], _milliseconds(v2)]
    row.append(f"{v2['x_limit']['median']:.2f}" if "x_limit" in v2 else "")
    row.append(f"{v2['kernels_of_ours_per_column']:g}" if "kernels" in v2 else "")
    stock = systems.get("stock", {}).get("kernels", "")
    row.append(f"{v2['kernels']} ({stock})" if "kernels" in v2 else "")
    for ours, other in PAIRS:
        speedup = systems.get(ours, {}).get("speedup_over", {}).get(other)
        row.append(_speedup(speedup) if speedup else "")
    return row


def op_table(records: list[dict]) -> str:
    """Returns the table of the single ops."""
    lines = ["### Single ops against the stock ops that they replace", ""]
    head = ["op", "shape", "threads", "ours ms", "stock ms", "speedup"]
    lines += [_row(head), _row(["---"] * len(head))]
    for record in records:
        axes = record["axes"]
        for cell in record["cells"]:
            ours, stock = cell["systems"]["fused"], cell["systems"]["stock"]
            shape = " x ".join(str(size) for size in cell["shape"])
            row = [axes["op"], shape, str(axes["threads"]), _milliseconds(ours)]
            row += [_milliseconds(stock), _speedup(ours["speedup_over"]["stock"])]
            lines.append(_row(row))
    return "\n".join(lines)


def _milliseconds(entry: dict) -> str:
    low, high = entry["p25_us"] / 1e3, entry["p75_us"] / 1e3
    return f"{entry['median_us'] / 1e3:.3g} ({low:.3g}-{high:.3g})"


def _speedup(speedup: dict[str, float]) -> str:
    """A loss is printed in bold: it must not be overlooked."""
    text = f"{speedup['median']:.2f}"
    return f"**{text}**" if speedup["median"] < 1.0 else text


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def generated(records: list[dict]) -> str:
    """Returns everything between the page's marks."""
    records = [record for record in records if not record["dirty"]]
    ops = [record for record in records if "op" in record["axes"]]
    dense = [r for r in records if "workload" in r["axes"] and "tables" not in r["axes"]]
    parts = [f"Measured on {results.caption(records)}."]
    parts += keyed_reports.reports(records)
    parts += [workload_table(record) for record in dense]
    parts += [op_table(ops)] if ops else []
    commands = sorted({record["command"] for record in records})
    parts.append("Commands:\n\n" + "\n".join(f"    {command}" for command in commands))
    return "\n\n".join(parts)


def main(_: list[str]) -> None:
    """Replaces what stands between the marks of the page."""
    folder = pathlib.Path(_FOLDER.value) if _FOLDER.value else results.default_folder()
    text = f"{BEGIN}\n{generated(results.newest(folder))}\n{END}"
    pattern = re.compile(f"{BEGIN}.*{END}", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: text, PAGE.read_text()))
    print(PAGE)


if __name__ == "__main__":
    app.run(main)
