"""Lookups: what was written (signatures), what it is (ids, tables), and the ops that do it."""

from typing import NoReturn

from fused_embedding import moved

# Of the module of this name that 0.1 had.
_OF_OLD_MODULE = ("BEST", "LOOKUPS", "restore_rank", "run_group", "run_lookup")


def __getattr__(name: str) -> NoReturn:
    if name in _OF_OLD_MODULE:
        moved.refuse(f"lookup.{name}", f"lookup.run.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
