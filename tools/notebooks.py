"""The notebooks of examples/notebooks: their code, and their pages of the site.

`python tools/notebooks.py NOTEBOOK` prints the code, for those who run it without Jupyter.
"""

import json
import pathlib
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "examples/notebooks"


def notebooks() -> list[pathlib.Path]:
    """All notebooks, in the order in which the site lists them."""
    first = {name: i for i, name in enumerate(("two_tower", "accelerate", "train_export_serve"))}
    return sorted(FOLDER.glob("*.ipynb"), key=lambda path: (first.get(path.stem, 9), path.stem))


def cells_of(notebook: pathlib.Path) -> Iterator[tuple[str, str]]:
    """The kind, "markdown" or "code", and the text of each cell."""
    for cell in json.loads(notebook.read_text())["cells"]:
        yield cell["cell_type"], "".join(cell["source"])


def code_of(notebook: pathlib.Path) -> str:
    """The code of all cells, as one program."""
    return "\n\n".join(text for kind, text in cells_of(notebook) if kind == "code") + "\n"


def page_of(notebook: pathlib.Path) -> str:
    """A notebook as Markdown."""
    cells = cells_of(notebook)
    blocks = [f"```python\n{text}\n```" if kind == "code" else text for kind, text in cells]
    return "\n\n".join(blocks) + "\n"


if __name__ == "__main__":
    sys.stdout.write(code_of(pathlib.Path(sys.argv[1])))
