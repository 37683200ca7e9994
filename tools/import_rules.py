"""What modules of the package may import: rooms below theirs, and nothing in a circle."""

import ast
import pathlib
from collections.abc import Iterator

# The rooms of the package from bottom to top; those in one line do not import each other.
ROOMS = (
    ("distribution",),
    ("extras", "moved"),
    ("terminal",),
    ("ops",),
    ("variable",),
    ("input", "lookup", "checkpoint"),
    ("train", "serving", "convert", "planner"),
    ("keras",),
    ("columns", "doors"),
    ("contrib", "inspection", "acceleration"),
    # Faces: they give rooms the names that users write.
    ("damo", "data", "dynamicemb", "feature_column", "io", "nn", "one_embedding", "raw_ops"),
    ("compat",),
    ("",),  # __init__.py and __main__.py
    ("demo",),
)

Imports = dict[
    str, dict[str, int]
]  # of each module: the modules that it imports, and in which line


def _name_of(path: pathlib.Path) -> str:
    """The name of a module without the package: "keras.layers" of keras/layers.py."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _for_type_checkers(tree: ast.Module) -> set[ast.AST]:
    """What is in the body of `if TYPE_CHECKING`, and is not imported."""
    tests = (node for node in ast.walk(tree) if isinstance(node, ast.If))
    bodies = (node for node in tests if ast.unparse(node.test) == "TYPE_CHECKING")
    return {inner for node in bodies for inner in ast.walk(node)}


def imported(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Full names that a file imports, modules or what is in them, with their lines."""
    skipped = _for_type_checkers(tree)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def imports_of(package: pathlib.Path) -> Imports:
    """What each module of a package imports from it; lazy imports too."""
    paths = {_name_of(path.relative_to(package)): path for path in package.rglob("*.py")}
    paths.pop("_build_info", None)  # written by the build
    imports: Imports = {name: {} for name in paths}
    for importer, path in paths.items():
        for full_name, line in imported(ast.parse(path.read_text())):
            root, _, name = full_name.partition(".")
            if root == package.name:
                module = name if name in paths else name.rpartition(".")[0]
                imports[importer].setdefault(module, line)
    return imports


def _going_up(imports: Imports) -> Iterator[str]:
    floors = {room: floor for floor, rooms in enumerate(ROOMS) for room in rooms}
    floors["__main__"] = floors[""]
    for name, imported in imports.items():
        room = name.partition(".")[0]
        if room not in floors:
            yield f"fused_embedding.{name}: {room} is no room of ROOMS in tools/import_rules.py"
            continue
        rooms = {other: other.partition(".")[0] for other in imported}
        for other, other_room in rooms.items():
            is_below = floors.get(other_room, len(ROOMS)) < floors[room]
            if other_room != room and not is_below:
                title = other or "the whole package"
                yield f"fused_embedding.{name}:{imported[other]}: imports {title}, not below it"


def _circles(imports: Imports) -> Iterator[str]:
    finished: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> Iterator[str]:
        if name in path:
            circle = [*path[path.index(name) :], name]
            yield f"fused_embedding: a circle of imports: {' -> '.join(circle)}"
        elif name not in finished:
            for other in imports.get(name, {}):
                yield from visit(other, (*path, name))
            finished.add(name)

    for name in imports:
        yield from visit(name, ())


def violations(package: pathlib.Path) -> Iterator[str]:
    """What breaks the order of ROOMS, which docs/architecture.md describes."""
    imports = imports_of(package)
    yield from _going_up(imports)
    yield from _circles(imports)
