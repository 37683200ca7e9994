"""The packages that only the demo and the plots of other commands need."""

import importlib
import importlib.util
from typing import Any

from fused_embedding import distribution

# What the extra `demo` of the distribution brings, by import name.
PACKAGES = ("matplotlib", "sklearn", "tqdm")


def load(name: str) -> Any:
    """Imports the module `name` of one of `PACKAGES`.

    Raises:
        ImportError: If it is not installed; the message names the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"this needs the Python package {name.partition('.')[0]}, which does not import "
            f"({error}); install the demo's packages: {distribution.command_for_extra('demo')}"
        ) from error


def is_installed(name: str) -> bool:
    """Whether the package `name` is there, without importing it."""
    return importlib.util.find_spec(name) is not None
