"""Names of the optimizers' slots, in DeepRec, in stock checkpoints and in tables.

`OPTIMIZER`, `OPTIMIZER_1`, ... of a variable, in the order in which the optimizer makes them, are
`OPTIMIZER/SLOT` in a table: `users/Adam_1` is slot `Adam/v` of the table `users`.
"""

import re
from typing import NamedTuple

import numpy as np

from fused_embedding.convert.table import Slot, Table


class _Kind(NamedTuple):
    """A slot: its name in a table, and what a new row has; None: an option of the optimizer."""

    name: str
    initial: float | None = 0.0


# One number a row in a table, an int64 for each value in DeepRec.
_DECAY_POWER = "accumulator_decay_power"
_MOMENTS = (_Kind("m"), _Kind("v"))
_RMSPROP = (_Kind("rms", 1.0), _Kind("momentum"))
_CENTERED_RMSPROP = (_Kind("rms", 1.0), _Kind("mg"), _Kind("momentum"))
# Slots in the order of the optimizers' `_create_slots`, by the optimizers' default names.
_OPTIMIZERS = {
    "Adagrad": (_Kind("accumulator", None),),
    "AdagradDecay": (_Kind("accumulator", None), _Kind(_DECAY_POWER)),
    "Adam": _MOMENTS,
    "AdamAsync": _MOMENTS,
    "AdamW": _MOMENTS,
    "Ftrl": (_Kind("accum", None), _Kind("linear")),
    "Momentum": (_Kind("momentum"),),
    "RMSProp": _CENTERED_RMSPROP,  # without the middle one, if there are two
}
_NAMES = re.compile(rf"({'|'.join(_OPTIMIZERS)})(?:_(\d+))?")


def owner_of(name: str, names: set[str]) -> str | None:
    """The variable among `names` that a tensor `VARIABLE/OPTIMIZER_1` is a slot of, or None."""
    owner, _, suffix = name.rpartition("/")
    return owner if owner in names and _NAMES.fullmatch(suffix) else None


def add_slots(table: Table, found: dict[str, np.ndarray], accumulator: float) -> list[str]:
    """Gives a table its slots.

    Args:
        table: Gets them.
        found: `[n, dim]` by the last part of their names, as `Adam_1`.
        accumulator: Initial value of what the optimizers' argument of that name says.

    Returns:
        The names of those that the optimizers do not have.
    """
    unknown = []
    for suffix, values in found.items():
        match = _NAMES.fullmatch(suffix)
        assert match is not None, suffix  # owner_of said so
        optimizer, index = match[1], int(match[2] or 0)
        kinds = _OPTIMIZERS[optimizer]
        if optimizer == "RMSProp" and "RMSProp_2" not in found:
            kinds = _RMSPROP
        if index >= len(kinds):
            unknown.append(suffix)
            continue
        kind = kinds[index]
        initial = accumulator if kind.initial is None else kind.initial
        if kind.name == _DECAY_POWER:
            values = values[:, :1]
        table.slots[f"{optimizer}/{kind.name}"] = Slot(values.astype(table.slot_dtype), initial)
    return unknown


def slot_tensors(table: Table) -> dict[str, Slot]:
    """The slots of a table as `[n, dim]`, by the last part of the names that others have for them.

    Adds a note to the table for each slot that others do not have.
    """
    by_optimizer: dict[str, dict[str, Slot]] = {}
    for name, slot in table.slots.items():
        optimizer, _, kind = name.rpartition("/")
        by_optimizer.setdefault(optimizer, {})[kind] = slot
    tensors = {}
    for optimizer, slots in by_optimizer.items():
        order = _order_of(slots, table.dim)
        if not order:
            names = ", ".join(f"{optimizer}/{kind}" for kind in slots)
            table.notes.append(f"not carried: slots {names}, which the destination does not have")
        for index, kind in enumerate(order):
            suffix = f"{optimizer}_{index}" if index else optimizer
            tensors[suffix] = _widened(slots[kind], table) if kind == _DECAY_POWER else slots[kind]
    return tensors


def _order_of(slots: dict[str, Slot], dim: int) -> list[str]:
    """The order in which others have slots of these names; empty if they have none such."""
    widths = {slot.values.shape[1] for kind, slot in slots.items() if kind != _DECAY_POWER}
    for known in (*_OPTIMIZERS.values(), _RMSPROP):
        names = [kind.name for kind in known]
        if set(names) == set(slots) and widths == {dim}:
            return names
    return []


def _widened(slot: Slot, table: Table) -> Slot:
    return Slot(np.repeat(slot.values.astype(np.int64), table.dim, axis=1), slot.initial)
