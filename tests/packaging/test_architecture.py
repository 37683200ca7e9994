"""The paths and names in the guides to the code, and the paths in all pages."""

import pathlib
import re

import pytest

import import_rules

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDES = {
    "docs/architecture.md": lambda text: text,
    "tf_ops/README.md": lambda text: text[text.index("## Adding a thing") :],
}
# Folders that a guide writes paths from.
FOLDERS = ("", "python/fused_embedding", "tf_ops", "docs")
PATH = re.compile(
    r"(?<![\w./])(?:[\w.{,}/-]*\w(?:\.(?:py|h|cc|md|txt|\{h,cc\})\b|/(?=[`:\s,;]))"
    r"|(?:benchmarks|core|decisions|docs|kernels|ops|python|tests|tf_ops)/[\w/]+(?![\w.{*]))"
)
NAME_IN_PATH = re.compile(r"`(\w+)`(?:\(\.\.\.\))? (?:in|of) `([\w./]+\.(?:py|h|cc))`")
PLACEHOLDERS = re.compile(r"\b[A-Z]{4,}|(?<=_)[A-Z]{4,}")


def text_of(guide):
    return GUIDES[guide]((ROOT / guide).read_text())


def found(path):
    """The files and folders that a guide means."""
    pattern = PLACEHOLDERS.sub("*", path.rstrip("/").removeprefix("../"))
    if not pattern.endswith("}") and "." not in pattern:  # a folder, a stem, a number of a decision
        pattern += "*"
    patterns = [pattern.replace("{h,cc}", suffix) for suffix in ("h", "cc")]
    matches = [[m for f in FOLDERS for m in (ROOT / f).glob(one)] for one in patterns]
    return [] if not all(matches) else [match for of_one in matches for match in of_one]


def paths_in(text):
    return sorted({match[0] for match in PATH.finditer(text)})


@pytest.mark.parametrize("guide", GUIDES)
def test_paths_exist(guide):
    paths = paths_in(text_of(guide))
    assert len(paths) > 10
    assert [path for path in paths if not found(path)] == []


def test_a_wrong_path_is_noticed():
    text = "`lookup/run.py`, `lookup/nowhere.py` -> core/table/nothing: `nowhere/`, decisions/026"
    paths = paths_in(text)
    wrong = ["core/table/nothing", "lookup/nowhere.py", "nowhere/"]
    assert paths == sorted([*wrong, "decisions/026", "lookup/run.py"])
    assert [path for path in paths if not found(path)] == wrong


@pytest.mark.parametrize("guide", GUIDES)
def test_names_exist(guide):
    named = NAME_IN_PATH.findall(text_of(guide))
    assert named or guide == "docs/architecture.md"
    for name, path in named:
        assert any(re.search(rf"\b{name}\b", file.read_text()) for file in found(path)), (
            name,
            path,
        )


# Not the changelog, nor the decisions: they tell what was where when they were written.
FOLDERS_OF_PAGES = ("docs", "docs/migration", "docs/results")
PAGES = [*(path for f in FOLDERS_OF_PAGES for path in (ROOT / f).glob("*.md")), ROOT / "README.md"]
PATH_OF_PAGE = re.compile(
    r"(?<![\w./-])(?:python/)?(?:bazel|benchmarks|docs|examples|fused_embedding|tests|tf_ops|tools)"
    r"/[\w./*-]*\w"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_of_a_page_exist(page):
    paths = sorted({PLACEHOLDERS.sub("*", p) for p in PATH_OF_PAGE.findall(page.read_text())})
    folders = (ROOT, ROOT / "python")
    assert [p for p in paths if not any([*f.glob(p), *f.glob(f"{p}*")] for f in folders)] == []


def test_each_room_is_described():
    text = text_of("docs/architecture.md")
    for rooms in import_rules.ROOMS:
        for room in rooms:
            is_folder = (ROOT / "python/fused_embedding" / room).is_dir()
            assert not room or not is_folder or f"`{room}/`" in text, room


def test_each_decision_is_in_the_index():
    folder = ROOT / "docs/decisions"
    index = (folder / "README.md").read_text()
    listed = re.findall(
        r"^\| \[(\d{3})\]\((\S+)\) \| \d{4}-\d\d-\d\d \| \S.* \| \S.* \|$", index, re.M
    )
    names = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert [name for _, name in listed] == names
    assert [number for number, _ in listed] == [name[:3] for name in names]
