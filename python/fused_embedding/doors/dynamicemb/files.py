"""Dump and load of tables, in files that `np.fromfile` reads.

    PATH/model/TABLE_emb_keys.rank_0.world_size_1           [n] int64
    PATH/model/TABLE_emb_values.rank_0.world_size_1         [n, dim] float32
    PATH/model/TABLE_emb_scores.rank_0.world_size_1         [n] int64 frequencies, of LFU tables
    PATH/model/TABLE_opt_SLOT_keys.rank_0.world_size_1      [n] int64, each optimizer state likewise
    PATH/model/TABLE_opt_SLOT_values.rank_0.world_size_1    [n, width] float32
    PATH/model/TABLE_opt_args.json                          what the states are

With a plan there are files of each of its ranks, with the rows of the partitions on that rank.
TABLE and SLOT are names with "/" and other characters that files do not have as `%2F`.
"""

import glob
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import tensorflow as tf

from fused_embedding.checkpoint.arrays import check_fits, read_arrays, replace_arrays
from fused_embedding.checkpoint.new_folder import new_folder
from fused_embedding.planner.plan import ShardingPlan
from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.partitions import PartitionedEmbeddingVariable
from fused_embedding.variable.scope import EMBEDDING_VARIABLES

_COLLECTION = "model"  # the one that there is: DynamicEmb's name for the model that was given
TableNames = Mapping[str, Sequence[str]] | Sequence[str] | None
Parts = list[EmbeddingVariable]


class _Slot(NamedTuple):
    """What an optimizer keeps beside each value: `name`, numbers a row, what they start as."""

    name: str
    width: int
    initial: float


# --- Which tables ---


def _variables_of(model: Any) -> list[Any]:
    if isinstance(model, tf.Graph):
        return model.get_collection(EMBEDDING_VARIABLES)
    try:
        return list(tf.train.TrackableView(model).descendants())
    except (AttributeError, TypeError, ValueError) as error:
        raise TypeError(
            f"model must be what tf.train.Checkpoint takes (a tf.Module, a Keras model, a table) "
            f"or a tf.Graph, got {model!r}"
        ) from error


def _tables_of(model: Any) -> dict[str, Parts]:
    """All partitions of the tables of a model, by the tables' names."""
    found: dict[str, dict[int, EmbeddingVariable]] = {}
    for variable in _variables_of(model):
        is_partitioned = isinstance(variable, PartitionedEmbeddingVariable)
        for part in list(variable) if is_partitioned else [variable]:
            if isinstance(part, EmbeddingVariable):
                parts = found.setdefault(part.partition.whole_name, {})
                if parts.setdefault(part.partition.index, part) is not part:
                    raise ValueError(
                        f"the model has two tables of the name {part.partition.whole_name!r}, "
                        "after which files are named; give each its own"
                    )
    if not found:
        raise ValueError(f"model has no EmbeddingVariables, got {model!r}; track them in it")
    return {name: [parts[index] for index in sorted(parts)] for name, parts in found.items()}


def _selected(model: Any, table_names: TableNames) -> dict[str, Parts]:
    tables = _tables_of(model)
    if table_names is None:
        return tables
    if isinstance(table_names, Mapping):
        if set(table_names) != {_COLLECTION}:
            raise ValueError(
                f"table_names has the collections {sorted(table_names)}, but there is one: "
                f"{_COLLECTION!r}"
            )
        table_names = table_names[_COLLECTION]
    if isinstance(table_names, str):
        raise TypeError(f"table_names must be a list or a dict of one, got {table_names!r}")
    unknown = sorted(set(table_names) - set(tables))
    if unknown:
        raise ValueError(f"model has no tables {unknown}; it has {sorted(tables)}")
    return {name: tables[name] for name in table_names}


def _ranks_of_parts(pg: ShardingPlan | None, tables: dict[str, Parts]) -> dict[str, list[Parts]]:
    """The partitions of each table on each rank."""
    if pg is None:
        return {name: [parts] for name, parts in tables.items()}
    if not isinstance(pg, ShardingPlan):
        raise ValueError(
            f"pg must be a plan of fe.planner or None, got {pg!r}: there are no process groups"
        )
    found = {}
    for name, parts in tables.items():
        ranks = pg.ranks(name)
        if len(ranks) != len(parts):
            raise ValueError(
                f"the table {name!r} has {len(parts)} partitions, but pg is a plan with "
                f"{len(ranks)}; make it with plan.partitioner({name!r})"
            )
        found[name] = [
            [part for part, owner in zip(parts, ranks, strict=True) if owner == rank]
            for rank in range(pg.world_size)
        ]
    return found


# --- Dump ---


def dump(
    path: str, model: Any, table_names: TableNames = None, optim: bool = False, pg: Any = None
) -> None:
    """Writes tables and their optimizer states as files of plain numbers.

    Tables are copied in memory one at a time. Versions, counts of filters, and the parameters of
    first values are not written: use tf.train.Checkpoint to continue training with the same bits.

    Args:
        path: A folder that does not exist or is empty.
        model: The object with the tables: anything that tf.train.Checkpoint tracks, such as a
            tf.Module, a Keras model or a table; or a tf.Graph, in `with session.as_default()`.
        table_names: Names of the tables to write, or `{"model": names}`; None: all.
        optim: Whether to write optimizer states.
        pg: A plan: each of its ranks has files with the rows of its partitions. None: one rank has
            all rows. In both cases this process writes all files.

    Raises:
        FileExistsError: If `path` is not empty.
        ValueError: If the model has no such tables, or values are float64, which the files do not
            support, or `pg` is no plan or one of other partitions.
        TypeError: If `model` is not such an object.
    """
    tables = _selected(model, table_names)
    ranks = _ranks_of_parts(pg, tables)
    for name, parts in tables.items():
        if parts[0].dtype == tf.float64:
            raise ValueError(
                f"the table {name!r} is float64, of which files of float32 would lose digits; use "
                "tf.train.Checkpoint"
            )
    with new_folder(path) as unfinished:
        os.mkdir(os.path.join(unfinished, _COLLECTION))
        for name, parts in tables.items():
            stem = _stem(os.path.join(unfinished, _COLLECTION), name)
            for rank, on_rank in enumerate(ranks[name]):
                suffix = f".rank_{rank}.world_size_{len(ranks[name])}"
                arrays = read_arrays(on_rank or parts[:1])
                if not on_rank:
                    arrays = _without_rows(arrays)
                _dump_rank(stem, suffix, arrays, _has_scores(parts[0]), optim)


def _stem(folder: str, table: str) -> str:
    """What the paths of a table's files start with."""
    return os.path.join(folder, quote(table, safe=""))


def _state(slot: _Slot) -> str:
    """What the files of an optimizer state are called."""
    return f"opt_{quote(slot.name, safe='')}"


def _has_scores(part: EmbeddingVariable) -> bool:
    return part.table_attributes["eviction"] == "lfu"


def _without_rows(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a table with the same columns and no rows."""
    columns = ("keys", "values", "slots", "frequencies")
    return {name: array[:0] if name in columns else array for name, array in arrays.items()}


def _dump_rank(
    stem: str, suffix: str, arrays: dict[str, np.ndarray], has_scores: bool, optim: bool
) -> None:
    _write(f"{stem}_emb_keys{suffix}", arrays["keys"])
    _write(f"{stem}_emb_values{suffix}", arrays["values"].astype(np.float32))
    if has_scores:
        _write(f"{stem}_emb_scores{suffix}", arrays["frequencies"])
    if not optim:
        return
    columns = (arrays[f"slot_{column}"].tolist() for column in ("names", "widths", "initials"))
    slots = [_Slot(name.decode(), *rest) for name, *rest in zip(*columns, strict=True)]
    first = 0
    for slot in slots:
        _write(f"{stem}_{_state(slot)}_keys{suffix}", arrays["keys"])
        values = arrays["slots"][:, first : first + slot.width].astype(np.float32)
        _write(f"{stem}_{_state(slot)}_values{suffix}", values)
        first += slot.width
    with open(f"{stem}_opt_args.json", "w") as file:
        json.dump({"slots": [slot._asdict() for slot in slots]}, file, indent=4)


def _write(path: str, array: np.ndarray) -> None:
    with open(path, "wb") as file:
        file.write(np.ascontiguousarray(array).tobytes())
        file.flush()
        os.fsync(file.fileno())


# --- Load ---


def load(
    path: str, model: Any, table_names: TableNames = None, optim: bool = False, pg: Any = None
) -> None:
    """Replaces the content of tables by files of `dump`, or of NVIDIA's DynamicEmbDump.

    All files are checked before a table changes. Keys that are not in the files are removed, and
    start as new keys.

    Args:
        path: The folder.
        model: The object with the tables: anything that tf.train.Checkpoint tracks, such as a
            tf.Module, a Keras model or a table; or a tf.Graph, in `with session.as_default()`.
        table_names: Names of the tables to load, or `{"model": names}`; None: all.
        optim: Whether to read optimizer states, which only files of `dump` have; if not, the
            states are reset.
        pg: A plan, whose number of ranks the files must have; None: files of any number of ranks
            are read.

    Raises:
        FileNotFoundError: If a table has no files in the folder.
        ValueError: If files are of other tables or truncated, the model has no such tables, or `pg`
            is no plan or one of other ranks or partitions.
        TypeError: If `model` is not such an object.
    """
    tables = _selected(model, table_names)
    _ranks_of_parts(pg, tables)
    _check_world_size(path, pg, tables)
    contents = [_load_table(path, name, parts[0], optim) for name, parts in tables.items()]
    for parts, arrays in zip(tables.values(), contents, strict=True):
        replace_arrays(parts, arrays)


def _check_world_size(path: str, pg: ShardingPlan | None, tables: dict[str, Parts]) -> None:
    if pg is None:
        return
    for name in tables:
        _, ranks = _find(path, name)
        if len(ranks) != pg.world_size:
            raise ValueError(
                f"{path!r} has the table {name!r} of {len(ranks)} ranks, but pg is a plan for "
                f"{pg.world_size}; leave pg out to divide the rows anew"
            )


def _load_table(path: str, name: str, part: EmbeddingVariable, optim: bool) -> dict[str, Any]:
    """Arrays of the content of one table."""
    stem, ranks = _find(path, name)
    keys = _read(f"{stem}_emb_keys", ranks, np.int64, 1)[:, 0]
    if len(np.unique(keys)) != len(keys):
        raise ValueError(f"{stem}_emb_keys{ranks[0]} and its other ranks have a key twice")
    check_fits(part, len(keys), f"{stem}_emb_keys")
    values = _read(f"{stem}_emb_values", ranks, np.float32, part.embedding_dim, len(keys))
    arrays = {"keys": keys, "values": values.astype(part.dtype.as_numpy_dtype)}
    if _has_scores(part):
        scores = _read(f"{stem}_emb_scores", ranks, np.int64, 1, len(keys))
        arrays["frequencies"] = scores[:, 0]
    return {**arrays, **_load_slots(stem, ranks, part, keys)} if optim else arrays


def _load_slots(
    stem: str, ranks: list[str], part: EmbeddingVariable, keys: np.ndarray
) -> dict[str, np.ndarray]:
    try:
        with open(f"{stem}_opt_args.json") as file:
            slots = [_Slot(**slot) for slot in json.load(file)["slots"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{stem}_opt_args.json, which says what optimizers keep, is missing or not of "
            f"fe.dynamicemb.dump(..., optim=True): {error}; pass optim=False"
        ) from error
    columns = [np.zeros([len(keys), 0], np.float32)]
    for slot in slots:
        prefix = f"{stem}_{_state(slot)}"
        if not np.array_equal(_read(f"{prefix}_keys", ranks, np.int64, 1)[:, 0], keys):
            raise ValueError(
                f"{prefix}_keys{ranks[0]} has other keys than {stem}_emb_keys{ranks[0]}"
            )
        columns.append(_read(f"{prefix}_values", ranks, np.float32, slot.width, len(keys)))
    return {
        "slots": np.concatenate(columns, axis=1).astype(part.slot_dtype.as_numpy_dtype),
        "slot_names": np.array([slot.name.encode() for slot in slots], np.bytes_),
        "slot_widths": np.array([slot.width for slot in slots], np.int64),
        "slot_initials": np.array([slot.initial for slot in slots], np.float64),
    }


def _find(path: str, name: str) -> tuple[str, list[str]]:
    """What a table's paths start with, and what they end with, for each rank that dumped it."""
    pattern = _stem(os.path.join(glob.escape(path), "*"), name)  # a stem has no wildcards
    found = sorted(glob.glob(f"{pattern}_emb_keys.rank_*"))
    stems = {one.rpartition("_emb_keys.rank_")[0] for one in found}
    if len(stems) != 1:
        raise FileNotFoundError(
            f"the table {name!r} needs the files COLLECTION/{quote(name, safe='')}_emb_keys.rank_* "
            f"of one collection in {path!r}, which has {len(stems)}"
        )
    (stem,) = stems
    world_size = len(found)
    ranks = [f".rank_{rank}.world_size_{world_size}" for rank in range(world_size)]
    if {one.removeprefix(f"{stem}_emb_keys") for one in found} != set(ranks):
        raise ValueError(f"{found} are not the files of all ranks of one dump; copy all of them")
    return stem, ranks


def _read(
    path: str, ranks: list[str], dtype: Any, width: int, num_rows: int | None = None
) -> np.ndarray:
    """`[n, width]` numbers of all ranks."""
    row_bytes = width * np.dtype(dtype).itemsize
    columns = []
    for rank in ranks:
        if not os.path.exists(path + rank):
            raise ValueError(f"{path + rank} is missing; copy all files of a dump")
        size = os.path.getsize(path + rank)
        if size % row_bytes:
            raise ValueError(
                f"{path + rank} has {size} bytes, but rows of {width} {np.dtype(dtype).name} have "
                f"{row_bytes}: it is cut off, or of a table of another dim"
            )
        columns.append(np.fromfile(path + rank, dtype).reshape(-1, width))
    joined = np.concatenate(columns)
    if num_rows not in (None, len(joined)):
        raise ValueError(
            f"{path + ranks[0]} and its other ranks have {len(joined)} rows of {width} numbers, "
            f"but there are {num_rows} keys: it is cut off, or of a table of another dim"
        )
    return joined


DynamicEmbDump = dump
"""DynamicEmb's name of `dump`."""
DynamicEmbLoad = load
"""DynamicEmb's name of `load`."""
