"""Links of the Markdown pages: files and headings that they lead to, as on a git host."""

import functools
import pathlib
import re
from collections.abc import Iterator

import notebooks

# Pages that are read; the site has them too (tools/site_hooks.py).
PAGES = (
    "*.md",
    "docs/**/*.md",
    "benchmarks/*.md",
    "tf_ops/*.md",
    "tests/*/*.md",
    "examples/*/*.ipynb",
)
# A code block or span, or the target of a link outside of both.
LINK = re.compile(
    r"^ *```.*?^ *```|(`+)[^`\n]+\1|(?<=\]\()([^)\s]+)(?=\))", re.DOTALL | re.MULTILINE
)
_HEADING = re.compile(r"^ *```.*?^ *```|^#+ +(.+?) *$", re.DOTALL | re.MULTILINE)
_MARKUP = re.compile(r"!?\[([^]]*)\]\([^)]*\)|[`*]")


def targets(text: str) -> Iterator[str]:
    """The targets of links in a page, without those in code.

    Args:
        text: Markdown.

    Yields:
        Targets, such as "training.md#layers".
    """
    yield from (match[2] for match in LINK.finditer(text) if match[2])


def text_of(page: pathlib.Path) -> str:
    """A page as Markdown.

    Args:
        page: A Markdown file or a notebook.

    Returns:
        Its text.
    """
    return notebooks.page_of(page) if page.suffix == ".ipynb" else page.read_text()


@functools.cache
def anchors(page: pathlib.Path) -> frozenset[str]:
    """The anchors that a git host and the site make of a page's headings."""
    found: list[str] = []
    for match in _HEADING.finditer(page.read_text()):
        if match[1]:
            text = _MARKUP.sub(lambda markup: markup[1] or "", match[1])
            anchor = re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")
            again = sum(
                re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", one) is not None for one in found
            )
            found.append(f"{anchor}-{again}" if again else anchor)
    return frozenset(found)


def dead_links(root: pathlib.Path) -> Iterator[str]:
    """Links of the pages of a repository that lead nowhere.

    Args:
        root: Its folder.

    Yields:
        A line for each.
    """
    for page in sorted({path for pattern in PAGES for path in root.glob(pattern)}):
        for target in targets(text_of(page)):
            why = "" if re.match(r"[a-z]+:", target) else _why_dead(page, target)
            if why:
                yield f"{page.relative_to(root)}: the link to {target} is dead: {why}"


def _why_dead(page: pathlib.Path, target: str) -> str:
    path, _, anchor = target.partition("#")
    found = (page.parent / path).resolve() if path else page
    if not found.exists():
        return "there is no such file"
    if anchor and found.suffix == ".md" and anchor not in anchors(found):
        return "no heading there has this name"
    return ""
