"""The tables about examples that are parsed."""

from collections.abc import Sequence

from benchmarks.report import markdown

STOCK, OURS = "stock", "fused"


def table(records: Sequence[dict]) -> str:
    """Returns the table of `fe.io.parse_example` beside tf.io's."""
    lines = ["### Examples parsed", ""]
    head = ["examples", "strings", "MB", "threads", "CPU ms, stock", "CPU ms, ours"]
    lines += markdown.head([*head, "over stock", "over stock, wall", "over one thread, wall"])
    of_one = {
        cell["phase"]: cell["systems"][OURS]["wall"]["median_us"]
        for record in records
        if record["axes"]["threads"] == 1
        for cell in record["cells"]
    }
    for record in sorted(records, key=lambda record: record["axes"]["threads"]):
        lines += [_row(record["axes"], cell, of_one) for cell in record["cells"]]
    return "\n".join(lines)


def rows_table(records: Sequence[dict]) -> str:
    """Returns the table of the way from serialized examples to the rows of an input layer."""
    lines = ["### From examples to rows", ""]
    head = ["examples", "hashed", "threads", "CPU ms, stock", "parsed, then rows", "serialized"]
    lines += markdown.head([*head, "over stock", "over stock, wall", "over parsed"])
    for record in sorted(records, key=lambda record: record["axes"]["threads"]):
        axes = record["axes"]
        for cell in record["cells"]:
            systems = cell["systems"]
            ours = systems["serialized"]
            lines.append(
                markdown.row(
                    [
                        f"{axes['batch_size']}, {cell['data']}",
                        cell["features"],
                        str(axes["threads"]),
                        *(
                            markdown.milliseconds(systems[name])
                            for name in ("stock", "parsed", "serialized")
                        ),
                        markdown.speedup(ours["speedup_over"]["stock"]),
                        markdown.speedup(ours["wall"]["speedup_over"]["stock"]),
                        markdown.speedup(ours["speedup_over"]["parsed"]),
                    ]
                )
            )
    return "\n".join(lines)


def training_table(records: Sequence[dict]) -> str:
    """Returns the table of training steps that read and parse files."""
    lines = ["### Training steps from files of examples", ""]
    head = ["batch", "threads", "CPU ms, stock", "CPU ms, accelerated"]
    lines += markdown.head([*head, "over stock", "over stock, wall"])
    for record in sorted(records, key=lambda r: (r["axes"]["batch_size"], r["axes"]["threads"])):
        [cell] = record["cells"]
        stock, ours = (cell["systems"][name] for name in (STOCK, "accelerated"))
        of_wall = ours["wall"]["speedup_over"][STOCK]
        lines.append(
            markdown.row(
                [
                    *(str(record["axes"][axis]) for axis in ("batch_size", "threads")),
                    *(markdown.milliseconds(system) for system in (stock, ours)),
                    *(markdown.speedup(of) for of in (ours["speedup_over"][STOCK], of_wall)),
                ]
            )
        )
    return "\n".join(lines)


def parquet_table(records: Sequence[dict]) -> str:
    """Returns the table of batches from Parquet files, beside TFRecord files."""
    lines = ["### Batches from files", ""]
    names = ("stock", "parsed", "lists", "plain")
    head = ["rows", "features", "threads", "TFRecord, tf.io", "TFRecord, fe.io"]
    head += ["Parquet, lists", "Parquet, values", "lists over tf.io", "values over tf.io"]
    lines += markdown.head(head)
    for record in sorted(records, key=lambda record: record["axes"]["threads"]):
        axes = record["axes"]
        for cell in record["cells"]:
            systems = cell["systems"]
            ratios = [systems["lists"], systems["plain"]]
            lines.append(
                markdown.row(
                    [
                        str(axes["batch_size"]),
                        cell["phase"],
                        str(axes["threads"]),
                        *(markdown.milliseconds(systems[name]) for name in names),
                        *(markdown.speedup(of["speedup_over"]["stock"]) for of in ratios),
                    ]
                )
            )
    return "\n".join(lines)


def _row(axes: dict, cell: dict, of_one: dict[str, float]) -> str:
    stock, ours = (cell["systems"][name] for name in (STOCK, OURS))
    is_one = axes["threads"] == 1 or cell["phase"] not in of_one
    gain = "" if is_one else f"{of_one[cell['phase']] / ours['wall']['median_us']:.2f}"
    return markdown.row(
        [
            f"{axes['batch_size']}, {cell['data'].replace('_', ' ')}",
            cell["layout"],
            f"{cell['num_bytes'] / 1e6:.2f}",
            str(axes["threads"]),
            markdown.milliseconds(stock),
            markdown.milliseconds(ours),
            markdown.speedup(ours["speedup_over"][STOCK]),
            markdown.speedup(ours["wall"]["speedup_over"][STOCK]),
            gain,
        ]
    )
