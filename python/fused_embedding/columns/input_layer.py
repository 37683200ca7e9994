"""`tf.compat.v1.feature_column.input_layer` with the lookups of all its columns in one op.

TensorFlow's own function runs. While it does, the lookup of an embedding column returns what shall
be looked up, and the array operations of that function pass this on until all outputs are
concatenated: then the columns are looked up together. Names, collections, the order of columns and
everything about other columns are stock's.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.feature_column import feature_column as fc_v1

from fused_embedding.columns.fused_column import fuse
from fused_embedding.columns.groups import Recording, recording_lookups
from fused_embedding.columns.stock_functions import with_globals
from fused_embedding.lookup.group import Column
from fused_embedding.lookup.run import run_group, run_group_side_by_side


class Outputs:
    """Outputs of columns, some yet to be looked up; input_layer takes it for `array_ops`."""

    def __init__(self, needs_each: bool):
        self._needs_each = needs_each
        self.looked_up: list[tuple[Column, tf.Tensor]] = []

    def shape(self, output: Any) -> Any:
        """tf.shape; of a column that is not looked up yet, what `reshape` ignores."""
        return [None] if isinstance(output, Column) else tf.shape(output)

    def reshape(self, output: Any, shape: Any) -> Any:
        """tf.reshape; a column that is not looked up yet already has its shape."""
        return output if isinstance(output, Column) else tf.reshape(output, shape)

    def concat(self, outputs: list[Any], axis: int) -> tf.Tensor:
        """tf.concat, after the lookups of all columns together."""
        columns = [output for output in outputs if isinstance(output, Column)]
        if columns and len(columns) == len(outputs) and not self._needs_each:
            return run_group_side_by_side(columns)
        self.looked_up = list(zip(columns, run_group(columns), strict=True))
        return tf.concat([self.tensor(output) for output in outputs], axis)

    def tensor(self, output: Any) -> Any:
        """The result of what was to be looked up."""
        return next((tensor for column, tensor in self.looked_up if column is output), output)


def verify_batch_sizes(outputs: list[Any], columns: list[Any]) -> None:
    """Stock's check, of the outputs that are there.

    Args:
        outputs: Tensors, and what stands for lookups that are yet to be done.
        columns: The column of each.
    """
    known = [(o, c) for o, c in zip(outputs, columns, strict=True) if tf.is_tensor(o)]
    fc_v1._verify_static_batch_size_equality([o for o, _ in known], [c for _, c in known])


def input_layer(
    features: Mapping[str, Any],
    feature_columns: Iterable[Any],
    weight_collections: list[str] | None,
    trainable: bool,
    filled: Mapping[str, dict[Any, Any] | None],
    recording: Recording = Recording.MATRICES,
) -> tf.Tensor:
    """The implementation of `fused_embedding.feature_column.input_layer`.

    Args:
        features: Tensors and SparseTensors of a batch by feature key.
        feature_columns: Dense columns.
        weight_collections: Further collections to add the variables to.
        trainable: Whether the variables are added to TRAINABLE_VARIABLES.
        filled: `cols_to_vars` and `cols_to_output_tensors`.
        recording: Which lookups to do in one op: those of all columns, or of columns in groups.

    Returns:
        `[num_rows, width]` float32, columns in the order of their names.
    """
    columns = fc_v1._normalize_feature_columns(feature_columns)
    original = {column: column for column in columns}
    if recording is Recording.MATRICES:
        original = {fuse(column, "v3"): column for column in columns}
    ours: dict[str, Any] = {name: None if given is None else {} for name, given in filled.items()}
    outputs = Outputs(needs_each=filled["cols_to_output_tensors"] is not None)
    with recording_lookups(recording):
        result = _stock_input_layer(outputs)(
            features,
            list(original),
            weight_collections=weight_collections,
            trainable=trainable,
            **ours,
        )
    for name, given in filled.items():
        if given is not None:
            given.update({original[c]: outputs.tensor(value) for c, value in ours[name].items()})
    return result


def input_layer_of_groups(
    features: Mapping[str, Any],
    feature_columns: Iterable[Any],
    weight_collections: list[str] | None = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
    cols_to_output_tensors: dict[Any, Any] | None = None,
) -> tf.Tensor:
    """Stock's input_layer, with one lookup op for the columns of `group_embedding_column_scope`.

    Args:
        features: Tensors and SparseTensors of a batch by feature key.
        feature_columns: Dense columns.
        weight_collections: Further collections to add the variables to.
        trainable: Whether the variables are added to TRAINABLE_VARIABLES.
        cols_to_vars: If given, filled with each column's list of variables.
        cols_to_output_tensors: If given, filled with each column's tensor.

    Returns:
        `[num_rows, width]` float32, columns in the order of their names.
    """
    filled = {"cols_to_vars": cols_to_vars, "cols_to_output_tensors": cols_to_output_tensors}
    return input_layer(
        features, feature_columns, weight_collections, trainable, filled, Recording.GROUPS
    )


def _stock_input_layer(outputs: Outputs) -> Callable[..., tf.Tensor]:
    internal = with_globals(
        fc_v1._internal_input_layer,
        array_ops=outputs,
        _verify_static_batch_size_equality=verify_batch_sizes,
    )
    stock = inspect.unwrap(fc_v1.input_layer)  # its decorators only export and warn
    return with_globals(stock, _internal_input_layer=internal)
