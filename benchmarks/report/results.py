"""Writes and reads the JSON files of results."""

import json
import pathlib
import re

from benchmarks.harness import machine

SCHEMA = "fused_embedding.benchmark/1"
CORE_SPEED_SCHEMA = "fused_embedding.core_speed/1"
GPU_SCHEMA = "fused_embedding.gpu_benchmark/1"
GPU_STEPS_SCHEMA = "fused_embedding.gpu_steps/1"
# Fields that were added to records later, with what older files mean by leaving them out.
DEFAULTS = {"fitness": None, "unfit": False}
_DATE_AND_COMMIT = re.compile(r"^\d{4}-\d\d-\d\d-(?:[0-9a-f]{10}-|unknown-)?")


def record_of(module: str, axes: dict, cells: list[dict]) -> dict:
    """Returns a result of a program: what it measured, and where, when and by which command.

    Args:
        module: The program, such as "benchmarks.harness.run".
        axes: What was chosen; its keys say which table of a page the result is in.
        cells: What was measured, by phase.
    """
    where = {"machine": machine.describe(), "axes": axes, "cells": cells}
    return {"schema": SCHEMA, **machine.provenance(module), **where}


def write(record: dict, what: str, folder: str | None = None) -> None:
    """Writes one result to `folder`, or the machine's; `what` names the file."""
    path = pathlib.Path(folder) if folder else machine.folder(record["machine"])
    path.mkdir(parents=True, exist_ok=True)
    path /= f"{record['date'][:10]}-{record['commit']}-{what}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(path)


def load(path: pathlib.Path, schema: str = SCHEMA) -> dict:
    """Returns one result, with the name of its file.

    Raises:
        ValueError: The file has another schema.
    """
    record = _read(path)
    if record.get("schema") != schema:
        raise ValueError(
            f"{path} has schema {record.get('schema')}, but {schema} is read here; measure again"
        )
    return record


def _read(path: pathlib.Path) -> dict:
    return DEFAULTS | json.loads(path.read_text()) | {"file": path.name}


def benchmark(path: pathlib.Path) -> str:
    """Returns the name of the benchmark that a file is a result of: program and arguments.

    >>> benchmark(pathlib.Path("2026-11-21-d73f1342d8-W1-t1-b65536.json"))
    'W1-t1-b65536'
    """
    return _DATE_AND_COMMIT.sub("", path.stem)


def newest(folder: pathlib.Path, schema: str = SCHEMA) -> list[dict]:
    """Returns the newest result in `folder` of each benchmark with this schema, sorted by axes.

    Files without a schema are counts that tests printed, not benchmarks; they are left out.
    """
    names = ("workload", "op", "table", "tables", "threads", "batch_size", "mode", "num_keys")
    latest: dict[tuple, dict] = {}
    records = [r for r in map(_read, folder.glob("*.json")) if r.get("schema") == schema]
    for record in sorted(records, key=lambda r: r["date"]):
        axes = record.get("axes", {})
        key = tuple(str(axes.get(name, "")) for name in names)
        latest[(key, benchmark(pathlib.Path(record["file"])))] = record
    return [latest[key] for key in sorted(latest)]


def superseded(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the files in `folder` that are not the newest result of their benchmark.

    A file's name begins with its date; of one day, the record has the time.
    """

    def date(path: pathlib.Path) -> str:
        return json.loads(path.read_text()).get("date") or path.name

    kept: dict[str, pathlib.Path] = {}
    paths = sorted(folder.glob("*.json"), key=date)
    for path in paths:
        kept[benchmark(path)] = path
    return [path for path in paths if kept[benchmark(path)] != path]


def folders() -> list[pathlib.Path]:
    """Returns the folders of all machines with TensorFlow, the one measured last first."""

    def last(folder: pathlib.Path) -> str:
        return max(record["date"] for record in newest(folder))

    return sorted((each for each in _all_folders() if newest(each)), key=last)[::-1]


def of_gpus() -> list[dict]:
    """Returns the newest result of each GPU that has all sizes, with the name of its folder."""
    return [
        record | {"folder": folder.name}
        for folder in sorted(_all_folders())
        for record in newest(folder, GPU_SCHEMA)
        if benchmark(pathlib.Path(record["file"])) == "gpu"
    ]


def _all_folders() -> set[pathlib.Path]:
    return {path.parent for path in machine.RESULTS.glob("*/*.json")}


def last_of(workload: str, folder: str | None = None) -> dict:
    """Returns the newest result of a workload, in one folder or in those of all machines."""
    of_all = [pathlib.Path(folder)] if folder else folders()
    records = [record for each in of_all for record in newest(each)]
    return next(record for record in records if record["axes"].get("workload") == workload)


def caption(records: list[dict]) -> str:
    """Returns where the figures come from, in one line."""
    host = records[0]["machine"]
    versions = sorted({r["machine"]["tensorflow"] for r in records})
    commits = sorted({r["commit"] + (" (modified)" if r["dirty"] else "") for r in records})
    return (
        f"{host['cpu']}, {host['cores']} cores, TensorFlow {', '.join(versions)}, "
        f"commit {', '.join(commits)}, {max(r['date'] for r in records)[:10]}"
    )
