"""The tables about tables with a vocabulary: workloads, sizes, serving, exports, single ops."""

from collections.abc import Callable, Sequence

from benchmarks.harness import workloads
from benchmarks.report import distributed_reports, input_reports, markdown, program_reports

# Ours in each phase: the best that there is, by what was measured.
OURS = {"forward": "group", "gradient": "group", "sgd": "group_fused", "adagrad": "group_fused"}
# What ours is compared with, and whether both are under TensorFlow's default options.
OTHERS = {
    "stock": ("stock", False),
    "stock_default": ("stock at its defaults", True),
    "plain": ("plain", False),
    "v2": ("v2", False),
    "torch_embedding_bag": ("EmbeddingBag", False),
    "fbgemm_tbe": ("TBE", False),
    "itself": ("itself", False),
}
PEERS = ("torch_embedding_bag", "fbgemm_tbe")
# Ways to use a peer of which the fastest counts.
WAYS = {"fbgemm_tbe": ("fbgemm_tbe", "fbgemm_tbe_factors")}
# design: times the limit on one thread that each workload should stay below.
TARGETS = {
    "W1": {"forward": 1.5, "sgd": 2.0, "adagrad": 2.0},
    "W2": {"forward": 0.9, "sgd": 1.7, "adagrad": 2.0},
    "W3": {"forward": 1.5, "sgd": 2.0, "adagrad": 2.0},
    "W4": {"forward": 1.5, "adagrad": 2.0},
}


def speedup_over(ours: dict, other: str) -> dict[str, float] | None:
    """Returns the other system's time over ours, at its best; None if it was not measured."""
    speedups = ours.get("speedup_over", {})
    found = [speedups[way] for way in WAYS.get(other, (other,)) if way in speedups]
    return min(found, key=lambda speedup: speedup["median"], default=None)


def workload_table(record: dict) -> str:
    """Returns the table of one result of a workload."""
    axes = record["axes"]
    title = f"### {axes['workload']}, {axes['threads']} thread(s), batch {axes['batch_size']}"
    title += ", tf.function" if axes["mode"] == "function" else ""
    measured = {name for cell in record["cells"] for name in cell["systems"]}
    others = [name for name in OTHERS if measured & set(WAYS.get(name, (name,)))]
    title += _beside(others)
    head = ["step", "ours", "ms", "x limit (target)", "kernels (stock's)"]
    head += [f"over {OTHERS[name][0]}" for name in others]
    lines = [title, "", *markdown.head(head)]
    lines += [markdown.row(_workload_row(cell, axes, others)) for cell in record["cells"]]
    return "\n".join(lines)


def _beside(others: list[str]) -> str:
    peers = [OTHERS[name][0] for name in others if name in PEERS]
    return f", beside {' and '.join(peers)}" if peers else ""


def _workload_row(cell: dict, axes: dict, others: list[str]) -> list[str]:
    phase, systems = cell["phase"], cell["systems"]
    name = OURS[phase]
    ours = systems[name]
    row = [
        markdown.PHASES[phase],
        f"`{name}`",
        markdown.milliseconds(ours),
        x_limit(ours, phase, axes),
    ]
    stock = systems.get("stock", {}).get("kernels", "")
    row.append(f"{ours['kernels']} ({stock})" if "kernels" in ours else "")
    for other in others:
        of = systems.get(f"{name}_default", {}) if OTHERS[other][1] else ours
        row.append(_over(of, other))
    return row


def _over(ours: dict, other: str) -> str:
    speedup = speedup_over(ours, other)
    if speedup is None:
        return ""
    return f"{speedup['median']:.2f}" if other == "itself" else markdown.speedup(speedup)


def loads_table(records: list[dict]) -> str:
    """Returns the table of sizes and shapes that no target is for."""
    lines = ["### Workloads A to H, 1 thread", ""]
    others = ("itself", "stock", *PEERS)
    head = ["workload", "rows touched, MB (L3)", "step", "ours ms", "x limit"]
    lines += markdown.head([*head, *(f"over {OTHERS[other][0]}" for other in others)])
    for record in records:
        axes, ids = record["axes"], record["ids"]
        what = [f"{axes['workload']}: {ids['summary']}", _touched(ids)]
        for cell in record["cells"]:
            ours = cell["systems"][OURS[cell["phase"]]]
            row = [*what, markdown.PHASES[cell["phase"]], markdown.milliseconds(ours)]
            row.append(x_limit(ours, cell["phase"], axes))
            row += [_over(ours, other) for other in others]
            lines.append(markdown.row(row))
    return "\n".join(lines)


def _touched(ids: dict) -> str:
    cache = f"{ids['l3_bytes'] / 2**20:.0f}" if ids["l3_bytes"] else "unknown"
    return f"{ids['touched_bytes'] / 2**20:.0f} ({cache})"


def x_limit(ours: dict, phase: str, axes: dict) -> str:
    """Returns the time over the limit loop's. A missed target is printed in bold."""
    if "x_limit" not in ours:
        return ""
    text = f"{ours['x_limit']['median']:.2f}"
    target = TARGETS.get(axes["workload"], {}).get(phase)
    if target is None or axes["threads"] != 1:
        return text
    return f"{text} ({target})" if float(text) <= target else f"**{text}** ({target})"


def serving_table(records: list[dict]) -> str:
    """Returns the table of small batches."""
    lines = ["### Serving: small batches, forward", ""]
    cells = [(record["axes"], cell) for record in records for cell in record["cells"]]
    names = list(dict.fromkeys(name for _, cell in cells for name in cell["systems"]))
    head = ["workload", "batch", "callers"] + [f"{n} p50 / p99 us" for n in names]
    head += [f"{n} calls/s" for n in names]
    lines += markdown.head(head)
    lines += [markdown.row(_serving_row(axes, cell, names)) for axes, cell in cells]
    return "\n".join(lines)


def _serving_row(axes: dict, cell: dict, names: list[str]) -> list[str]:
    systems = [cell["systems"][name] for name in names]
    row = [axes["workload"], str(axes["batch_size"]), str(cell["callers"])]
    row += [f"{s['p50_us']:.0f} / {s['p99_us']:.0f}" for s in systems]
    return row + [f"{s['calls_per_second']:,}" for s in systems]


def exports_table(records: list[dict]) -> str:
    """Returns the table of a whole model's exports, and of deltas that they apply meanwhile."""
    lines = ["### Exports of a click model: requests to a server, one caller", ""]
    lines += markdown.head(
        ["rows", "batch", "server", "deltas applied", "p50 us", "p99 us", "longest ms"]
    )
    for record in sorted(records, key=lambda r: r["axes"]["batch_size"]):
        axes = record["axes"]
        for cell in record["cells"]:
            for name, figures in cell["systems"].items():
                row = [axes["workload"], str(axes["batch_size"]), name]
                row += [str(figures.get("deltas", "-")), f"{figures['p50_us']:.0f}"]
                row += [f"{figures['p99_us']:.0f}", f"{figures['longest_us'] / 1e3:.1f}"]
                lines.append(markdown.row(row))
    return "\n".join(lines)


def stored_rows_table(records: list[dict]) -> str:
    """Returns the table of lookups of rows in fewer bytes: a line for each format and peer."""
    lines = ["### Rows in fewer bytes, forward, one thread", ""]
    others = {"float32": "x float32", "limit": "x limit", "torch_int8": "x torch's int8"}
    others |= {
        "torch_int4": "x torch's int4",
        "tbe_int8": "x TBE's int8",
        "tbe_int4": "x TBE's int4",
    }
    lines += markdown.head(["workload", "ids", "system", "ns an id", *others.values()])
    for record in records:
        axes, [cell] = record["axes"], record["cells"]
        for name, figures in cell["systems"].items():
            over = figures["speedup_over"]
            row = [axes["workload"], axes["ids"], name, f"{figures['ns_per_id']:.1f}"]
            row += [f"{over[n]['median']:.2f}" if n in over else "" for n in others]
            lines.append(markdown.row(row))
    return "\n".join(lines)


def one_table_table(records: list[dict]) -> str:
    """Returns the table of many columns beside one."""
    lines = ["### Many columns beside the same ids in one column of one table", ""]
    head = ["workload", "threads", "step", "columns ms", "one column ms", "columns take"]
    lines += markdown.head(head)
    for record in records:
        axes = record["axes"]
        for cell in record["cells"]:
            columns, one = cell["systems"]["columns"], cell["systems"]["one_table"]
            row = [axes["workload"], str(axes["threads"]), markdown.PHASES[cell["phase"]]]
            row += [markdown.milliseconds(columns), markdown.milliseconds(one)]
            row.append(f"{columns['of_one_table']['median']:.2f} of its time")
            lines.append(markdown.row(row))
    return "\n".join(lines)


def op_table(records: list[dict]) -> str:
    """Returns the table of the single ops."""
    lines = ["### Single ops against the stock ops that they replace", ""]
    head = ["op", "shape", "threads", "ours ms", "stock ms", "speedup"]
    lines += markdown.head(head)
    for record in records:
        axes = record["axes"]
        for cell in record["cells"]:
            ours, stock = cell["systems"]["fused"], cell["systems"]["stock"]
            shape = " x ".join(str(size) for size in cell["shape"])
            row = [axes["op"], shape, str(axes["threads"]), markdown.milliseconds(ours)]
            row += [markdown.milliseconds(stock), markdown.speedup(ours["speedup_over"]["stock"])]
            lines.append(markdown.row(row))
    return "\n".join(lines)


def sweep_table(records: list[dict]) -> str:
    """Returns the table of how much faster ours is at each size."""
    lines = ["### W1 with small tables, one size changed, 1 thread", ""]
    names = ["million ids a second", "", "fused, forward", "stock, forward", "over stock"]
    lines += markdown.head([*names, "fused, Adagrad", "stock, Adagrad", "over stock"])
    for record in records:
        points: dict[tuple, dict[str, dict]] = {}
        for cell in record["cells"]:
            points.setdefault((cell["axis"], cell["value"]), {})[cell["phase"]] = cell["systems"]
        for (axis, value), phases in points.items():
            row = [axis.replace("num_", "").replace("_", " "), f"{value:,}"]
            for phase in ("forward", "adagrad"):
                ours, stock = phases[phase][OURS[phase]], phases[phase]["stock"]
                row += [f"{each['million_ids_per_second']:.2f}" for each in (ours, stock)]
                row.append(markdown.speedup(ours["speedup_over"]["stock"]))
            lines.append(markdown.row(row))
    return "\n".join(lines)


def columns_table(records: list[dict]) -> str:
    """Returns the table of raw features."""
    lines = ["### From features to rows: `input_layer`", ""]
    head = ["features", "columns x rows", "threads", "`fe.feature_column.input_layer` ms"]
    names = {"stock": "stock", "stock_default": "stock at its defaults"}
    names |= {"do_fusion": "`do_fusion=True` in stock's `input_layer`"}
    names |= {"ragged": "RaggedTensors", "ragged_fast": "the same by fast lookup"}
    names |= {"keras": "Keras's Hashing and Embedding"}
    names |= {"fused_again": "itself"}
    systems = [record["cells"][0]["systems"] for record in records]
    names = {name: text for name, text in names.items() if any(name in of for of in systems)}
    lines += markdown.head([*head, *(f"over {name}" for name in names.values())])
    for record in records:
        axes, [cell] = record["axes"], record["cells"]
        ours = cell["systems"]["fused"]
        size = f"{axes['columns']} x {axes['batch_size']}"
        row = [axes["feature"], size, str(axes["threads"]), markdown.milliseconds(ours)]
        speedups = [ours["speedup_over"].get(name) for name in names]
        row += [markdown.speedup(speedup) if speedup else "" for speedup in speedups]
        lines.append(markdown.row(row))
    return "\n".join(lines)


def rows_table(records: list[dict]) -> str:
    """Returns the table of one user and many items."""
    lines = ["### One user and many items: `rows=` of `input_layer`", ""]
    head = ["columns of user + item", "items", "threads", "step", "`rows=` ms"]
    names = {"stock": "stock", "expanded": "ours without `rows=`", "rows_again": "itself"}
    lines += markdown.head([*head, *(f"over {name}" for name in names.values())])
    for record in records:
        axes = record["axes"]
        size = [f"{axes['user_columns']} + {axes['item_columns']}", str(axes["items"])]
        for cell in record["cells"]:
            ours = cell["systems"]["rows"]
            row = [*size, str(axes["threads"]), markdown.PHASES[cell["phase"]]]
            row.append(markdown.milliseconds(ours))
            row += [markdown.speedup(ours["speedup_over"][name]) for name in names]
            lines.append(markdown.row(row))
    return "\n".join(lines)


def programs_table(records: list[dict]) -> str:
    """Returns the table of whole programs under `fe.accelerate()`."""
    lines = ["### Programs under `fe.accelerate()`", ""]
    names = {"stock_default": "stock at its defaults", "stock": "stock"}
    names |= {"do_fusion": "`do_fusion=True`"}
    head = ["program", "columns x rows", "threads", "CPU ms of a step", "of it columns"]
    lines += markdown.head([*head, *(f"columns over {name}" for name in names.values())])
    for record in records:
        axes, [cell] = record["axes"], record["cells"]
        ours, rest = (cell["systems"][name] for name in ("accelerate", "rest"))
        size = f"{axes['columns']} x {axes['batch_size']}"
        of_columns = (ours["median_us"] - rest["median_us"]) / 1e3
        row = [axes["program"], size, str(axes["threads"]), markdown.milliseconds(ours)]
        row.append(f"{of_columns:.2f}")
        row += [markdown.speedup(ours["speedup_over"][name]) for name in names]
        lines.append(markdown.row(row))
    return "\n".join(lines)


def memory_table(records: list[dict]) -> str:
    """Returns the table of the peak memory of training."""
    lines = ["### Memory of training: peak over the bytes of tables and slots", ""]
    systems = {"stock": "stock", "ours": "`fe.train`"}
    lines += markdown.head(["workload", "optimizer", "tables and slots, MB", *systems.values()])
    for record in records:
        for cell in record["cells"]:
            row = [record["axes"]["workload"], cell["phase"], f"{cell['content_bytes'] / 1e6:.0f}"]
            row += [f"{cell['systems'][system]['over_content']:.2f}" for system in systems]
            lines.append(markdown.row(row))
    return "\n".join(lines)


def layers_table(records: list[dict]) -> str:
    """Returns the table of Keras's layers with a vocabulary."""
    lines = ["### Layers with a vocabulary", ""]
    lines += markdown.head(["layer", "tokens", "threads", "what", "ours ms", "stock ms", "speedup"])
    for record in records:
        axes = record["axes"]
        layer = [f"`{axes['keras']}.layers.{axes['layer']}`", f"{axes['tokens']:,}"]
        for cell in record["cells"]:
            ours, stock = cell["systems"]["fused"], cell["systems"]["stock"]
            row = [*layer, str(axes["threads"]), cell["phase"].replace("_", " ")]
            row += [markdown.milliseconds(ours), markdown.milliseconds(stock)]
            row.append(markdown.speedup(ours["speedup_over"]["stock"]))
            lines.append(markdown.row(row))
    return "\n".join(lines)


def keras_table(records: list[dict]) -> str:
    """Returns the table of steps of Keras 3's fit beside the session's."""
    lines = ["### A step of fit in Keras 3, as a multiple of the session's", ""]
    names = {"stock": "stock", "stock_fused_adagrad": "stock's layers, Adagrad of fe.keras"}
    names |= {"layers": "layers of fe.keras", "group": "`EmbeddingGroup`"}
    names |= {"group_model": "`fe.keras.group`"}
    head = ["program", "batch", "threads", "steps per execution", "clock", "session ms"]
    lines += markdown.head([*head, *names.values()])
    for record in records:
        axes, [cell] = record["axes"], record["cells"]
        systems = cell["systems"]
        keys = ("program", "batch_size", "threads", "steps_per_execution", "clock")
        row = [str(axes[key]) for key in keys] + [markdown.milliseconds(systems["session"])]
        row += [
            f"{systems[n]['times_session']['median']:.2f}" if n in systems else "" for n in names
        ]
        lines.append(markdown.row(row))
    return "\n".join(lines)


_TABLES: dict[str, Callable[[list[dict]], str]] = {
    "loads": loads_table,
    "columns": columns_table,
    "rows": rows_table,
    "programs": programs_table,
    "memory": memory_table,
    "layers": layers_table,
    "input": input_reports.table,
    "serialized": input_reports.rows_table,
    "training_files": input_reports.training_table,
    "parquet": input_reports.parquet_table,
    program_reports.MODE: program_reports.section,
    "keras": keras_table,
    "one_table": one_table_table,
    "sweep": sweep_table,
    "serving": serving_table,
    "exports": exports_table,
    distributed_reports.MODE: distributed_reports.table,
    distributed_reports.PLANNED_MODE: distributed_reports.planned_table,
    distributed_reports.WORKERS_MODE: distributed_reports.workers_table,
    "stored_rows": stored_rows_table,
    "op": op_table,
}


def _kind_of_run(axes: dict) -> str:
    return "loads" if axes["workload"] in workloads.LOADS else "workload"


def reports(records: Sequence[dict]) -> dict[str, str]:
    """Returns the tables of each kind that there are results of."""
    of_kind: dict[str, list[dict]] = {}
    for record in records:
        axes = record["axes"]
        if "op" in axes:
            of_kind.setdefault("op", []).append(record)
        elif "workload" in axes and "tables" not in axes:
            is_run = axes["mode"] in ("session", "function")
            kind = _kind_of_run(axes) if is_run else axes["mode"]
            of_kind.setdefault(kind, []).append(record)
    of_kind.get("serving", []).sort(key=lambda r: (r["axes"]["workload"], r["axes"]["batch_size"]))
    of_kind.get("loads", []).sort(key=lambda r: workloads.LOADS.index(r["axes"]["workload"]))
    tables = [workload_table(record) for record in of_kind.get("workload", [])]
    found = {"workload": "\n\n".join(tables)} if tables else {}
    return found | {kind: make(of_kind[kind]) for kind, make in _TABLES.items() if kind in of_kind}
