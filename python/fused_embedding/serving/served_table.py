"""An EmbeddingVariable in an export of stock ops: a hash table from key to row, and the rows."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from fused_embedding.serving.first_values import COMPUTED_KINDS, Initializer, first_values


class TableContent(NamedTuple):
    """What lookups of an EmbeddingVariable can read.

    Attributes:
        name: Of the variable.
        keys: `[n]` int64.
        values: `[n, dim]`.
        initializer: What other keys read.
        matrix: `[m, dim]` for the initializer "matrix": key k reads row k mod m.
    """

    name: str
    keys: Any
    values: Any
    initializer: Initializer
    matrix: Any


def table_content(name: str, attributes: Any, exported: Any) -> TableContent:
    """The content of a table as inference reads it.

    Args:
        name: Of the variable.
        attributes: Gives the attrs of its handle op by name.
        exported: Outputs of the op EmbeddingVariableExport, by name, as eager tensors or arrays.

    Returns:
        The content, without anything that only training needs.
    """
    a, b = (float(number) for number in np.asarray(exported["initializer_parameters"]))
    kind = bytes(np.asarray(exported["initializer"]).item()).decode()
    initializer = Initializer(kind, a, b, int(np.asarray(exported["seed"])))
    if attributes["admission"] != "all":  # keys without a row were not admitted
        initializer = Initializer("constant", float(attributes["no_permission_value"]), 0.0, 0)
    keys, values = exported["keys"], exported["values"]
    return TableContent(name, keys, values, initializer, exported["initializer_matrix"])


def default_rows(content: TableContent) -> tf.Tensor:
    """`[m, dim]`: key k without a row reads row k mod m; zeros where first values are computed."""
    if content.initializer.kind == "matrix":
        return tf.convert_to_tensor(content.matrix)
    value = content.initializer.a if content.initializer.kind == "constant" else 0.0
    values = tf.convert_to_tensor(content.values)
    return tf.cast(tf.fill([1, values.shape.as_list()[1]], np.float64(value)), values.dtype)


class ServedTable:
    """A table that lookups read by key, of stock resources. Nothing inserts into it.

    Attributes:
        name: Of the EmbeddingVariable.
        index: Table from key to the row of `rows`, both int64.
        rows: Variable `[n, dim]`. Its first rows, as many as `num_defaults`, are for keys that are
            not in `index`: key k reads row k mod num_defaults, or where first values are computed
            one that is not looked at.
    """

    def __init__(self, content: TableContent) -> None:
        self.name = content.name
        self._initializer = content.initializer
        defaults = default_rows(content)
        self.num_defaults = defaults.shape.as_list()[0]
        self.rows = tf.Variable(
            tf.concat([defaults, content.values], axis=0),
            shape=[None, defaults.shape.as_list()[1]],  # rows may be added later
            trainable=False,
            name=f"{content.name}/rows",
        )
        self.index = tf.lookup.experimental.MutableHashTable(
            tf.int64, tf.int64, default_value=0, name="index"
        )
        positions = self.num_defaults + tf.range(tf.size(content.keys, tf.int64))
        self.index.insert(content.keys, positions)

    def read(self, keys: tf.Tensor) -> tf.Tensor:
        """The rows of keys, as inference reads them.

        Args:
            keys: `[n]` int64.

        Returns:
            `[n, dim]`.
        """
        defaults = tf.math.floormod(keys, tf.constant(self.num_defaults, tf.int64))
        positions = self.index.lookup(keys, defaults)
        rows = tf.gather(self.rows, positions)
        if self._initializer.kind not in COMPUTED_KINDS:
            return rows
        unknown = tf.where(positions < self.num_defaults)
        unknown_keys = tf.gather(keys, unknown[:, 0])
        dim = self.rows.shape.as_list()[1]
        first = first_values(self._initializer, unknown_keys, dim, self.rows.dtype)
        return tf.tensor_scatter_nd_update(rows, unknown, first)
