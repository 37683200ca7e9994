"""Stock's warm starts, which skip tables without a word, refuse them by name.

`tf.compat.v1.train.init_from_checkpoint` and `warm_start` replace initializers of variables. A
table has no initializer that a session runs, so it would stay empty while the dense variables
beside it are restored.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import tensorflow as tf

from fused_embedding.ops.tf_private import checkpoint_utils, warm_starting_util
from fused_embedding.variable.scope import EMBEDDING_VARIABLES


@functools.cache
def install() -> None:
    """Makes stock's warm starts check for tables; graphs without any notice nothing."""
    stock_init, stock_group = (
        checkpoint_utils._init_from_checkpoint,
        warm_starting_util._get_grouped_variables,
    )
    checkpoint_utils._init_from_checkpoint = _checked_init(stock_init)
    warm_starting_util._get_grouped_variables = _checked_group(stock_group)


def _checked_init(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def init(ckpt_dir_or_file: Any, assignment_map: Any) -> Any:
        if tables := _tables_by_name():
            is_mapping = isinstance(assignment_map, Mapping)
            pairs = list(assignment_map.items() if is_mapping else assignment_map)
            for name in _tables_to_init(tables, ckpt_dir_or_file, pairs):
                _refuse("tf.compat.v1.train.init_from_checkpoint", name)
            assignment_map = pairs
        return stock(ckpt_dir_or_file, assignment_map)

    return init


def _checked_group(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def group(vars_to_warm_start: Any) -> Any:
        for name in _tables_to_warm_start(_tables_by_name(), vars_to_warm_start):
            _refuse("tf.compat.v1.train.warm_start", name)
        return stock(vars_to_warm_start)

    return group


def _tables_by_name() -> dict[str, list[Any]]:
    """Parts of the tables of the default graph."""
    tables: dict[str, list[Any]] = {}
    for part in tf.compat.v1.get_collection(EMBEDDING_VARIABLES):
        tables.setdefault(part.partition.whole_name, []).append(part)
    return tables


def _name_of(value: Any, tables: dict[str, list[Any]]) -> str | None:
    """The table that `value` is, or is a part of, by object or by name."""
    first = value[0] if isinstance(value, list | tuple) and value else value
    for name, parts in tables.items():
        is_named = isinstance(first, str) and first.rstrip("/") == name
        if is_named or any(first is part for part in parts):
            return name
    # A partitioned table is an object of its own.
    whole = getattr(first, "name", None)
    return whole if isinstance(whole, str) and whole in tables else None


def _tables_to_init(
    tables: dict[str, list[Any]], path: Any, pairs: list[tuple[str, Any]]
) -> Iterator[str]:
    """Those that are named, and those of a scope that the checkpoint has as well."""
    for source, target in pairs:
        if name := _name_of(target, tables):
            yield name
        elif isinstance(target, str) and source.endswith("/"):
            scope = target[: target.rfind("/") + 1].lstrip("/")
            in_scope = [name for name in tables if name.startswith(scope)]
            yield from (
                name
                for name in in_scope
                if _has_table(path, source.lstrip("/") + name.removeprefix(scope))
            )


def _has_table(path: Any, name: str) -> bool:
    """Whether a checkpoint has a variable of this name, as a table or dense, in parts or not."""
    starts = tuple(name + suffix for suffix in ("-keys", "-files", "/part_"))
    return any(
        saved == name or saved.startswith(starts) for saved, _ in tf.train.list_variables(path)
    )


def _tables_to_warm_start(tables: dict[str, list[Any]], asked: Any) -> Iterator[str]:
    """Those that `vars_to_warm_start` selects, by stock's rules."""
    if isinstance(asked, str) or asked is None:
        trainable = {name: parts for name, parts in tables.items() if parts[0].trainable}
        yield from _matching(asked or "", trainable)
    for one in asked if isinstance(asked, list) else []:
        if isinstance(one, str):
            yield from _matching(one, tables)
        elif name := _name_of(one, tables):
            yield name


def _matching(pattern: str, tables: dict[str, list[Any]]) -> Iterator[str]:
    """The names that match a pattern by re.match, like those of tf.compat.v1.get_collection."""
    for name, parts in tables.items():
        if any(re.match(pattern, part.name) for part in parts):
            yield name


def _refuse(function: str, name: str) -> NoReturn:
    raise NotImplementedError(
        f"{function} was asked for the EmbeddingVariable {name!r}, but it replaces initializers, "
        "which tables do not have: leave the table out, and restore it in the session with "
        f"tf.compat.v1.train.Saver({{{name!r}: table}}).restore(session, path), in Scaffold's "
        "init_fn for instance (fe.train.Saver for a checkpoint of fe.train.Saver)"
    )
