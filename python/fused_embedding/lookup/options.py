"""Options of lookups, and the checks of a user's options."""

import dataclasses
import operator
from typing import Any

import numpy as np

COMBINERS = ("sum", "mean", "sqrtn")
PARTITION_STRATEGIES = ("div", "mod", "mod_ev", "hash")


@dataclasses.dataclass(frozen=True)
class LookupOptions:
    """Options of a lookup.

    Attributes:
        combiner: "sum", "mean" or "sqrtn".
        partition_strategy: "div", "mod", "mod_ev" or "hash"; ignored with one shard.
        max_norm: L2 norm that embeddings are clipped to, > 0; None: off.
        default_id: Id of empty rows; None: they are zero. With a negative id an empty row is an
            error.
        prune: Whether ids < 0, and weights not > 0 unless the combiner is sum, are dropped.
        fill_empty_row: Whether empty rows get the default id.
        rows_end_at_last_id: Whether the result ends with the last row that has an id, and
            decreasing rows are an error (v2).
    """

    combiner: str = "mean"
    partition_strategy: str = "div"
    max_norm: float | None = None
    default_id: int | None = None
    prune: bool = True
    fill_empty_row: bool = True
    rows_end_at_last_id: bool = False

    @property
    def default_id_attr(self) -> int:
        """`default_id` as an attribute of the ops: -1 for None."""
        return -1 if self.default_id is None else self.default_id

    @property
    def max_norm_attr(self) -> float:
        """`max_norm` as an attribute of the ops: -1 for None."""
        return -1.0 if self.max_norm is None else self.max_norm

    @property
    def prune_weights(self) -> bool:
        """Whether pruning considers weights."""
        return self.combiner != "sum"


def make_options(
    combiner: str | None, max_norm: float | None, default_id: int | None, **others: Any
) -> LookupOptions:
    """Checks a user's options; `others` are fields of `LookupOptions`, None for the default.

    Raises:
        ValueError: For an unknown combiner or strategy, a max_norm that is not > 0, a default_id
            that is not an integer.
    """
    combiner = combiner or "mean"
    if combiner not in COMBINERS:
        raise ValueError(f"combiner must be one of 'mean', 'sqrtn' or 'sum', got {combiner!r}")
    strategy = others.get("partition_strategy") or "div"
    if strategy not in PARTITION_STRATEGIES:
        raise ValueError(
            f"partition_strategy must be one of {', '.join(PARTITION_STRATEGIES)}, got {strategy!r}"
        )
    if max_norm is not None and not max_norm > 0:
        raise ValueError(f"max_norm must be > 0, or None for no clipping, got {max_norm}")
    others["partition_strategy"] = strategy
    return LookupOptions(
        combiner=combiner,
        max_norm=None if max_norm is None else float(max_norm),
        default_id=_as_id(default_id),
        **others,
    )


def _as_id(default_id: Any) -> int | None:
    """Converts a Python or numpy integer to an int."""
    if default_id is None:
        return None
    try:
        if isinstance(default_id, bool | np.bool_):
            raise TypeError
        return operator.index(default_id)
    except TypeError:
        raise ValueError(
            f"default_id must be an integer, or None for zero rows, got {default_id!r}"
        ) from None
