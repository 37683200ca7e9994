"""What the site of `make docs` is made of: public names, links, docstrings, pages of the API."""

import json
import pathlib
import re
import types

import pytest
import tensorflow as tf

import check_repo
import docstring_text
import notebooks
import page_links
import public_names
import site_hooks

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = (ROOT / "mkdocs.yml").read_text()


@pytest.mark.parametrize(
    ("page", "result"), [("migration/torchrec.md", "pooled"), ("index.md", "")]
)
def test_the_example_of_a_page(page, result):
    text = (ROOT / "docs" / page).read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {}
    try:
        exec(compile(example, page, "exec"), names)
    finally:
        names["fe"].accelerate(False)
    if result:
        shapes = {name: rows.shape.as_list() for name, rows in names[result].items()}
        assert shapes == {"user": [2, 16], "seen": [2, 16]}
        assert tf.reduce_all(names[result]["seen"][1] == 0)


def test_each_page_is_in_the_navigation():
    listed = set(re.findall(r"[\w/-]+\.md", CONFIG[CONFIG.index("\nnav:") :]))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    numbered = {page for page in pages if re.match(r"decisions/\d", page)}  # in their index
    assert pages - numbered - {"op_reference.md"} == listed


def test_nothing_is_asked_of_another_server():
    assert "font: false" in CONFIG
    for path in (ROOT / "docs/assets").iterdir():
        assert "//" not in re.sub(r"^ *//.*|file://", "", path.read_text(), flags=re.MULTILINE)
    page = types.SimpleNamespace(file=types.SimpleNamespace(dest_uri="api/nn.html"))
    script = '<script src="https://unpkg.com/iframe-worker/shim"></script>'
    assert (
        site_hooks.on_post_page(script, page) == '<script src="../assets/file_worker.js"></script>'
    )
    assert 'src="assets/file_worker.js' in site_hooks.on_post_template(script)


def test_links_in_code_are_no_links():
    text = "[a](a.md) `[b](b.md)`\n```python\n[c](c.md)\n```\n![d](d.svg) ``[e](e.md)``"
    assert list(page_links.targets(text)) == ["a.md", "d.svg"]
    assert site_hooks.replace_links(text, str.upper) == text.replace("a.md", "A.MD").replace(
        "d.svg", "D.SVG"
    )


def test_anchors_are_those_of_a_git_host(tmp_path):
    page = tmp_path / "a.md"
    page.write_text(
        "# `fe.nn`, and [more](b.md)!\n```\n# no heading\n```\n## A & B\n## A & B\n# x_y\n"
    )
    assert page_links.anchors(page) == {"fenn-and-more", "a--b", "a--b-1", "x_y"}


@pytest.mark.parametrize(
    ("place", "link", "want"),
    [
        ("training.md", "optimizers.md#keras", "optimizers.md#keras"),
        ("training.md", "../benchmarks/README.md", "repository/benchmarks/README.md"),
        ("decisions/README.md", "../../tf_ops/README.md", "../repository/tf_ops/README.md"),
        ("training.md", "../benchmarks/results", "repository/benchmarks/README.md"),
        ("repository/README.md", "docs/gpu.md", "../gpu.md"),
        ("repository/tf_ops/README.md", "../docs/gpu.md#why", "../../gpu.md#why"),
        ("training.md", "#layers", "#layers"),
        ("index.md", "../examples/notebooks/two_tower.ipynb", "notebooks/two_tower.md"),
        ("notebooks/two_tower.md", "../../docs/training.md#keras", "../training.md#keras"),
        (
            *("notebooks/two_tower.md", "two_tower.ipynb"),
            "../repository/examples/notebooks/two_tower.ipynb",
        ),
        ("training.md", "https://a.example/b.md", "https://a.example/b.md"),
    ],
)
def test_links_out_of_the_folder_lead_to_copies(place, link, want):
    page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri=place), meta={})
    assert site_hooks.on_page_markdown(f"[x]({link})", page) == f"[x]({want})"


def test_pages_are_named_by_their_headings_and_figures_stay_on_one_line():
    page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri="training.md"), meta={})
    text = "[gpu.md](gpu.md#x) [a.md](a.md) `[gpu.md](gpu.md)`"
    assert (
        site_hooks.on_page_markdown(text, page)
        == "[GPUs](gpu.md#x) [a.md](a.md) `[gpu.md](gpu.md)`"
    )
    row = "| forward | 2.27 (1.96-2.58) | 6.46 |"
    assert "| 2.27&nbsp;(1.96&#8209;2.58) |" in site_hooks.on_page_markdown(row, page)
    date = site_hooks.on_page_markdown("| [x](gpu.md) | 2026-11-20 | holds |", page)
    assert date == "| [x](gpu.md) | 2026&#8209;11&#8209;20 | holds |"


@pytest.mark.parametrize("module", public_names.MODULES)
def test_the_reference_shows_each_name(module):
    page = site_hooks._reference(module)
    for name in public_names.names_of(module):
        found = public_names.definition_of(module, name)
        if module == "raw_ops":
            assert f"](../op_reference.md#{name.lower()})" in page
        elif found.kind == "optimizer":
            assert f"| {found.summary} |" in page
        elif found.kind == "module":
            assert f"({found.path}.md)" in page
        else:
            full = f"fe.{module}.{name}".replace("..", ".")
            assert (
                f'::: fused_embedding.{found.path}\n    options:\n      heading: "{full}"' in page
            )


def test_the_optimizers_are_shown_once():
    page = site_hooks._reference("keras.optimizers")
    assert page.count(":::") == 1
    assert page.count("(#fekerasfused_optimizers)") == 6
    assert '<a id="fekerasfused_optimizers">' in page


def test_signatures_have_public_names():
    page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri="api/keras.layers.md"))
    html = '<span class="nf">GroupLayer</span> <span class="nf">_Embedding</span>'
    assert site_hooks.on_page_content(html, page) == (
        '<span class="nf">EmbeddingGroup</span> <span class="nf">Embedding</span>'
    )
    page.file.src_uri = "api/keras.optimizers.md"
    function = '<span class="nf">fused_optimizers</span>'
    assert site_hooks.on_page_content(function, page) == function
    page.file.src_uri = "api/train.md"
    assert site_hooks.on_page_content(html, page) == html


def test_the_tab_of_the_reference_has_each_module():
    config = types.SimpleNamespace(nav=[{"Home": "index.md"}, {"API": []}])
    pages = site_hooks.on_config(config).nav[1]["API"]
    assert pages[0] == {"Overview": "api/index.md"}
    assert [next(iter(page)) for page in pages[1:-1]] == [
        f"fe.{module}".rstrip(".") for module in public_names.MODULES
    ]
    for module in public_names.MODULES:
        assert f"]({module or 'fe'}.md)" in site_hooks._index()


def test_the_tab_of_the_notebooks_has_each():
    config = types.SimpleNamespace(nav=[{"Notebooks": []}])
    pages = site_hooks.on_config(config).nav[0]["Notebooks"]
    assert pages[0] == "notebooks/two_tower.md"
    assert len(pages) == len(notebooks.notebooks()) >= 3


def test_a_notebook_is_a_page(tmp_path):
    notebook = tmp_path / "a.ipynb"
    cells = [
        {"cell_type": "markdown", "source": ["# A\n", "[b](b.md)"]},
        {"cell_type": "code", "source": ["x = y[0](z)\n", "x"]},
    ]
    notebook.write_text(json.dumps({"cells": cells}))
    assert site_hooks._notebook(notebook) == (
        "# A\n\nThe notebook: [`a.ipynb`](a.ipynb)\n[b](b.md)\n\n```python\nx = y[0](z)\nx\n```\n"
    )
    assert notebooks.code_of(notebook) == "x = y[0](z)\nx\n"


def test_dead_links_of_a_notebook_are_found(tmp_path):
    folder = tmp_path / "examples/notebooks"
    folder.mkdir(parents=True)
    cell = {"cell_type": "markdown", "source": ["[a](a.md)"]}
    (folder / "a.ipynb").write_text(json.dumps({"cells": [cell]}))
    (dead,) = page_links.dead_links(tmp_path)
    assert dead.startswith("examples/notebooks/a.ipynb: the link to a.md is dead")


def test_docstrings_as_shown():
    text = (
        "Does a. docs/training.md#layers, docs/nowhere.md.\n\nArgs:\n    a: >= 0.\n\n"
        ">>> a(1)\n...  2\n3"
    )
    assert docstring_text.as_shown(text) == (
        "Does a. [training](../training.md#layers), docs/nowhere.md.\n\nArgs:\n    a: \\>= 0.\n\n"
        "Examples:\n    >>> a(1)\n    ...  2\n    3"
    )


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with one public function, and the page of no op."""
    folder = tmp_path / "python/fused_embedding"
    (folder / "ops").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/op_reference.md").write_text("## Known\n")
    monkeypatch.setattr(public_names, "PACKAGE", folder)
    monkeypatch.setattr(public_names, "MODULES", ("", "raw_ops"))
    monkeypatch.setattr(public_names, "MADE_ON_DEMAND", {})
    monkeypatch.setattr(check_repo, "ROOT", tmp_path)
    public_names._tree.cache_clear()
    yield folder
    public_names._tree.cache_clear()


@pytest.mark.parametrize(
    ("definition", "is_documented"),
    [
        ('def f():\n    """Does."""\n', True),
        ("def f():\n    pass\n", False),
        ('class f:\n    """Is."""\n', True),
        ("class f:\n    pass\n", False),
        ('f: int = 1\n"""Number."""\n', True),
        ("f = 1\n", False),
        ("", False),
    ],
)
def test_a_public_name_without_a_docstring_is_refused(package, definition, is_documented):
    (package / "ops/raw_ops.py").write_text('_NAMES = ("Known", "New")\n')
    (package / "raw_ops.py").touch()
    (package / "nn.py").write_text("from fused_embedding.ops.a import f as g\n")
    (package / "__init__.py").write_text('__all__ = ["g"]\nfrom fused_embedding.nn import g\n')
    (package / "ops/a.py").write_text(definition)
    found = list(check_repo.public_name_is_undocumented())
    refused = {line.partition(":")[0] for line in found}
    assert refused == {"fused_embedding.raw_ops.New"} | (
        set() if is_documented else {"fused_embedding.g"}
    )
