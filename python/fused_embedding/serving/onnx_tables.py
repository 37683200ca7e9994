"""An EmbeddingVariable in an ONNX file: a LabelEncoder from key to row, and the rows."""

from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from fused_embedding.serving.first_values import Initializer
from fused_embedding.serving.served_table import TableContent, default_rows

# Stands for a lookup until tf2onnx asks `OnnxTables.convert` for it. Of all stock ops it is one
# that a copied graph never has, that nothing folds or merges, and that has room for a name.
LOOKUP_OP = "PyFunc"
_FLOATS = (tf.float32, tf.float64)


class OnnxTable:
    """A table that lookups read by key.

    Args:
        content: What inference can read.
        token: Names the table in the graph.
    """

    def __init__(self, content: TableContent, token: str) -> None:
        self._token = token
        self._name = content.name
        content = content._replace(initializer=_as_rows(content.name, content.initializer))
        defaults = default_rows(content).numpy()
        values = np.asarray(content.values)
        self._dtype = tf.as_dtype(values.dtype)
        # 16-bit types: exact, and not every runtime gathers them.
        stored = self._dtype if self._dtype in _FLOATS else tf.float32
        self._rows = np.concatenate([defaults, values]).astype(stored.as_numpy_dtype)
        self._num_defaults = len(defaults)
        self._keys = np.asarray(content.keys)

    @property
    def size_bytes(self) -> int:
        """Of keys, positions and rows."""
        return 2 * self._keys.nbytes + self._rows.nbytes

    def read(self, keys: tf.Tensor) -> tf.Tensor:
        """What stands for the rows of keys, as ServedTable.read.

        Args:
            keys: `[n]` int64.

        Returns:
            `[n, dim]`.
        """
        stored = tf.as_dtype(self._rows.dtype)
        rows = tf.raw_ops.PyFunc(input=[keys], token=self._token, Tout=[stored])[0]
        return tf.cast(tf.reshape(rows, [-1, self._rows.shape[1]]), self._dtype)

    def occurrences(self, keys: tf.Tensor) -> NoReturn:
        """Raises NotImplementedError: an ONNX file says only what rows keys read."""
        raise NotImplementedError(
            f"a lookup asks which keys of the EmbeddingVariable {self._name!r} have a row, as "
            "those of adaptive tables and of blocks by frequency do, and an ONNX file does not "
            'say: leave out format="onnx"'
        )

    def convert(self, ctx: Any, keys: str, output: str, dtype: int) -> None:
        """Builds the lookup in a graph of tf2onnx.

        Args:
            ctx: The graph.
            keys: Name of `[n]` int64.
            output: Name of the result, `[n, dim]`.
            dtype: Of the result, as ONNX numbers it.
        """
        positions = self._positions(ctx, keys)
        # Lookups of one table share its rows.
        rows = f"{self._token}/rows"
        if ctx.get_node_by_name(rows) is None:
            ctx.make_const(rows, self._rows)
        shape = [-1, self._rows.shape[1]]
        ctx.make_node("Gather", [rows, positions], outputs=[output], shapes=[shape], dtypes=[dtype])

    def _positions(self, ctx: Any, keys: str) -> str:
        if not len(self._keys):
            return self._default_positions(ctx, keys)
        encoder = ctx.make_node(
            "LabelEncoder",
            [keys],
            domain="ai.onnx.ml",
            attr={
                "keys_int64s": self._keys.tolist(),
                "values_int64s": list(range(self._num_defaults, len(self._rows))),
                "default_int64": 0 if self._num_defaults == 1 else -1,
            },
        )
        found = encoder.output[0]
        if self._num_defaults == 1:
            return found
        zero = _constant(ctx, self._token, 0)
        is_unknown = ctx.make_node("Less", [found, zero]).output[0]
        defaults = self._default_positions(ctx, keys)
        return ctx.make_node("Where", [is_unknown, defaults, found]).output[0]

    def _default_positions(self, ctx: Any, keys: str) -> str:
        modulus = _constant(ctx, self._token, self._num_defaults)
        return ctx.make_node("Mod", [keys, modulus]).output[0]


def _constant(ctx: Any, token: str, value: int) -> str:
    name = f"{token}/{value}"
    if ctx.get_node_by_name(name) is None:
        ctx.make_const(name, np.array(value, np.int64))
    return name


def _as_rows(name: str, initializer: Initializer) -> Initializer:
    """The initializer of rows that a file has: random first values become their mean."""
    a, b = initializer.a, initializer.b
    if initializer.kind == "debug":
        raise NotImplementedError(
            f"the EmbeddingVariable {name!r} has fe.DebugInitializer(), whose first values are "
            "computed from keys, which an ONNX file cannot: give it a constant or a matrix"
        )
    means = {"uniform": (a + b) / 2, "normal": a, "truncated_normal": a}
    if initializer.kind not in means:
        return initializer
    return Initializer("constant", means[initializer.kind], 0.0, 0)


class OnnxTables:
    """All tables of a file, by the tokens of their lookups."""

    def __init__(self) -> None:
        self._tables: dict[str, OnnxTable] = {}

    def add(self, content: TableContent) -> OnnxTable:
        """A table of this file."""
        token = f"embedding_table_{len(self._tables)}"
        self._tables[token] = OnnxTable(content, token)
        return self._tables[token]

    @property
    def size_bytes(self) -> int:
        """Of all tables."""
        return sum(table.size_bytes for table in self._tables.values())

    def convert(self, ctx: Any, node: Any, name: str, args: Any) -> None:
        """What tf2onnx calls for each lookup: a handler of `LOOKUP_OP`."""
        table = self._tables[node.get_attr_str("token")]
        keys, output = node.input[0], node.output[0]
        dtype = ctx.get_dtype(output)
        ctx.remove_node(node.name)
        table.convert(ctx, keys, output, dtype)
