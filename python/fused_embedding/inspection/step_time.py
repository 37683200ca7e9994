"""Where the time of a traced step goes: lookups, their gradients, updates of tables, the rest."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from fused_embedding.inspection.update_share import is_our_op, traced_kernels

IDS = "features to ids"
LOOKUPS = "lookups"
GRADIENTS = "gradients of lookups"
UPDATES = "updates of tables"
REST = "the rest"
PARTS = (IDS, LOOKUPS, GRADIENTS, UPDATES, REST)

_IDS_OP = re.compile(r"ColumnKeys$|^StringToHashBucket|^LookupTableFind|^SparseCross|^Bucketize$")
_UPDATE_OP = re.compile(r"SparseApply|^EmbeddingVariableApply$")
_LOOKUP_OP = re.compile(r"^ResourceGather$|^SparseSegment")
_GRADIENT_SCOPE = re.compile(r"(?:^|/)gradients(?:_\d+)?/(.*)")
# Stock prunes ids beside the scope in which it looks them up.
_INNER_SCOPE = re.compile(r"/embedding_lookup_sparse(_\d+)?$")


class StepTime(NamedTuple):
    """Time of the kernels of a step, added up over threads.

    Attributes:
        microseconds: Of each of PARTS.
    """

    microseconds: dict[str, int]

    @property
    def total_us(self) -> int:
        """Microseconds of all kernels."""
        return sum(self.microseconds.values())

    @property
    def embedding_share(self) -> float:
        """Share of all parts but the rest."""
        return 1 - self.microseconds[REST] / max(self.total_us, 1)


def step_time(run_metadata: Any, lookups: Iterable[str], tables: Iterable[str]) -> StepTime:
    """Adds up the kernels of a traced step by part.

    Args:
        run_metadata: A tf.compat.v1.RunMetadata that `session.run` filled.
        lookups: Scopes of lookups in the graph, as `fe.explain` names them.
        tables: Names of tables.

    Returns:
        The times.

    Raises:
        TypeError: If `run_metadata` is something else.
        ValueError: If it has no kernels.
    """
    scopes = tuple({f"{_INNER_SCOPE.sub('', name)}/" for name in lookups})
    updates = tuple(f"update_{name}/" for name in tables)
    microseconds = dict.fromkeys(PARTS, 0)
    for name, op, us in traced_kernels(run_metadata):
        microseconds[_part_of(name, op, scopes, updates)] += us
    return StepTime(microseconds)


def _part_of(name: str, op: str, scopes: tuple[str, ...], updates: tuple[str, ...]) -> str:
    if _IDS_OP.search(op):
        return IDS
    if _is_update(name, op, updates):
        return UPDATES
    of_gradient = _GRADIENT_SCOPE.search(name)
    forward = of_gradient[1] if of_gradient else name
    is_gradient = bool(of_gradient) or op.endswith("Grad")
    if is_our_op(op) or _LOOKUP_OP.search(op) or f"{forward}/".startswith(scopes):
        return GRADIENTS if is_gradient else LOOKUPS
    return REST


def _is_update(name: str, op: str, updates: tuple[str, ...]) -> bool:
    return bool(_UPDATE_OP.search(op)) or any(update in f"{name}/" for update in updates)
