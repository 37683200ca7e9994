"""EmbeddingVariables as variables of Keras."""

import functools
import weakref
from typing import Any

import tensorflow as tf

from fused_embedding.keras.table_training import register
from fused_embedding.variable.embedding_variable import EmbeddingVariable


class _CountedShape(tf.TensorShape):
    """`[?, dim]`, whose as_list() is `[rows, dim]` outside of graphs.

    Keras 2 counts the parameters of a model by as_list() of the shapes of its weights.
    """

    def __init__(self, table: EmbeddingVariable):
        super().__init__([None, table.embedding_dim])
        self._table = weakref.ref(table)

    def as_list(self) -> list[int | None]:
        """The number of rows that there are now, None in a graph, and the length of a row."""
        table = self._table()
        dim = int(self[1])
        if table is None or not tf.executing_eagerly():
            return [None, dim]
        return [int(table.total_count()), dim]

    def __reduce__(self) -> Any:
        return tf.TensorShape, ([None, int(self[1])],)


def with_counted_shape(table: EmbeddingVariable) -> EmbeddingVariable:
    """Makes Keras 2 count the parameters of a table as rows times row length."""
    table._shape = _CountedShape(table)
    return table


class _ShapeOfTable(tf.TensorShape):
    """`[rows, dim]` at present; equal to the shape of a snapshot with any number of rows.

    Keras 3 counts parameters by it, and compares it with the shape of a value to be set.
    """

    def __eq__(self, other: object) -> bool:
        try:
            shape = tf.TensorShape(other)
        except (TypeError, ValueError):
            return False
        return shape.rank == 2 and shape[1] == self[1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tf.TensorShape.__hash__


class _ValueOfTable:
    """The methods of a weight's value that Keras 3 uses."""

    _value: Any

    @property
    def shape(self) -> tf.TensorShape:
        """`[rows, dim]` of the table at present."""
        with tf.init_scope():
            rows = int(self._value.total_count())
        return _ShapeOfTable([rows, self._value.embedding_dim])

    def numpy(self) -> Any:
        """The table's keys and rows."""
        return self._value.numpy()

    def assign(self, value: Any) -> Any:
        """Sets the table's keys and rows; `value` is a result of numpy()."""
        self._value.assign(value)
        return value


@functools.cache
def _keras_3_variable(keras: Any) -> type:
    class TableVariable(_ValueOfTable, keras.Variable):
        """A variable that Keras 3 tracks in a layer, and whose value is the table.

        The value that the base class makes has no rows. The handle is the table's, so gradient
        tapes differentiate with respect to the table.
        """

        def __init__(self, table: EmbeddingVariable):
            super().__init__(
                initializer="zeros",
                shape=(0, table.embedding_dim),
                dtype=table.dtype.name,
                trainable=table.trainable,
                name=table.name.split(":")[0].replace("/", "_"),
            )
            self._value = table
            self._autocast = False  # a table cannot be cast

        def _deferred_initialize(self) -> None:
            """Does nothing: Keras defers values while it infers shapes, but the table exists."""

        # tf.train.Checkpoint and SavedModels find the table as a child of this object.

        def _trackable_children(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
            return {**super()._trackable_children(*args, **kwargs), "table": self._value}

        def _serialize_to_tensors(self) -> dict[str, Any]:
            return {}

        def _restore_from_tensors(self, restored_tensors: dict[str, Any]) -> None:
            """Does nothing: there are no tensors."""

        def _export_to_saved_model_graph(self, *args: Any, **kwargs: Any) -> list[Any]:
            return []

        def _write_object_proto(self, proto: Any, options: Any) -> None:
            proto.user_object.identifier = "_generic_user_object"
            proto.user_object.version.producer = proto.user_object.version.min_consumer = 1

    return TableVariable


def variable(table: EmbeddingVariable) -> Any:
    """Wraps an EmbeddingVariable as a keras.Variable, for an attribute of a layer of Keras 3.

    Keras 3 tracks only variables of its own class, so a layer that owns a table must have this
    wrapper as an attribute. Every function of fe.nn takes it. A layer of tf_keras keeps the
    EmbeddingVariable itself.

    Args:
        table: An unpartitioned EmbeddingVariable.

    Returns:
        A keras.Variable with the table as its value, of shape `[rows, dim]` as of now.
    """
    import keras

    if not isinstance(table, EmbeddingVariable):
        raise TypeError(f"an EmbeddingVariable without partitions is required, got {table!r}")
    if not hasattr(keras, "Variable"):
        raise TypeError(
            f"layers of Keras {keras.__version__} track an EmbeddingVariable itself: assign it to "
            "an attribute of the layer"
        )
    register(keras)
    return _keras_3_variable(keras)(table)
