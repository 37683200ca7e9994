"""Keras layers that look up ids with fe.nn, in ordinary weights or in an EmbeddingVariable."""

import functools
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from fused_embedding.keras.group_layer import GroupLayer
from fused_embedding.keras.group_lookups import (
    PendingLookup,
    combined_parsed,
    combined_rows,
    rows_of_ids,
)
from fused_embedding.keras.preprocessing import STAND_INS
from fused_embedding.keras.table_layer import TableLayer
from fused_embedding.keras.table_training import PACKAGE, keras_of, register
from fused_embedding.lookup import deeprec_signatures, group_signatures
from fused_embedding.lookup.feature_ids import KeyRule, ParsedIds, is_readable
from fused_embedding.lookup.options import make_options


def _kind(ids: Any) -> str:
    """The kind of ids or of their weights, which must be the same, for errors."""
    if isinstance(ids, tf.SparseTensor):
        return "SparseTensor"
    return "RaggedTensor" if isinstance(ids, tf.RaggedTensor) else "dense tensor"


class _Embedding(TableLayer):
    """Embeddings of ids: keras.layers.Embedding with ordinary weights or an EmbeddingVariable.

    `Embedding(1000, 16)` has 1000 rows. `Embedding(output_dim=16)` has an EmbeddingVariable: any
    int64 is an id. With training=False, a table does not change, and ids without a row read their
    first value.

    Call it with int32 or int64 ids: a dense tensor of any shape, a RaggedTensor, or a SparseTensor.
    Positions of a SparseTensor without an id read id 0, as in stock.

    Args:
        input_dim: Number of rows; None: an EmbeddingVariable.
        output_dim: Length of a row.
        embeddings_initializer: Initializer of the rows; None: "uniform" of keras.layers.Embedding,
            or the default of fe.get_embedding_variable for a table.
        embeddings_regularizer: Regularizer of the weights; cannot be used with a table.
        embeddings_constraint: Constraint of the weights; cannot be used with a table.
        ev_option: fe.EmbeddingVariableOption: filters, expiry, bounds. With an option the layer has
            an EmbeddingVariable, whatever `input_dim` is.
        compression: Keeps the table in several parts, in fewer bytes: fe.keras.MultiHash,
            DynamicDimension or Adaptive. None: in one.
        mask_zero: Whether later layers skip the positions of id 0.
        **kwargs: Arguments of keras.layers.Layer, such as `name` and `dtype`.
    """

    supports_masking: bool

    def __init__(
        self,
        input_dim: int | None = None,
        output_dim: int | None = None,
        *,
        mask_zero: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(input_dim, output_dim, **kwargs)
        self.mask_zero = mask_zero
        self.supports_masking = mask_zero

    def call(self, inputs: Any, training: Any = None) -> Any:
        """Looks up ids.

        Args:
            inputs: `[...]` int32 or int64 ids.
            training: If False, a table does not change. A layer that is not trainable never changes
                it.

        Returns:
            `[..., output_dim]` rows; ragged for ragged ids.
        """
        ids = self._checked_ids(inputs)
        with self._reading(training):
            rows = self._look_up(ids)
        return tf.cast(rows, self.compute_dtype)

    def _look_up(self, ids: Any) -> Any:
        if isinstance(ids, tf.RaggedTensor):
            return ids.with_flat_values(self._look_up(ids.flat_values))
        if isinstance(ids, tf.SparseTensor):
            rows = deeprec_signatures.fused_safe_embedding_lookup_sparse(
                self._params, tf.sparse.expand_dims(ids, -1), combiner="sum", default_id=0
            )
            rows.set_shape(ids.shape.concatenate([self.output_dim]))
            return rows
        return group_signatures.group_embedding_lookup([self._params], [ids])[0]

    def pending_lookup(self, ids: Any, rule: KeyRule, weights: Any = None) -> PendingLookup:
        """What `call` does, for the op of a group.

        Args:
            ids: Values that `rule` makes ids of.
            rule: How a value becomes an id.
            weights: None.

        Returns:
            A lookup with the result of `call`.
        """
        if rule.kind == "identity":
            self._check_dtype(ids)
        return rows_of_ids(self._params, ids, rule, self.compute_dtype)

    def takes_values(self, values: Any) -> bool:
        """Whether `pending_lookup` takes ragged or sparse values that its rule makes ids of."""
        return isinstance(values, tf.RaggedTensor)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """The mask of ids that are not 0, if `mask_zero` is set.

        Args:
            inputs: Ids.
            mask: Ignored.

        Returns:
            Booleans of the shape of `inputs`, or None without `mask_zero`.
        """
        if not self.mask_zero:
            return None
        return (self._keras.ops if self._is_keras_3 else tf).not_equal(inputs, 0)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Shape of the result.

        Args:
            input_shape: Shape of the ids.

        Returns:
            The shape of the ids with `output_dim` appended.
        """
        return (*input_shape, self.output_dim)

    def compute_output_spec(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The symbolic result of `call`; ragged for ragged ids.

        Args:
            inputs: Symbolic ids.
            *args: Further arguments of `call`.
            **kwargs: Further arguments of `call`.

        Returns:
            A KerasTensor.
        """
        spec = super().compute_output_spec(inputs, *args, **kwargs)
        if not getattr(inputs, "ragged", False):
            return spec
        return self._keras.KerasTensor(spec.shape, dtype=spec.dtype, ragged=True)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, for serialization.

        Returns:
            A dictionary.
        """
        return {**super().get_config(), "mask_zero": self.mask_zero}


class _EmbeddingBag(TableLayer):
    """Combines the embeddings of each row's ids: tf.nn.safe_embedding_lookup_sparse as a layer.

    `EmbeddingBag(1000, 16)` has 1000 rows. `EmbeddingBag(output_dim=16)` has an EmbeddingVariable:
    any id >= 0 has a row. With training=False, a table does not change, and ids without a row read
    their first value.

    Call it with int32 or int64 ids: a SparseTensor, a RaggedTensor of rank 2, or a dense tensor
    `[..., ids in a row]`; ids < 0 are padding. Weights of the ids are optional, and have the same
    tensor type and shape as the ids: `layer(ids, weights=weights)`.

    Args:
        input_dim: Number of rows; None: an EmbeddingVariable.
        output_dim: Length of a row.
        combiner: "sum": sum(w e). "mean": sum(w e) / sum(w). "sqrtn": sum(w e) / sqrt(sum(w^2)).
        embeddings_initializer: Initializer of the rows; None: "uniform" of keras.layers.Embedding,
            or the default of fe.get_embedding_variable for a table.
        embeddings_regularizer: Regularizer of the weights; cannot be used with a table.
        embeddings_constraint: Constraint of the weights; cannot be used with a table.
        ev_option: fe.EmbeddingVariableOption: filters, expiry, bounds. With an option the layer has
            an EmbeddingVariable, whatever `input_dim` is.
        compression: Keeps the table in several parts, in fewer bytes: fe.keras.MultiHash,
            DynamicDimension or Adaptive. None: in one.
        max_norm: L2 norm that each embedding is clipped to before it is combined.
        default_id: Id whose embedding a row without ids gets; None: zeros.
        **kwargs: Arguments of keras.layers.Layer, such as `name` and `dtype`.
    """

    def __init__(
        self,
        input_dim: int | None = None,
        output_dim: int | None = None,
        *,
        combiner: str = "mean",
        max_norm: float | None = None,
        default_id: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(input_dim, output_dim, **kwargs)
        options = make_options(combiner, max_norm, default_id)  # raises
        self.combiner = options.combiner
        self.max_norm = options.max_norm
        self.default_id = options.default_id

    def call(self, inputs: Any, weights: Any = None, training: Any = None) -> tf.Tensor:
        """Looks up ids and combines the embeddings of each row.

        Args:
            inputs: `[..., ids in a row]` int32 or int64 ids.
            weights: Weight of each id, with the tensor type and shape of `inputs`; None: all 1. Ids
                with a weight that is not > 0 are dropped unless the combiner is "sum".
            training: If False, a table does not change. A layer that is not trainable never changes
                it.

        Returns:
            `[..., output_dim]` combined embeddings.
        """
        ids = self._checked_ids(inputs)
        if weights is not None:
            weights = self._checked_weights(weights, ids)
        is_dense = not isinstance(ids, tf.SparseTensor | tf.RaggedTensor)
        if is_dense and weights is not None:
            weights = tf.reshape(weights, [-1])
        with self._reading(training):
            rows = deeprec_signatures.fused_safe_embedding_lookup_sparse(
                self._params,
                self._as_ragged(ids) if is_dense else ids,
                weights,
                combiner=self.combiner,  # type: ignore[arg-type]  # checked
                max_norm=self.max_norm,
                default_id=self.default_id,
            )
        if is_dense and ids.shape.rank != 2:
            rows = tf.reshape(rows, tf.concat([tf.shape(ids)[:-1], [self.output_dim]], axis=0))
        rows.set_shape(self.compute_output_shape(ids.shape))
        return tf.cast(rows, self.compute_dtype)

    def pending_lookup(self, ids: Any, rule: KeyRule, weights: Any = None) -> PendingLookup:
        """What `call` does, for the op of a group.

        Args:
            ids: Values that `rule` makes ids of.
            rule: How a value becomes an id.
            weights: Weight of each id, or None.

        Returns:
            A lookup with the result of `call`.
        """
        if rule.kind == "identity":
            self._check_dtype(ids)
        if isinstance(ids, tf.Tensor):
            self._check_rank(ids)
        if weights is not None:
            weights = self._checked_weights(weights, ids)
        options = make_options(self.combiner, self.max_norm, self.default_id)
        return combined_rows(self._params, ids, rule, weights, options, self.compute_dtype)

    def pending_parsed(self, ids: ParsedIds) -> PendingLookup:
        """`pending_lookup` of ids that were made while examples were parsed.

        Args:
            ids: Of the examples.

        Returns:
            A lookup with the result of `call`.
        """
        options = make_options(self.combiner, self.max_norm, self.default_id)
        return combined_parsed(self._params, ids, options, self.compute_dtype)

    def takes_values(self, values: Any) -> bool:
        """Whether `pending_lookup` takes ragged or sparse values that its rule makes ids of."""
        return is_readable(values)

    def _check_rank(self, ids: tf.Tensor) -> None:
        if ids.shape.rank is None or ids.shape.rank < 2:
            raise ValueError(
                f"the layer {self.name!r} was called with ids of shape {ids.shape}, but "
                "[batch, ids in a row] is required; for one id in a row, append a dimension: "
                "ids[:, None]"
            )

    def _as_ragged(self, ids: tf.Tensor) -> tf.RaggedTensor:
        """Dense ids as ragged rows of one length, for the lookup, which then prunes the padding."""
        self._check_rank(ids)
        shape = tf.shape(ids, tf.int64)
        return tf.RaggedTensor.from_uniform_row_length(
            tf.reshape(ids, [-1]), shape[-1], nrows=tf.reduce_prod(shape[:-1]), validate=False
        )

    def _checked_weights(self, weights: Any, ids: Any) -> Any:
        is_tensor = isinstance(weights, tf.SparseTensor | tf.RaggedTensor)
        weights = weights if is_tensor else tf.convert_to_tensor(weights)
        if _kind(weights) != _kind(ids) or not weights.shape.is_compatible_with(ids.shape):
            raise ValueError(
                f"the layer {self.name!r} was called with weights that are a {_kind(weights)} of "
                f"shape {weights.shape}, and ids that are a {_kind(ids)} of shape {ids.shape}; "
                "pass a weight for each id, in the same way"
            )
        return weights

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Shape of the result.

        Args:
            input_shape: Shape of the ids.

        Returns:
            The shape of the ids with `output_dim` as the last dimension.
        """
        return (*tuple(input_shape)[:-1], self.output_dim)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, for serialization.

        Returns:
            A dictionary.
        """
        return {
            **super().get_config(),
            "combiner": self.combiner,
            "max_norm": self.max_norm,
            "default_id": self.default_id,
        }


@functools.cache
def layer_classes(keras: Any) -> SimpleNamespace:
    """The layer classes for a Keras module, registered with it."""
    as_serializable = keras.saving.register_keras_serializable(package=PACKAGE)
    attributes = {
        "__module__": __name__,
        "_keras": keras,
        "_is_keras_3": hasattr(keras, "Variable"),
    }
    layer = keras.layers.Layer
    bases = [(name, mixin, layer) for name, mixin in _MIXINS.items()]
    bases += [(name, mixin, getattr(keras.layers, name)) for name, mixin in STAND_INS.items()]
    return SimpleNamespace(
        **{
            name: as_serializable(
                type(name, (mixin, base), {**attributes, "__doc__": mixin.__doc__})
            )
            for name, mixin, base in bases
        }
    )


# THE list of layers that are no stand-ins.
_MIXINS: dict[str, Any] = {
    "Embedding": _Embedding,
    "EmbeddingBag": _EmbeddingBag,
    "EmbeddingGroup": GroupLayer,
}


def fused_layers(keras: Any = None) -> SimpleNamespace:
    """The layers of this package for one Keras module: docs/training.md#layers.

    A Keras that was imported before this package can load models that were saved with these layers.
    For a Keras that was imported later, call this function before loading such a model.

    Args:
        keras: The module that the layers are for: keras, tf_keras, tf.keras; None: tf.keras.

    Returns:
        A namespace with the classes Embedding, EmbeddingBag, EmbeddingGroup, StringLookup and
        IntegerLookup. `fe.keras.layers` has those for tf.keras.

    >>> layer = fe.keras.fused_layers().EmbeddingBag(output_dim=4, combiner="sum")
    >>> layer(tf.constant([[7, 1 << 60], [7, -1]])).shape
    TensorShape([2, 4])
    """
    module = keras_of((keras or tf.keras).layers.Layer)
    register(module)
    return layer_classes(module)


def embedding_layer(keras: Any = None) -> Any:
    """Makes layers with an EmbeddingVariable; an older name of what `fused_layers` provides.

    Args:
        keras: The module that the layers are for: keras, tf_keras, tf.keras; None: tf.keras.

    Returns:
        `make(output_dim, combiner=None, *, initializer=None, **options)`, which makes an Embedding,
        or with a combiner an EmbeddingBag.
    """
    layers = fused_layers(keras)

    def make(output_dim: int, combiner: str | None = None, **options: Any) -> Any:
        options["embeddings_initializer"] = options.pop("initializer", None)
        if combiner is None:
            return layers.Embedding(output_dim=output_dim, **options)
        return layers.EmbeddingBag(output_dim=output_dim, combiner=combiner, **options)

    return make


def __getattr__(name: str) -> Any:
    """The layers for tf.keras, which is imported when the first of them is used."""
    if name not in _MIXINS and name not in STAND_INS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(fused_layers(), name)


def __dir__() -> list[str]:
    return sorted([*_MIXINS, *STAND_INS])
