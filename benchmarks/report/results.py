"""Writes and reads the JSON files of results."""

import json
import pathlib

from benchmarks.harness import machine

SCHEMA = "fused_embedding.benchmark/1"


def write(record: dict, what: str, folder: str | None = None) -> None:
    """Writes one result to `folder`, or the machine's; `what` names the file."""
    path = pathlib.Path(folder) if folder else machine.folder(record["machine"])
    path.mkdir(parents=True, exist_ok=True)
    path /= f"{record['date'][:10]}-{record['commit']}-{what}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(path)


def load(path: pathlib.Path) -> dict:
    """Returns one result.

    Raises:
        ValueError: The file has another schema.
    """
    record = json.loads(path.read_text())
    if record.get("schema") != SCHEMA:
        raise ValueError(
            f"{path} has schema {record.get('schema')}, but {SCHEMA} is read here; measure again"
        )
    return record


def newest(folder: pathlib.Path) -> list[dict]:
    """Returns the newest result in `folder` for each set of axes, sorted by axes.

    Files without a schema are counts that tests printed, not benchmarks; they are left out.
    """
    latest: dict[tuple, dict] = {}
    paths = [path for path in folder.glob("*.json") if "schema" in json.loads(path.read_text())]
    for record in sorted((load(path) for path in paths), key=lambda r: r["date"]):
        axes = record["axes"]
        names = ("workload", "op", "table", "tables", "threads", "batch_size", "mode", "num_keys")
        latest[tuple(str(axes.get(name, "")) for name in names)] = record
    return [latest[key] for key in sorted(latest)]


def folders() -> list[pathlib.Path]:
    """Returns the folders of all machines, the one measured last first."""

    def last(folder: pathlib.Path) -> str:
        return max(record["date"] for record in newest(folder))

    return sorted({path.parent for path in machine.RESULTS.glob("*/*.json")}, key=last)[::-1]


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
