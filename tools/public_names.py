"""The public names of the package, and where they are defined: read from the source alone.

tests/packaging/test_names.py compares them with what `dir()` shows; check_repo.py refuses names
without a docstring; site_hooks.py makes a page of the API reference for each module.
"""

import ast
import functools
import itertools
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "python/fused_embedding"

# THE list of public modules, in the order of the API reference; "" is the package.
MODULES = (
    *("", "nn", "feature_column"),
    *("keras", "keras.layers", "keras.optimizers"),
    *("train", "data", "io", "raw_ops", "convert"),
    *("compat", "compat.v1", "compat.v1.nn", "compat.deeprec"),
    *("contrib", "contrib.layers"),
    *("planner", "one_embedding", "dynamicemb", "damo"),
    *("dynamicemb.planner", "dynamicemb.shard"),
)
# Names that a module makes when they are asked for, and the classes that have their docstrings.
MADE_ON_DEMAND = {
    "damo.Embedding": "doors.damo._Embedding",
    "feature_column.DenseFeatures": "columns.dense_features._DenseFeatures",
    "keras.layers.Embedding": "keras.layers._Embedding",
    "keras.layers.EmbeddingBag": "keras.layers._EmbeddingBag",
    "keras.layers.EmbeddingGroup": "keras.group_layer.GroupLayer",
    "keras.layers.IntegerLookup": "keras.preprocessing._IntegerLookup",
    "keras.layers.StringLookup": "keras.preprocessing._StringLookup",
    **{
        f"keras.optimizers.{name}": "keras.fused.fused_optimizers"
        for name in ("SGD", "Adagrad", "RMSprop", "Adam", "AdamW", "Ftrl")
    },
}


class Definition(NamedTuple):
    """Where a name is defined.

    Attributes:
        path: Dotted, without the package: "lookup.stock_signatures.embedding_lookup".
        kind: "class", "function", "value", "module", or "optimizer": one that a function makes.
        docstring: Its docstring; None: it has none.
    """

    path: str
    kind: str
    docstring: str | None

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, in one line."""
        return " ".join((self.docstring or "").strip().partition("\n\n")[0].split())


def names_of(module: str) -> list[str]:
    """The public names of a module, as `dir()` shows them.

    Args:
        module: One of MODULES.

    Returns:
        The names, sorted.
    """
    made = [full.rpartition(".")[2] for full in MADE_ON_DEMAND if _module_of(full) == module]
    return sorted([*_listed(module), *made])


def definition_of(module: str, name: str) -> Definition | None:
    """Finds the definition of a public name.

    Args:
        module: One of MODULES.
        name: One of its names.

    Returns:
        The definition; None if it cannot be found.
    """
    full = f"{module}.{name}".lstrip(".")
    if module == "keras.optimizers":
        return Definition(MADE_ON_DEMAND[full], "optimizer", _notes().get(name))
    if full in MODULES:
        return Definition(full, "module", ast.get_docstring(_tree(full)))
    if full in MADE_ON_DEMAND:
        module, _, name = MADE_ON_DEMAND[full].rpartition(".")
    return _find(module, name)


def docstring_of_module(module: str) -> str:
    """The docstring of a public module."""
    return ast.get_docstring(_tree(module)) or ""


def _notes() -> dict[str, str]:
    """What the docstrings of the optimizers are made of."""
    for node in _tree("keras.fused").body:
        if isinstance(node, ast.Assign) and _target(node) == "_NOTES":
            return dict(ast.literal_eval(node.value))
    return {}


def _module_of(full: str) -> str:
    return full.rpartition(".")[0]


@functools.cache
def _tree(module: str) -> ast.Module:
    path = PACKAGE.joinpath(*module.split(".")) if module else PACKAGE
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text())


def _listed(module: str) -> list[str]:
    """What `__all__` has; of raw_ops the list that it is made of."""
    wanted = "_NAMES" if module == "raw_ops" else "__all__"
    tree = _tree("ops.raw_ops" if module == "raw_ops" else module)
    for node in tree.body:
        if isinstance(node, ast.Assign) and _target(node) == wanted:
            return list(ast.literal_eval(node.value))
    return []


def _find(module: str, name: str) -> Definition | None:
    tree = _tree(module)
    for node, following in itertools.zip_longest(tree.body, tree.body[1:]):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            return Definition(f"{module}.{name}", kind, ast.get_docstring(node))
        if isinstance(node, ast.Assign | ast.AnnAssign) and _target(node) == name:
            return Definition(f"{module}.{name}", "value", _text(following))
    for source, original in _imports(tree, name):
        return _find(source, original)
    return None


def _target(node: ast.Assign | ast.AnnAssign) -> str:
    return ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])


def _imports(tree: ast.Module, name: str) -> Iterator[tuple[str, str]]:
    """The module that a name is imported from, and its name there."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fused_embedding."):
            source = (node.module or "").partition(".")[2]
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    yield source, alias.name


def _text(node: ast.stmt | None) -> str | None:
    """The string that follows a value and describes it."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return node.value.value if isinstance(node.value.value, str) else None
    return None
