"""A Keras layer that has an EmbeddingVariable."""

import contextlib
import functools
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding import nn
from fused_embedding.checkpoint.content import content_dtypes, export_whole, import_whole
from fused_embedding.embedding_scope import get_embedding_variable
from fused_embedding.embedding_variable import EmbeddingVariable, as_keys
from fused_embedding.inference import inference
from fused_embedding.keras.optimizers import PACKAGE, keras_of, register
from fused_embedding.keras.variables import variable


def _as_sparse(ids: tf.Tensor) -> tf.SparseTensor:
    """Dense ids whose negative ones are padding."""
    indices = tf.where(ids >= 0)
    return tf.SparseTensor(indices, tf.gather_nd(ids, indices), tf.shape(ids, tf.int64))


def _look_up(layer: Any, ids: Any) -> tf.Tensor:
    is_sparse = isinstance(ids, tf.SparseTensor | tf.RaggedTensor)
    if layer.combiner is not None:
        return nn.fused_safe_embedding_lookup_sparse(
            layer.table,
            ids if is_sparse else _as_sparse(as_keys(ids)),
            combiner=layer.combiner,
            max_norm=layer.max_norm,
            default_id=layer.default_id,
        )
    if is_sparse:
        raise ValueError(
            f"the layer {layer.name!r} was called with {ids}; sparse and ragged ids need a "
            'combiner: "sum", "mean" or "sqrtn"'
        )
    return tf.nn.embedding_lookup(layer.table, as_keys(ids))


def _as_array(tensor: tf.Tensor) -> np.ndarray:
    """A tensor for a file of Keras, whose numpy strings lose what an empty one is."""
    if tensor.dtype != tf.string:
        return tensor.numpy()
    return np.frombuffer(tf.io.serialize_tensor(tensor).numpy(), np.uint8)


def _as_tensor(array: Any, dtype: tf.DType) -> tf.Tensor:
    values = np.asarray(array)
    if dtype != tf.string:
        return tf.constant(values, dtype)
    return tf.io.parse_tensor(values.tobytes(), tf.string)


class _Embedding:
    """Embeddings of ids without a vocabulary.

    Call it with int32 or int64 ids: dense of any shape, or with a combiner a SparseTensor, a
    RaggedTensor, or dense `[batch, ids]` whose negative ids are padding. With training=False
    it changes nothing; ids without a row read their first value.

    Args:
        output_dim: Length of an embedding.
        combiner: None: `[..., dim]`, an embedding for each id; "sum", "mean" or "sqrtn":
            `[batch, dim]`, those of a row combined.
        initializer: First value of a row: as of fe.get_embedding_variable.
        ev_option: fe.EmbeddingVariableOption: filters, expiry, bounds.
        max_norm: L2 norm that each embedding is clipped to before it is combined.
        default_id: Id of rows without ids; None: zeros.
        **kwargs: As of keras.layers.Layer.
    """

    name: str
    dtype: Any
    trainable: bool
    compute_dtype: Any
    _is_keras_3: bool

    def __init__(
        self,
        output_dim: int,
        combiner: str | None = None,
        *,
        initializer: Any = None,
        ev_option: Any = None,
        max_norm: float | None = None,
        default_id: int | None = None,
        **kwargs: Any,
    ) -> None:
        # Keras casts what a layer is called with to float: above 2^24 ids would change.
        super().__init__(**{"autocast": False, **kwargs})
        self.supports_jit = False  # XLA knows no tables
        self.output_dim = output_dim
        self.combiner = combiner
        self.initializer = initializer
        self.ev_option = ev_option
        self.max_norm = max_norm
        self.default_id = default_id

    def build(self, input_shape: Any) -> None:
        table = get_embedding_variable(
            f"{self.name}/embeddings",
            self.output_dim,
            value_dtype=getattr(self, "variable_dtype", None) or self.dtype,
            initializer=self.initializer,
            trainable=self.trainable,
            ev_option=self.ev_option,
        )
        # tf_keras tracks the table itself, Keras 3 its own variables.
        self.embeddings = variable(table) if self._is_keras_3 else table
        self.built = True

    @property
    def table(self) -> EmbeddingVariable:
        """The EmbeddingVariable, once the layer is built."""
        held = self.embeddings
        return held if isinstance(held, EmbeddingVariable) else held._value

    def call(self, inputs: Any, training: Any = None) -> tf.Tensor:
        """Looks ids up.

        Args:
            inputs: Ids: see the class.
            training: False: the table is not changed; nor is it by a layer that is not trainable.

        Returns:
            `[..., dim]` or, with a combiner, `[batch, dim]`.
        """
        is_frozen = training is False or not self.trainable
        with inference() if is_frozen else contextlib.nullcontext():
            rows = _look_up(self, inputs)
        return tf.cast(rows, self.compute_dtype)

    def save_own_variables(self, store: Any) -> None:
        """Writes the table into a file of Keras: rows, slots and all.

        Args:
            store: What takes arrays by name.
        """
        for name, value in export_whole([self.table]).items():
            store[name] = _as_array(value)

    def load_own_variables(self, store: Any) -> None:
        """Replaces the table's content by that of a file.

        Args:
            store: What gives arrays by name.
        """
        dtypes = content_dtypes(self.table)
        content = {name: _as_tensor(store[name], dtype) for name, dtype in dtypes.items()}
        import_whole([self.table], content)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Shape of the result.

        Args:
            input_shape: Shape of the ids.

        Returns:
            See call.
        """
        shape = tuple(input_shape)
        return (*(shape if self.combiner is None else shape[:-1]), self.output_dim)

    def get_config(self) -> dict[str, Any]:
        """The arguments, but for `initializer` and `ev_option`, which have no config.

        Returns:
            A dictionary.

        Raises:
            NotImplementedError: If one of those two was given.
        """
        if self.initializer is not None or self.ev_option is not None:
            raise NotImplementedError(
                f"the layer {self.name!r} has an initializer or an ev_option, which cannot be "
                "written to a configuration; use save_weights or tf.train.Checkpoint"
            )
        return {
            **super().get_config(),  # type: ignore[misc]
            "output_dim": self.output_dim,
            "combiner": self.combiner,
            "max_norm": self.max_norm,
            "default_id": self.default_id,
        }


@functools.cache
def _embedding_class(keras: Any) -> Any:
    register(keras)
    bases = (_Embedding, keras.layers.Layer)
    attributes = {
        "__module__": __name__,
        "__doc__": _Embedding.__doc__,
        "_is_keras_3": hasattr(keras, "Variable"),
    }
    layer = type("Embedding", bases, attributes)
    return keras.saving.register_keras_serializable(package=PACKAGE)(layer)


def embedding_layer(keras: Any = None) -> Any:
    """The class of layers that have an EmbeddingVariable, for one Keras.

    Args:
        keras: The module whose layers it is for: keras, tf_keras, tf.keras; None: tf.keras.

    Returns:
        A keras.layers.Layer: `Embedding(output_dim, combiner=None, initializer=None,
        ev_option=None, max_norm=None, default_id=None)`, described in its docstring.

    >>> layer = fe.keras.embedding_layer()(output_dim=4, combiner="sum")
    >>> layer(tf.constant([[7, 1 << 60], [7, -1]])).shape
    TensorShape([2, 4])
    """
    return _embedding_class(keras_of((keras or tf.keras).layers.Layer))
