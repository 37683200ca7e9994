"""Writes the tables of docs/performance.md, accelerate.md and others from the results.

python -m benchmarks.report.page

Text outside the marks "begin generated: BLOCK" and "end generated" stays as it is.
"""

import pathlib
import re

from absl import app

from benchmarks.harness import machine
from benchmarks.report import (
    claims,
    commands,
    core_reports,
    dense_reports,
    gpu_reports,
    keyed_reports,
    markdown,
    program_reports,
    quality_reports,
    results,
    tier_reports,
)

DOCS = machine.ROOT / "docs"
PAGE = DOCS / "performance.md"
PAGE_OF_PROGRAMS = DOCS / "accelerate.md"
PAGE_OF_QUALITY = DOCS / "compressed_tables.md"
END = "<!-- end generated -->"
BLOCK = re.compile(rf"<!-- begin generated: (\w+) -->\n.*?{END}", re.DOTALL)


def blocks_of_machine(folder: pathlib.Path) -> dict[str, str]:
    """Returns the blocks of a machine's page by name: its tables, and where they are from."""
    records = results.newest(folder)
    records = [record for record in records if not record["dirty"] and not record["unfit"]]
    of_core = results.newest(folder, results.CORE_SPEED_SCHEMA)
    return {
        "caption": f"{results.caption(records)}.",
        **dense_reports.reports(records),
        **keyed_reports.reports(records),
        **tier_reports.reports(records),
        **core_reports.reports(of_core),
        "commands": _commands(folder, records + of_core),
    }


def _commands(folder: pathlib.Path, records: list[dict]) -> str:
    lines = markdown.head(["result", "load", "command"])
    for record in records:
        path = f"../../benchmarks/results/{folder.name}/{record['file']}"
        link = f"[{results.benchmark(pathlib.Path(record['file']))}]({path})"
        command = commands.today(record["command"])
        lines.append(markdown.row([link, str(record.get("load_average", "")), f"`{command}`"]))
    return "\n".join(lines)


def pages() -> dict[pathlib.Path, dict[str, str]]:
    """Returns the blocks of each page."""
    found = {
        DOCS / "results" / f"{folder.name}.md": blocks_of_machine(folder)
        for folder in results.folders()
    }
    found |= {
        DOCS / "results" / f"{record['folder']}.md": gpu_reports.blocks(record)
        for record in results.of_gpus()
    }
    summary = {"overview": claims.overview(), "claims": claims.claims(), "losses": claims.losses()}
    of_programs = {"programs": program_reports.summary()}
    found |= {PAGE: summary, PAGE_OF_PROGRAMS: of_programs}
    return found | {PAGE_OF_QUALITY: quality_reports.blocks()}


def updated(text: str, blocks: dict[str, str]) -> str:
    """Returns a page with its blocks replaced.

    Raises:
        ValueError: The page lacks a block, or has one that no result is for.
    """
    names = BLOCK.findall(text)
    if sorted(names) != sorted(blocks):
        raise ValueError(
            f"the page has blocks {sorted(names)}, but there are results for {sorted(blocks)}: "
            "write or remove the lines <!-- begin generated: BLOCK --> and <!-- end generated -->"
        )
    return BLOCK.sub(lambda block: _block(block[1], blocks[block[1]]), text)


def _block(name: str, text: str) -> str:
    return f"<!-- begin generated: {name} -->\n{text}\n{END}"


def new_page(title: str, blocks: dict[str, str]) -> str:
    """Returns a page for a machine that has none: its blocks, a section each."""
    parts = [f"# {title}"]
    for name, text in blocks.items():
        parts += [f"## {name.replace('_', ' ').capitalize()}", _block(name, text)]
    return "\n\n".join(parts) + "\n"


def main(_: list[str]) -> None:
    """Writes the pages."""
    for path, blocks in pages().items():
        exists = path.exists()
        path.parent.mkdir(exist_ok=True)
        text = updated(path.read_text(), blocks) if exists else new_page(path.stem, blocks)
        path.write_text(text)
        print(path)


if __name__ == "__main__":
    app.run(main)
