"""What is in a source, whatever wrote it: tables, and other tensors."""

import dataclasses
import functools
import glob
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fused_embedding.convert import deeprec, dense, ours, recommenders_addons
from fused_embedding.convert.bundle import Bundle
from fused_embedding.convert.table import ConvertError, Table, checked

_GLOBAL_STEP = "global_step"
_CHANGED_ROWS = "-sparse_incr_keys"  # of a variable, in an incremental checkpoint


@dataclasses.dataclass
class Source:
    """What a source holds; nothing is read before it is called.

    Attributes:
        tables: By name.
        others: Tensors that are no part of tables, by name.
        notes: What is not carried.
    """

    tables: dict[str, Callable[[], Table]] = dataclasses.field(default_factory=dict)
    others: dict[str, Callable[[], Any]] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)


def open_source(
    path: str, dense_names: Sequence[str], incremental_path: str | None, accumulator: float
) -> Source:
    """Finds out what is in a checkpoint or a folder of recommenders-addons.

    Args:
        path: Prefix of a checkpoint, a folder with one, or a folder with files of tables.
        dense_names: Ordinary variables that are tables.
        incremental_path: DeepRec's incremental checkpoint that was saved after it.
        accumulator: Initial value of the optimizers' accumulators, which formats do not hold.

    Raises:
        ConvertError: If there is nothing to convert, or something is missing.
    """
    if recommenders_addons.is_folder(path):
        if dense_names:
            raise ConvertError(
                f"--tables names variables of a checkpoint, but {path!r} is a folder of tables of "
                "recommenders-addons: leave out --tables"
            )
        return Source(_checked(path, recommenders_addons.find_files(path, accumulator).tables))
    bundle = Bundle(path)
    incremental = Bundle(incremental_path) if incremental_path else None
    step = _step_of(incremental or bundle) or _step_of(bundle)
    defaults = deeprec.Defaults(accumulator, step)
    of_ours = ours.find(bundle)
    of_deeprec = deeprec.find(bundle, incremental, of_ours.tensors, defaults)
    of_others = of_ours.tensors | of_deeprec.tensors
    _refuse_tables(bundle, dense_names, {**of_ours.tables, **of_deeprec.tables})
    of_dense = dense.find(bundle, dense_names, of_others, accumulator, step)
    known = of_others | of_dense.tensors
    of_addons = recommenders_addons.find(bundle, known, accumulator, step)
    found = (of_ours, of_deeprec, of_dense, of_addons)
    source = Source()
    for part in found:
        source.tables |= _checked(bundle.prefix, part.tables)
    if not source.tables:
        raise ConvertError(
            f"{bundle.prefix!r} has no table: name the variables that are to become tables with "
            f"--tables; those with rows are: {', '.join(dense.candidates(bundle, set())) or 'none'}"
        )
    _add_others(source, bundle, incremental, known | of_addons.tensors)
    if glob.glob(f"{glob.escape(bundle.prefix)}-*-ssd_record.index"):
        source.notes.append(f"not carried: rows in SSD tiers, {bundle.prefix}-*-emb_files")
    return source


def _checked(
    path: str, tables: Mapping[str, Callable[[], Table]]
) -> dict[str, Callable[[], Table]]:
    return {name: checked(path, name, read) for name, read in tables.items()}


def _refuse_tables(bundle: Bundle, dense_names: Sequence[str], tables: Mapping[str, Any]) -> None:
    for name in dense_names:
        if name in tables and name not in bundle.shapes:
            raise ConvertError(
                f"--tables names {name!r}, which is a table in {bundle.prefix!r} already, and is "
                "converted as one: leave it out of --tables, which is for ordinary variables"
            )


def _step_of(bundle: Bundle) -> int:
    has_step = bundle.shapes.get(_GLOBAL_STEP) == [] and bundle.dtypes[_GLOBAL_STEP].is_integer
    return max(int(bundle.read(_GLOBAL_STEP)), 0) if has_step else 0


def _add_others(source: Source, bundle: Bundle, incremental: Bundle | None, used: set[str]) -> None:
    others = set(bundle.shapes) - used
    if bundle.is_object_based:
        source.notes.append(
            f"not carried: {len(others)} tensors of tf.train.Checkpoint beside the tables; restore "
            "them from the source, with expect_partial()"
        )
        return
    for name in sorted(others):
        source.others[name] = functools.partial(bundle.read, name)
    if incremental is None:
        return
    parts = deeprec.incremental_tensors(incremental)
    _refuse_left(incremental, parts, others, used)
    for name in sorted(set(incremental.shapes) - parts - used):
        source.others[name] = functools.partial(incremental.read, name)
    for name in others:
        if name + _CHANGED_ROWS in parts:
            source.others[name] = functools.partial(_updated, name, bundle, incremental)


def _refuse_left(incremental: Bundle, parts: set[str], others: set[str], used: set[str]) -> None:
    for tensor in sorted(parts):
        name = tensor.removesuffix(_CHANGED_ROWS)
        if name != tensor and name not in others and f"{name}-keys" not in used:
            raise ConvertError(
                f"{tensor!r} of {incremental.prefix!r} changes rows of a variable that is in "
                "partitions, a table of --tables, or not in the source: convert a full checkpoint"
            )


def _updated(name: str, bundle: Bundle, incremental: Bundle) -> Any:
    return deeprec.update_rows(name, bundle.read(name), incremental)
