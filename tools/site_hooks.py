"""What MkDocs asks while it builds the site: pages of the API, notebooks, and links out of docs/.

The reference has a page for each module of tools/public_names.py, and each notebook of
examples/notebooks is a page. Files outside docs/ that pages link to are copied below
`repository/`, so that the site needs no repository beside it.
"""

import pathlib
import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Any

import notebooks
import page_links
import public_names
from docstring_text import with_links

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A link whose text is the name of the file, which a reader of the site does not know.
_NAMED_BY_FILE = re.compile(r"(?<!`)\[([\w/.-]+\.md)\]\(([^)\s]+)\)")
_DATE = re.compile(r"(?<=\| )(\d{4})-(\d\d)-(\d\d)(?= \|)")
_QUARTILES = re.compile(r"(?<=\| )(\d[\d.]*) \((\d[\d.]*)-(\d[\d.]*)\)(?= \|)")


def on_config(config: Any) -> Any:
    """Fills the tabs Notebooks and API of the navigation.

    Args:
        config: MkDocs's.

    Returns:
        It.
    """
    pages = [{_title(module): _page_of(module)} for module in public_names.MODULES]
    for tab in config.nav:
        if "Notebooks" in tab:
            tab["Notebooks"] = [_place_of(notebook) for notebook in notebooks.notebooks()]
        if "API" in tab:
            tab["API"] = [{"Overview": "api/index.md"}, *pages, {"Ops": "op_reference.md"}]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages of the API, the notebooks, and the files outside docs/ that pages link to.

    Args:
        files: Those of docs/.
        config: MkDocs's.

    Returns:
        All files.
    """
    from mkdocs.structure.files import File  # not before: tests have no MkDocs

    sources = [ROOT / "docs" / file.src_uri for file in files.documentation_pages()]
    pages = {"api/index.md": _index()}
    pages |= {_page_of(module): _reference(module) for module in public_names.MODULES}
    pages |= {_place_of(notebook): _notebook(notebook) for notebook in notebooks.notebooks()}
    for place, content in pages.items():
        files.append(File.generated(config, place, content=content))
    for path in _copied([path for path in sources if path.exists()]):
        files.append(File.generated(config, _copy_of(path), content=path.read_bytes()))
    return files


def _copied(pages: list[pathlib.Path]) -> list[pathlib.Path]:
    """The notebooks, and the files outside docs/ that they and `pages` link to."""
    copied = notebooks.notebooks()
    waiting = pages + copied
    while waiting:
        for target in _linked(waiting.pop()):
            if target not in copied and not target.is_relative_to(ROOT / "docs"):
                copied.append(target)
                waiting += [target] if target.suffix == ".md" else []
    return copied


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Leads links to files outside docs/ to their copies.

    Args:
        markdown: A page.
        page: MkDocs's.
        **kwargs: Not read.

    Returns:
        The page.
    """
    here = page.file.src_uri
    if here.startswith("api/"):
        return markdown
    source = _source_of(here)

    if here == "index.md":
        page.meta["hide"] = ["navigation", "toc"]

    def lead(target: str) -> str:
        path, mark, anchor = target.partition("#")
        found = (source.parent / path).resolve()
        if "://" in target or not path or not found.exists():
            return target
        if found.is_dir():
            found = _page_of_folder(found)
        if found == source and found.suffix == ".ipynb":  # the file that the page is made of
            return posixpath.relpath(_copy_of(found), posixpath.dirname(here)) + mark + anchor
        return posixpath.relpath(_place_of(found), posixpath.dirname(here) or ".") + mark + anchor

    def name(match: re.Match[str]) -> str:
        title = _heading_of((source.parent / match[2].partition("#")[0]).resolve())
        return f"[{title}]({match[2]})" if title else match[0]

    named = _NAMED_BY_FILE.sub(name, markdown)
    on_one_line = _QUARTILES.sub(r"\1&nbsp;(\2&#8209;\3)", named)
    return replace_links(_DATE.sub(r"\1&#8209;\2&#8209;\3", on_one_line), lead)


def on_page_content(html: str, page: Any, **kwargs: Any) -> str:
    """Gives signatures of classes that are made on demand their public names.

    Args:
        html: Of a page.
        page: MkDocs's.
        **kwargs: Not read.

    Returns:
        HTML.
    """
    for full, path in public_names.MADE_ON_DEMAND.items():
        module, _, name = full.rpartition(".")
        private = path.rpartition(".")[2]
        if page.file.src_uri == _page_of(module) and not private.startswith("fused_"):
            span = '<span class="{}">{}</span>'
            for kind in ("nf", "n"):
                html = html.replace(span.format(kind, private), span.format(kind, name))
    return html


def _heading_of(page: pathlib.Path) -> str:
    """The first heading of a page; "" for what is none."""
    text = page.read_text() if page.is_file() else ""
    return text.partition("\n")[0].removeprefix("# ") if text.startswith("# ") else ""


def _page_of_folder(folder: pathlib.Path) -> pathlib.Path:
    inside = folder / "README.md"
    return inside if inside.exists() else folder.parent / "README.md"


def on_post_page(output: str, page: Any, **kwargs: Any) -> str:
    """Replaces a script that the theme would load from another server by one of ours.

    Args:
        output: HTML.
        page: MkDocs's.
        **kwargs: Not read.

    Returns:
        HTML.
    """
    ours = posixpath.relpath("assets/file_worker.js", posixpath.dirname(page.file.dest_uri) or ".")
    return output.replace("https://unpkg.com/iframe-worker/shim", ours)


def on_post_template(output_content: str, **kwargs: Any) -> str:
    """The same in pages that are no document: 404.html.

    Args:
        output_content: HTML.
        **kwargs: Not read.

    Returns:
        HTML.
    """
    return output_content.replace("https://unpkg.com/iframe-worker/shim", "assets/file_worker.js")


def replace_links(markdown: str, lead: Callable[[str], str]) -> str:
    """Replaces the targets of links, but none in code.

    Args:
        markdown: A page.
        lead: Gives the new target of an old one.

    Returns:
        The page.
    """
    return page_links.LINK.sub(lambda match: lead(match[2]) if match[2] else match[0], markdown)


def _linked(page: pathlib.Path) -> Iterator[pathlib.Path]:
    """The files that a page links to."""
    for target in page_links.targets(page_links.text_of(page)):
        found = (page.parent / target.partition("#")[0]).resolve()
        if found.is_file():
            yield found


def _source_of(place: str) -> pathlib.Path:
    """The file in the repository that a page of the site is made of."""
    path = pathlib.PurePosixPath(place)
    if path.parts[0] == "notebooks":
        return notebooks.FOLDER / f"{path.stem}.ipynb"
    return ROOT.joinpath(*path.parts[1:]) if path.parts[0] == "repository" else ROOT / "docs" / path


def _place_of(path: pathlib.Path) -> str:
    """Where a file of the repository is on the site."""
    if path.is_relative_to(ROOT / "docs"):
        return path.relative_to(ROOT / "docs").as_posix()
    return f"notebooks/{path.stem}.md" if path.suffix == ".ipynb" else _copy_of(path)


def _copy_of(path: pathlib.Path) -> str:
    """Where the site has a copy of a file that is outside docs/."""
    return f"repository/{path.relative_to(ROOT).as_posix()}"


def _notebook(path: pathlib.Path) -> str:
    """The page of a notebook: its cells, after a link to its file."""
    title, _, rest = notebooks.page_of(path).partition("\n")
    return f"{title}\n\nThe notebook: [`{path.name}`]({path.name})\n{rest}"


# --- The API reference ---


def _title(module: str) -> str:
    return f"fe.{module}".rstrip(".")


def _page_of(module: str) -> str:
    return f"api/{module or 'fe'}.md"


def _index() -> str:
    lines = [
        "# API reference",
        "",
        "`import fused_embedding as fe`. Every public name is on one of these pages; other names",
        "may change.",
        "",
        "| module | |",
        "|---|---|",
    ]
    for module in public_names.MODULES:
        summary = " ".join(public_names.docstring_of_module(module).partition("\n\n")[0].split())
        lines.append(f"| [`{_title(module)}`]({module or 'fe'}.md) | {_cell(summary)} |")
    return "\n".join(
        [*lines, "| [ops](../op_reference.md) | Inputs, attrs and outputs of each op. |"]
    )


def _reference(module: str) -> str:
    """The page of a module: its names with a line each, then each of them."""
    names = public_names.names_of(module)
    found = {name: public_names.definition_of(module, name) for name in names}
    lines = [f"# {_title(module)}", "", with_links(public_names.docstring_of_module(module)), ""]
    lines += ["| name | |", "|---|---|"]
    sections: list[str] = []
    shown_paths: set[str] = set()
    for name, definition in sorted(found.items(), key=lambda item: _is_module(item[1])):
        full = f"{_title(module)}.{name}"
        if module == "raw_ops":
            lines.append(f"| [`{name}`](../op_reference.md#{name.lower()}) | op |")
        elif definition is None:
            raise ValueError(f"{full} is public, but tools/public_names.py finds no definition")
        elif definition.kind == "module":
            lines.append(f"| [`{full}`]({definition.path}.md) | {_cell(definition.summary)} |")
        else:
            shown = name.replace("_", "_<wbr>")  # a narrow column breaks a name there
            is_made = definition.kind == "optimizer"  # all by one function
            full = f"fe.{definition.path.replace('fused.', '')}" if is_made else full
            link = f"[<code>{shown}</code>](#{_anchor(full)})"
            lines.append(f"| {link} | {_cell(definition.summary)} |")
            sections += _section(full, definition) if definition.path not in shown_paths else []
            shown_paths.add(definition.path)
    return "\n".join([*lines, "", *sections])


def _is_module(definition: public_names.Definition | None) -> bool:
    return definition is not None and definition.kind == "module"


def _anchor(full: str) -> str:
    return full.lower().replace(".", "")


def _section(full: str, definition: public_names.Definition) -> list[str]:
    return [
        f'<a id="{_anchor(full)}"></a>',
        "",
        f"::: fused_embedding.{definition.path}",
        "    options:",
        f'      heading: "{full}"',
        f'      toc_label: "{full.rpartition(".")[2]}"',
        "",
    ]


def _cell(text: str) -> str:
    return with_links(text).replace("|", "\\|")
