"""`DenseFeatures` of Keras 2 with the lookups of all its columns in one op.

As in `input_layer.py`, Keras's own `call` runs, on an object that records the lookups of the
columns and executes them when Keras concatenates the outputs. Variables, names, checkpoints and the
configuration are inherited.
"""

import functools
import importlib
from typing import Any

import tensorflow as tf

from fused_embedding.columns.fused_column import fuse
from fused_embedding.columns.groups import (
    StateManagerOfOriginals,
    mode_of_keras,
    recording_lookups,
    unwrapped,
)
from fused_embedding.columns.input_layer import Outputs, verify_batch_sizes
from fused_embedding.keras.table_training import PACKAGE
from fused_embedding.lookup.group import Column


class _Call:
    """Replaces the layer in one run of Keras's `call`."""

    def __init__(self, layer: Any, needs_each: bool):
        self._layer = layer
        self.outputs = Outputs(needs_each)
        self.original = {fuse(unwrapped(c), "v3"): c for c in layer._feature_columns}
        self._feature_columns = list(self.original)
        self._state_manager = StateManagerOfOriginals(layer._state_manager, self.original)

    def _process_dense_tensor(self, column: Any, tensor: Any) -> Any:
        if isinstance(tensor, Column):
            return tensor
        return self._layer._process_dense_tensor(column, tensor)

    def _verify_and_concat_tensors(self, outputs: list[Any]) -> tf.Tensor:
        verify_batch_sizes(outputs, self._feature_columns)
        return self.outputs.concat(outputs, -1)


def _keras_2() -> Any:
    """The module that has DenseFeatures: tf.keras where that is Keras 2, else tf_keras."""
    if hasattr(tf.keras.layers, "DenseFeatures"):
        return tf.keras
    try:
        return importlib.import_module("tf_keras")
    except ImportError as error:
        raise ImportError(
            "fe.feature_column.DenseFeatures was asked for, which is a layer of Keras 2, but "
            f"tf.keras of TensorFlow {tf.__version__} is Keras 3; install the package tf_keras"
        ) from error


class _DenseFeatures:
    """A layer that concatenates feature columns, and looks up all embeddings by one op.

    Otherwise it is DenseFeatures of Keras 2 (tf.keras in TensorFlow 2.15, tf_keras later):
    arguments, variables and their names, checkpoints, the order of columns. One op looks up all
    embedding columns, and another computes their gradients, like
    fe.nn.group_embedding_lookup_sparse. Stock columns are included, whatever their `do_fusion`.

    To load a saved Keras model with this layer, name this class first.

    >>> user = tf.feature_column.categorical_column_with_hash_bucket("user", 1000)
    >>> layer = fe.feature_column.DenseFeatures([tf.feature_column.embedding_column(user, 4)])
    >>> layer({"user": tf.constant([["ann"], ["bob"]])}).shape
    TensorShape([2, 4])
    """

    _keras: Any
    _state_manager: Any

    def call(
        self, features: Any, cols_to_output_tensors: Any = None, training: Any = None
    ) -> tf.Tensor:
        """Concatenates the columns.

        Args:
            features: Tensors and SparseTensors of a batch by feature key.
            cols_to_output_tensors: If given, filled with each column's tensor.
            training: Whether the model trains; None: Keras's learning phase.

        Returns:
            `[num_rows, width]` float32, columns in the order of their names.
        """
        if training is None:
            training = self._keras.backend.learning_phase()
        run = _Call(self, needs_each=cols_to_output_tensors is not None)
        ours: dict[Any, Any] | None = None if cols_to_output_tensors is None else {}
        with mode_of_keras(self._state_manager, training), recording_lookups():
            # Keras's own call, on the replacement of this layer.
            result = self._keras.layers.DenseFeatures.call(run, features, ours, training)
        for column, output in (ours or {}).items():
            cols_to_output_tensors[run.original[column]] = run.outputs.tensor(output)
        return result


@functools.cache
def dense_features() -> Any:
    """The class `fused_embedding.feature_column.DenseFeatures`.

    Returns:
        A subclass of DenseFeatures of the Keras 2 that is installed.

    Raises:
        ImportError: If no Keras 2 is installed.
    """
    keras = _keras_2()
    attributes = {
        "__module__": "fused_embedding.feature_column",
        "__doc__": _DenseFeatures.__doc__,
        "_keras": keras,
    }
    layer = type("DenseFeatures", (_DenseFeatures, keras.layers.DenseFeatures), attributes)
    return keras.saving.register_keras_serializable(package=PACKAGE)(layer)
