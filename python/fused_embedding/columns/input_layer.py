"""`tf.compat.v1.feature_column.input_layer` with the lookups of all its columns in one op.

TensorFlow's own function runs. While it does, the lookup of an embedding column returns what shall
be looked up, and the array operations of that function pass this on until all outputs are
concatenated: then the columns are looked up together. Names, collections, the order of columns and
everything about other columns are stock's.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.feature_column import feature_column as fc_v1

from fused_embedding.columns.composed_column import adaptive_keys
from fused_embedding.columns.fused_column import fuse
from fused_embedding.columns.groups import Recording, recording_lookups
from fused_embedding.columns.row_choice import adaptive_masks
from fused_embedding.columns.row_index import index_name, rows_of_columns
from fused_embedding.columns.stock_functions import with_globals
from fused_embedding.lookup.group import Column
from fused_embedding.lookup.row_index import expanded
from fused_embedding.lookup.run import run_group, run_group_side_by_side

# Stock's, whatever fe.accelerate has in their places.
_stock_internal_input_layer = fc_v1._internal_input_layer
_stock_verify_batch_sizes = fc_v1._verify_static_batch_size_equality


class Outputs:
    """Outputs of columns, some yet to be looked up; input_layer takes it for `array_ops`.

    Args:
        needs_each: Whether `tensor` is asked for the output of a column.
        rows: The index of each column that has one; see `rows_of_columns`.
        merges: See `run_group`.
    """

    def __init__(
        self,
        needs_each: bool,
        rows: Mapping[Any, tf.Tensor] | None = None,
        *,
        merges: bool = True,
    ):
        self._rows = rows or {}
        self._needs_each = needs_each or bool(rows)
        self._merges = merges
        self._columns: list[Any] = []
        self._finished: list[tuple[Any, tf.Tensor]] = []

    def shape(self, output: Any) -> Any:
        """tf.shape; of a column that is not looked up yet, what `reshape` ignores."""
        return [None] if isinstance(output, Column) else tf.shape(output)

    def reshape(self, output: Any, shape: Any) -> Any:
        """tf.reshape; a column that is not looked up yet already has its shape."""
        return output if isinstance(output, Column) else tf.reshape(output, shape)

    def verify_batch_sizes(self, outputs: list[Any], columns: list[Any]) -> None:
        """Stock's check, of columns without an index: those with one have batches of their own."""
        self._columns = columns
        kept = [i for i, column in enumerate(columns) if column not in self._rows]
        verify_batch_sizes([outputs[i] for i in kept], [columns[i] for i in kept])

    def concat(self, outputs: list[Any], axis: int) -> tf.Tensor:
        """tf.concat, after the lookups of all columns together."""
        lookups = [output for output in outputs if isinstance(output, Column)]
        if lookups and len(lookups) == len(outputs) and not self._needs_each:
            return run_group_side_by_side(lookups, merges=self._merges)
        looked_up = iter(run_group(lookups, merges=self._merges))
        tensors = [next(looked_up) if isinstance(o, Column) else o for o in outputs]
        tensors = self._expanded(tensors)
        self._finished = list(zip(outputs, tensors, strict=True))
        return tf.concat(tensors, axis)

    def _expanded(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        """The outputs of columns, with the rows that their indices select."""
        if not self._rows:
            return tensors
        indices = [self._rows.get(column) for column in self._columns]
        return expanded(tensors, indices, [index_name(column) for column in self._columns])

    def tensor(self, output: Any) -> Any:
        """The result of what was to be looked up, with the rows that the column's index selects."""
        return next((tensor for given, tensor in self._finished if given is output), output)


def verify_batch_sizes(outputs: list[Any], columns: list[Any]) -> None:
    """Stock's check, of the outputs that are there.

    Args:
        outputs: Tensors, and what stands for lookups that are yet to be done.
        columns: The column of each.
    """
    known = [(o, c) for o, c in zip(outputs, columns, strict=True) if tf.is_tensor(o)]
    _stock_verify_batch_sizes([o for o, _ in known], [c for _, c in known])


def input_layer(
    features: Mapping[str, Any],
    feature_columns: Iterable[Any],
    call: Mapping[str, Any],
    filled: Mapping[str, dict[Any, Any] | None],
    rows: Mapping[Any, Any] | None = None,
    masks: Mapping[str, Any] | None = None,
    *,
    merges: bool = True,
) -> tf.Tensor:
    """The implementation of `fused_embedding.feature_column.input_layer`.

    Args:
        features: Tensors and SparseTensors of a batch by feature key.
        feature_columns: Dense columns.
        call: Further arguments of stock's function inside input_layer.
        filled: `cols_to_vars` and `cols_to_output_tensors`.
        rows: The indices of columns with batches of their own, by feature key or column.
        masks: Which ids of adaptive columns have rows of their own, by feature key.
        merges: See `run_group`.

    Returns:
        `[num_rows, width]` float32, columns in the order of their names.
    """
    columns = fc_v1._normalize_feature_columns(feature_columns)
    original = {fuse(column, "v3"): column for column in columns}
    indices = rows_of_columns(rows, columns)
    outputs = Outputs(
        filled["cols_to_output_tensors"] is not None,
        {fused: indices[column] for fused, column in original.items() if column in indices},
        merges=merges,
    )
    with recording_lookups(Recording.MATRICES), adaptive_masks(masks, adaptive_keys(columns)):
        return _fill(outputs, features, original, filled, call)


def input_layer_of_groups(
    features: Mapping[str, Any],
    feature_columns: Iterable[Any],
    weight_collections: list[str] | None = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
    cols_to_output_tensors: dict[Any, Any] | None = None,
    adaptive_mask_tensors: Mapping[str, Any] | None = None,
) -> tf.Tensor:
    """Stock's input_layer, with one lookup op for the columns of `group_embedding_column_scope`.

    Args:
        features: Tensors and SparseTensors of a batch by feature key.
        feature_columns: Dense columns.
        weight_collections: Further collections to add the variables to.
        trainable: Whether the variables are added to TRAINABLE_VARIABLES.
        cols_to_vars: If given, filled with each column's list of variables.
        cols_to_output_tensors: If given, filled with each column's tensor.
        adaptive_mask_tensors: See `fused_embedding.feature_column.input_layer`.

    Returns:
        `[num_rows, width]` float32, columns in the order of their names.
    """
    columns = fc_v1._normalize_feature_columns(feature_columns)
    masks = adaptive_masks(adaptive_mask_tensors, adaptive_keys(columns))
    filled = {"cols_to_vars": cols_to_vars, "cols_to_output_tensors": cols_to_output_tensors}
    outputs = Outputs(needs_each=cols_to_output_tensors is not None)
    call = {"weight_collections": weight_collections, "trainable": trainable}
    with recording_lookups(Recording.GROUPS), masks:
        return _fill(outputs, features, {column: column for column in columns}, filled, call)


def _fill(
    outputs: Outputs,
    features: Mapping[str, Any],
    original: Mapping[Any, Any],
    filled: Mapping[str, dict[Any, Any] | None],
    call: Mapping[str, Any],
) -> tf.Tensor:
    """Runs stock's input_layer, and fills the user's dicts.

    Args:
        outputs: Stands for its `array_ops`.
        features: Tensors and SparseTensors of a batch by feature key.
        original: The user's column of each column that is run.
        filled: `cols_to_vars` and `cols_to_output_tensors`, by the user's columns.
        call: Stock's other arguments.

    Returns:
        `[num_rows, width]` float32.
    """
    ours: dict[str, Any] = {name: None if given is None else {} for name, given in filled.items()}
    result = _stock_input_layer(outputs)(features, list(original), **call, **ours)
    for name, given in filled.items():
        if given is not None:
            given.update({original[c]: outputs.tensor(value) for c, value in ours[name].items()})
    return result


def _stock_input_layer(outputs: Outputs) -> Callable[..., tf.Tensor]:
    return with_globals(
        _stock_internal_input_layer,
        array_ops=outputs,
        _verify_static_batch_size_equality=outputs.verify_batch_sizes,
    )


def instead_of_stock(
    stock: Callable[..., tf.Tensor],
    choose: Callable[[list[Any], Callable[[], tf.Tensor], Callable[[], tf.Tensor]], tf.Tensor],
    *,
    merges: bool = True,
) -> Callable[..., tf.Tensor]:
    """A function for the place of stock's inside `input_layer`, which chooses at each call.

    Args:
        stock: What is in that place.
        choose: Calls the second argument for our layer, or the third for stock's; the first are the
            columns.
        merges: See `run_group`.

    Returns:
        A function with stock's signature.
    """

    @functools.wraps(stock)
    def internal_input_layer(
        features: Any,
        feature_columns: Any,
        weight_collections: Any = None,
        trainable: bool = True,
        cols_to_vars: Any = None,
        scope: Any = None,
        cols_to_output_tensors: Any = None,
        from_template: bool = False,
    ) -> tf.Tensor:
        columns = fc_v1._normalize_feature_columns(feature_columns)
        call = {
            "weight_collections": weight_collections,
            "trainable": trainable,
            "scope": scope,
            "from_template": from_template,
        }
        filled = {"cols_to_vars": cols_to_vars, "cols_to_output_tensors": cols_to_output_tensors}
        return choose(
            columns,
            lambda: input_layer(features, columns, call, filled, merges=merges),
            lambda: stock(features, columns, **call, **filled),
        )

    return internal_input_layer
