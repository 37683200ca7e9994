"""The common base of Keras layers with a table: the table, its files, its configuration."""

import contextlib
import math
import numbers
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding.keras import compression as compressions
from fused_embedding.keras.compression import Compression
from fused_embedding.keras.table_of import held_table
from fused_embedding.keras.variables import variable, with_counted_shape
from fused_embedding.lookup.names import lookups_of
from fused_embedding.train.hook import note_loaded_slots
from fused_embedding.variable.composed import ComposedTable
from fused_embedding.variable.content import content_dtypes, export_whole, import_whole
from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.inference import inference_unless_trained
from fused_embedding.variable.options import EmbeddingVariableOption, from_config, to_config
from fused_embedding.variable.partitions import parts_of
from fused_embedding.variable.scope import AnyEmbeddingVariable, get_embedding_variable


def _as_array(tensor: tf.Tensor) -> np.ndarray:
    """Converts a tensor for a file of Keras, in which empty numpy strings are not preserved."""
    if tensor.dtype != tf.string:
        return tensor.numpy()
    return np.frombuffer(tf.io.serialize_tensor(tensor).numpy(), np.uint8)


def _as_tensor(array: Any, dtype: tf.DType) -> tf.Tensor:
    values = np.asarray(array)
    if dtype != tf.string:
        return tf.constant(values, dtype)
    return tf.io.parse_tensor(values.tobytes(), tf.string)


def _size(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(
            f"{name} must be an integer > 0, got {value!r}; Embedding(1000, 16) has 1000 rows of "
            "length 16, Embedding(output_dim=16) any number of them"
        )
    return int(value)


def _load_table(parts: list[EmbeddingVariable], store: Any, prefix: str) -> None:
    """Replaces the content of a table by that of a file."""
    dtypes = content_dtypes(parts[0])
    content = {name: _as_tensor(store[prefix + name], dtype) for name, dtype in dtypes.items()}
    import_whole(parts, content)
    if tf.executing_eagerly():
        names = content["slot_names"].numpy().tolist()
        for part in parts:
            note_loaded_slots(part, [name.decode() for name in names])


class TableLayer:
    """Mixin for layers whose weights are one table; it precedes Keras's Layer in the bases."""

    name: str
    dtype: Any
    trainable: bool
    built: bool
    compute_dtype: Any
    embeddings: Any
    add_weight: Any
    _keras: Any  # the module
    _is_keras_3: bool  # Keras 3 tracks only variables of its own class

    def __init__(  # noqa: PLR0913  # keras.layers.Embedding's, and what the table is
        self,
        input_dim: int | None = None,
        output_dim: int | None = None,
        *,
        embeddings_initializer: Any = None,
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        ev_option: EmbeddingVariableOption | None = None,
        compression: Compression | None = None,
        **kwargs: Any,
    ) -> None:
        num_rows = None if input_dim is None else _size("input_dim", input_dim)
        dim = _size("output_dim", output_dim)
        if not isinstance(ev_option, EmbeddingVariableOption | None):
            raise TypeError(f"ev_option must be an fe.EmbeddingVariableOption, got {ev_option!r}")
        if not isinstance(compression, Compression | None):
            raise TypeError(
                "compression must be a fe.keras.MultiHash, fe.keras.DynamicDimension or "
                f"fe.keras.Adaptive, got {compression!r}"
            )
        # Keras casts what a layer is called with to float: above 2^24 ids would change.
        super().__init__(autocast=False, **kwargs)  # type: ignore[call-arg]
        self.supports_jit = False  # XLA knows no ops of ours
        self.input_dim = num_rows
        self.output_dim = dim
        self.embeddings_initializer = self._as_initializer(embeddings_initializer)
        self.embeddings_regularizer = self._keras.regularizers.get(embeddings_regularizer)
        self.embeddings_constraint = self._keras.constraints.get(embeddings_constraint)
        self.ev_option = ev_option
        self.compression = compression
        if compression is not None:
            compression.check(self)
        if self._has_table and (self.embeddings_regularizer or self.embeddings_constraint):
            raise ValueError(
                f"the layer {self.name!r} has no input_dim, or an ev_option, and so an "
                "EmbeddingVariable, which embeddings_regularizer and embeddings_constraint cannot "
                "read as a whole; leave them out, or regularize the layer's output"
            )

    @classmethod
    def _as_initializer(cls, given: Any) -> Any:
        """Converts a name or a configuration. Tables accept more than Keras's `get` does."""
        initializers = cls._keras.initializers
        if isinstance(given, str):
            return initializers.get(given)
        return initializers.deserialize(given) if isinstance(given, dict) else given

    @property
    def _has_table(self) -> bool:
        if self.compression is not None:
            return self.compression.has_keys
        return self.input_dim is None or self.ev_option is not None

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the layer; see `call`. Keras before 3.4 makes floats of an array's integers."""
        if isinstance(inputs, np.ndarray):
            inputs = tf.convert_to_tensor(inputs)
        return super().__call__(inputs, *args, **kwargs)  # type: ignore[misc]

    # --- The table ---

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights.

        Args:
            input_shape: Ignored.
        """
        if self.built:
            return
        for name, weight in self._new_parts().items():
            setattr(self, name, weight)
        self.built = True

    def _new_parts(self) -> dict[str, Any]:
        """Weights, by the attributes that they are to be."""
        if self.compression is not None:
            return self.compression.make_parts(self)
        return {"embeddings": self._new_table() if self._has_table else self._new_weights()}

    def table_arguments(self) -> dict[str, Any]:
        """Arguments of `get_embedding_variable` for the tables of this layer."""
        return {
            "value_dtype": getattr(self, "variable_dtype", None) or self.dtype,
            "initializer": self.embeddings_initializer,
            "trainable": self.trainable,
        }

    def as_weight(self, table: AnyEmbeddingVariable) -> Any:
        """What Keras tracks: tf_keras the table itself, Keras 3 its own variables.

        Args:
            table: An EmbeddingVariable of this layer.
        """
        if self._is_keras_3:
            return variable(table)
        for part in parts_of(table):
            with_counted_shape(part)
        return table

    def _new_table(self) -> Any:
        table = get_embedding_variable(
            f"{self.name}/embeddings",
            self.output_dim,
            ev_option=self.ev_option,
            **self.table_arguments(),
        )
        return self.as_weight(table)

    def _new_weights(self) -> Any:
        initializer = self.embeddings_initializer
        return self._add_weight(
            shape=(self.input_dim, self.output_dim),
            initializer="uniform" if initializer is None else initializer,
            name="embeddings",
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
        )

    def new_dense_part(self, name: str, shape: Sequence[int]) -> Any:
        """Makes an ordinary weight that is a part of a table.

        Args:
            name: Of the weight.
            shape: `[rows, dim]`.
        """
        default = self._keras.initializers.TruncatedNormal(stddev=1 / math.sqrt(shape[1]))
        initializer = self.embeddings_initializer
        return self._add_weight(
            shape=tuple(shape),
            initializer=default if initializer is None else initializer,
            name=name,
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
        )

    def new_integers(self, name: str, values: np.ndarray) -> Any:
        """Makes an integer weight that is not trained.

        Args:
            name: Of the weight.
            values: `[n]` int64, its first value.
        """
        return self._add_weight(
            shape=values.shape,
            dtype="int64",
            initializer=lambda *args, **kwargs: tf.constant(values),
            name=name,
            trainable=False,
        )

    def _add_weight(self, **arguments: Any) -> Any:
        # Keras 3 has no such argument in its first versions; see _params.
        others = {} if self._is_keras_3 else {"experimental_autocast": False}
        return self.add_weight(**arguments, **others)

    @property
    def table(self) -> AnyEmbeddingVariable | ComposedTable:
        """The EmbeddingVariable, or the table of several parts, once the layer is built.

        Raises:
            AttributeError: For a layer that has ordinary weights, which are `embeddings`.
        """
        held = self._params
        if not isinstance(held, AnyEmbeddingVariable | ComposedTable):
            raise AttributeError(
                f"the layer {self.name!r} has input_dim = {self.input_dim} and so no "
                "EmbeddingVariable; its weights are layer.embeddings"
            )
        return held

    @property
    def _params(self) -> Any:
        """The table for fe.nn."""
        if self.compression is not None:
            return self.compression.table(self)
        return held_table(self.embeddings)

    @contextlib.contextmanager
    def _reading(self, training: Any) -> Iterator[None]:
        """The context of a lookup."""
        with inference_unless_trained(self, training), lookups_of(f"layer {self.name!r}"):
            yield

    def _checked_ids(self, ids: Any) -> Any:
        """Converts ids to a tensor, after a check of their dtype."""
        is_tensor = isinstance(ids, tf.SparseTensor | tf.RaggedTensor)
        ids = ids if is_tensor else tf.convert_to_tensor(ids)
        self._check_dtype(ids)
        return ids

    def _check_dtype(self, ids: Any) -> None:
        if tf.as_dtype(ids.dtype) not in (tf.int32, tf.int64):
            raise TypeError(
                f"the layer {self.name!r} was called with ids of dtype "
                f"{tf.as_dtype(ids.dtype).name}, but int32 or int64 is required; give an Input its "
                'dtype: keras.Input(shape, dtype="int64")'
            )

    def compute_output_spec(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Shape and dtype of a symbolic result, in Keras 3.

        Args:
            inputs: Symbolic ids.
            *args: Further arguments of `call`.
            **kwargs: Further arguments of `call`.

        Returns:
            A KerasTensor.
        """
        self._check_dtype(inputs)
        return super().compute_output_spec(inputs, *args, **kwargs)  # type: ignore[misc]

    # --- Files ---

    def save_own_variables(self, store: Any) -> None:
        """Writes the weights to a file of Keras; for a table its whole content, slots included.

        Args:
            store: Keras's mapping from names to arrays.
        """
        keyed, dense = self._own_parts()
        if not keyed and self.compression is None:
            super().save_own_variables(store)  # type: ignore[misc]
            return
        for prefix, table in keyed.items():
            for name, value in export_whole(parts_of(table)).items():
                store[prefix + name] = _as_array(value)
        for name, part in dense.items():
            store[name] = part.numpy()

    def _own_parts(self) -> tuple[dict[str, AnyEmbeddingVariable], dict[str, Any]]:
        """EmbeddingVariables by the prefix of their names in files; variables by their names."""
        if self.compression is None:
            return {"": self._params} if self._has_table else {}, {}
        parts = {name: held_table(getattr(self, name)) for name in self.compression.part_names()}
        keyed = {
            f"{n}-": part for n, part in parts.items() if isinstance(part, AnyEmbeddingVariable)
        }
        return keyed, {n: part for n, part in parts.items() if f"{n}-" not in keyed}

    def load_own_variables(self, store: Any) -> None:
        """Replaces the weights, or the content of the table, by those of a file.

        Args:
            store: What gives arrays by name.

        Raises:
            ValueError: If the file has a table where the layer has none, or the other way round.
        """
        keyed, dense = self._own_parts()
        if not keyed and self.compression is None:
            super().load_own_variables(store)  # type: ignore[misc]
            return
        wanted = {
            prefix + name
            for prefix, table in keyed.items()
            for name in content_dtypes(parts_of(table)[0])
        }
        missing = sorted((wanted | set(dense)) - set(store.keys()))
        if missing:
            raise ValueError(
                f"the layer {self.name!r} has {self._what_it_has()}, but the file has "
                f"{sorted(store.keys())} for it and not {missing}; load it into the layer that "
                "was saved: one with input_dim, if it had that, and with its compression"
            )
        for prefix, table in keyed.items():
            _load_table(parts_of(table), store, prefix)
        for name, part in dense.items():
            part.assign(np.asarray(store[name]))

    def _what_it_has(self) -> str:
        return "an EmbeddingVariable" if self.compression is None else str(self.compression)

    def get_config(self) -> dict[str, Any]:
        """The arguments.

        Returns:
            A dictionary.
        """
        keras = self._keras

        def serialize(initializer: Any) -> Any:
            has_config = hasattr(initializer, "get_config")
            return keras.initializers.serialize(initializer) if has_config else initializer

        return {
            **super().get_config(),  # type: ignore[misc]
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "embeddings_initializer": serialize(self.embeddings_initializer),
            "embeddings_regularizer": keras.regularizers.serialize(self.embeddings_regularizer),
            "embeddings_constraint": keras.constraints.serialize(self.embeddings_constraint),
            "ev_option": self.ev_option and to_config(self.ev_option, serialize),
            "compression": compressions.to_config(self.compression),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """The layer of `get_config`.

        Args:
            config: What that returned.

        Returns:
            A layer that is not built.
        """
        option = from_config(config["ev_option"], cls._as_initializer)
        compression = compressions.from_config(config.get("compression"))
        return super().from_config(  # type: ignore[misc]
            {**config, "ev_option": option, "compression": compression}
        )
