"""Tables whose rows are put together from the rows of other tables."""

import contextlib
from collections.abc import Iterator
from typing import NoReturn

import tensorflow as tf

from fused_embedding.variable.reads import refuse_dense


class ComposedTable(tf.Module):
    """A table whose rows are put together from the rows of other tables: its parts.

    Lookups of `fe.nn` and feature columns take it where they take a table. Its parts are ordinary
    variables and EmbeddingVariables, which optimizers train and savers save under their own names.

    Attributes:
        dim: Length of an embedding.
        dtype: Type of the values.
        trainable: Whether lookups insert keys, and tapes watch the parts.
    """

    def __init__(self, name: str, dim: int, dtype: tf.DType, trainable: bool = True) -> None:
        super().__init__()
        self._table_name = name
        self.dim = dim
        self.dtype = dtype
        self.trainable = trainable

    @property
    def name(self) -> str:
        """Name in the variable scope, which the names of the parts start with."""
        return self._table_name

    @property
    def shape(self) -> tf.TensorShape:
        """`[?, dim]`."""
        return tf.TensorShape([None, self.dim])

    def as_tensor(self) -> NoReturn:
        """Raises NotImplementedError: the table has no dense tensor."""
        refuse_dense(self.name)


tf.register_tensor_conversion_function(
    ComposedTable, lambda value, *args, **kwargs: refuse_dense(value.name)
)


@contextlib.contextmanager
def without_partitioner() -> Iterator[None]:
    """The current variable scope, whose partitioner variables made inside do not get.

    Yields:
        Nothing.
    """
    scope = tf.compat.v1.get_variable_scope()
    with tf.compat.v1.variable_scope(scope, auxiliary_name_scope=False) as inner:
        inner.set_partitioner(None)
        yield


def full_name(name: str) -> str:
    """The name of a variable `name` in the current variable scope.

    Args:
        name: What a user called it.
    """
    scope = tf.compat.v1.get_variable_scope().name
    return f"{scope}/{name}" if scope else name
