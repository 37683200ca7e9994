"""One optimizer step on rows of ordinary variables: those of a step in one op, updated in place."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.ops import raw_ops
from fused_embedding.ops.disabled import is_disabled
from fused_embedding.ops.placement import is_on_gpu, lacks_kernels
from fused_embedding.ops.tf_private import colocate_with
from fused_embedding.train.apply import pack_hyperparameters
from fused_embedding.train.collected import apply_in_turns
from fused_embedding.train.rules import Step


class SparseUpdate(NamedTuple):
    """What a sparse gradient does to one variable.

    Attributes:
        variable: A reference or a resource variable `[num_rows, ...]`.
        slots: Those of the rule, in its order: variables of the same shape and dtype.
        grad: `[n]` indices, repeated or not, and `[n, ...]` values.
    """

    variable: Any
    slots: list[Any]
    grad: tf.IndexedSlices


def can_update(variable: Any) -> bool:
    """Whether the op updates a variable: it has kernels there, and FE_DISABLE does not forbid it.

    Reference variables have no kernels on a GPU.
    """
    if is_disabled("apply"):
        return False
    device = variable.device or ""
    if is_on_gpu(device):
        return not (_is_reference(variable) or lacks_kernels(device))
    return tf.DeviceSpec.from_string(device).device_type in (None, "CPU")


def _is_reference(variable: Any) -> bool:
    return not hasattr(variable, "handle")


def _apply_group(
    updates: Sequence[SparseUpdate], rule: str, hyperparameters: tf.Tensor, use_locking: bool
) -> tf.Operation | None:
    variables = [update.variable for update in updates]
    slots = [slot for update in updates for slot in update.slots]
    arguments = {
        "grads": [update.grad.values for update in updates],
        "indices": [update.grad.indices for update in updates],
        "hyperparameters": hyperparameters,
        "rule": rule,
    }
    with colocate_with(variables[0]):
        if _is_reference(variables[0]):
            return raw_ops.FusedEmbeddingSparseApply(
                variables=variables, slots=slots, use_locking=use_locking, **arguments
            )
        return raw_ops.FusedEmbeddingResourceSparseApply(
            variables=[variable.handle for variable in variables],
            slots=[slot.handle for slot in slots],
            **arguments,
        )


def apply_sparse_gradients(
    updates: Sequence[SparseUpdate], step: Step, use_locking: bool = False
) -> list[tf.Operation]:
    """Updates rows of variables, and their slots, by one op for each device.

    Reference variables and resource variables have an op each. A variable that has several
    gradients is updated by one after the other.

    Args:
        updates: What to update.
        step: Rule and its hyperparameters.
        use_locking: Whether reference variables are locked meanwhile; resource variables are.

    Returns:
        The updates; none eagerly, where they have happened.
    """
    hyperparameters = pack_hyperparameters(step.hyperparameters)

    def apply_group(group: Sequence[SparseUpdate]) -> tf.Operation | None:
        return _apply_group(group, step.rule, hyperparameters, use_locking)

    return apply_in_turns(updates, lambda update: _is_reference(update.variable), apply_group)
