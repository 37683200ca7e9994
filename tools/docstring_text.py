"""Docstrings of the package as the site shows them."""

import pathlib
import re

_EXAMPLE = re.compile(r"(?:\A|\n\n)(>>> .*?)(?=\n\n|\Z)", re.DOTALL)
_PAGE = re.compile(r"`?docs/([\w/]+)\.md(#[\w-]+)?`?")
# A description that begins with a comparison: Markdown would make it a quotation.
_COMPARISON = re.compile(r"^( +\*{0,2}\w+: )(>=? )", re.MULTILINE)
_DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"


def with_links(text: str) -> str:
    """Text with links to the pages that it names, such as "docs/training.md#layers".

    Args:
        text: Of a docstring. The links are for pages of the API reference, which are all in the
            folder `api`.

    Returns:
        Markdown.
    """
    return _PAGE.sub(_link, text)


def as_shown(docstring: str) -> str:
    """A docstring with links, and with its example as a section of Google's.

    An example (`>>>`) is a paragraph without a heading, as `doctest` reads it.

    Args:
        docstring: Clean: without the indentation of its source.

    Returns:
        Markdown, still in Google's sections.
    """
    text = _COMPARISON.sub(r"\1\\\2", with_links(docstring))
    return _EXAMPLE.sub(lambda match: _section(match[1]), text)


def _link(match: re.Match[str]) -> str:
    if not (_DOCS / f"{match[1]}.md").exists():
        return match[0]
    return f"[{match[1]}](../{match[1]}.md{match[2] or ''})"


def _section(example: str) -> str:
    lines = "\n".join(f"    {line}".rstrip() for line in example.splitlines())
    return f"\n\nExamples:\n{lines}"
