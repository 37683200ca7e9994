"""Dense variables of an export, found again in checkpoints of the model."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.checkpoint.object_based import VALUE
from fused_embedding.serving.object_paths import SavedObjects


class DenseValues:
    """Dense variables in a checkpoint.

    Args:
        checkpoint: Its prefix.
        objects: What it has.
    """

    def __init__(self, checkpoint: str, objects: SavedObjects) -> None:
        self._checkpoint = checkpoint
        self._objects = objects

    def read(self, name: str, shape: list[int], dtype: tf.DType) -> Any:
        """The value of a variable, as an array.

        Args:
            name: As the checkpoint has it, or a path from the model on.
            shape: Of the variable.
            dtype: Of the variable.

        Raises:
            ValueError: If the checkpoint does not have it, or has something else by its name.
        """
        keys = self.keys(name)
        if len(keys) != 1:
            raise ValueError(
                f"the checkpoint {self._checkpoint} has {len(keys)} variables {name!r}, and the "
                "export has one: give its name in the checkpoint in names, or pass dense=False, "
                "which leaves dense variables as they are"
            )
        (key,) = keys
        value = self._objects.reader.get_tensor(key)
        if list(value.shape) != shape or tf.as_dtype(value.dtype) != dtype:
            raise ValueError(
                f"the variable {name!r} has {value.dtype.name} of shape {list(value.shape)} in the "
                f"checkpoint {self._checkpoint} and {dtype.name} of shape {shape} in the export: "
                "export the model that is saved"
            )
        return value

    def check_not_swapped(self, names: Mapping[str, str], variables: Sequence[str]) -> None:
        """Refuses names that exchange variables which are found without.

        Args:
            names: By the name of a variable in the export: its name in the checkpoint.
            variables: All names in the export.
        """
        homes = {name: self.keys(name) for name in variables}
        for name in variables:
            given = self.keys(names[name]) if name in names else homes[name]
            others = [other for other, keys in homes.items() if keys == given and other != name]
            if given != homes[name] and len(homes[name]) == 1 and others:
                raise ValueError(
                    f"names has {names[name]!r} for the variable {name!r}, but the checkpoint "
                    f"{self._checkpoint} has {name!r} itself, and {names[name]!r} is {others[0]!r} "
                    "of the export: leave both out of names"
                )

    def keys(self, name: str) -> set[str]:
        """Names of the tensors that `name` may stand for, as of `read`."""
        for key in (name, name + VALUE):
            if key in self._objects.shapes:
                return {key}
        return self._objects.variables_at(name)
