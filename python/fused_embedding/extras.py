"""The packages that only a part of this package needs, by the extra that brings them."""

import importlib
import importlib.util
from typing import Any

from fused_embedding import distribution

# What the extra `demo` of the distribution brings, by import name.
PACKAGES = ("matplotlib", "scipy", "tqdm")


def load(name: str, extra: str = "demo") -> Any:
    """Imports the module `name` of a package of an extra.

    Raises:
        ImportError: If it is not installed; the message names the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"this needs the Python package {name.partition('.')[0]}, which does not import "
            f"({error}); install the extra {extra!r}: {distribution.command_for_extra(extra)}"
        ) from error


def is_installed(name: str) -> bool:
    """Whether the package `name` is there, without importing it."""
    return importlib.util.find_spec(name) is not None
