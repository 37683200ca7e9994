"""An EmbeddingVariable in an ONNX file: a LabelEncoder from key to row, and the rows."""

from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from fused_embedding.serving.first_values import Initializer
from fused_embedding.serving.looked_up import ReadByRow
from fused_embedding.serving.served_table import TableContent, default_rows
from fused_embedding.serving.stored_rows import Coding

# Stands for a lookup until tf2onnx asks `OnnxTables.convert` for it. Of all stock ops it is one
# that a copied graph never has, that nothing folds or merges, and that has room for a name.
LOOKUP_OP = "PyFunc"
_FLOATS = (tf.float32, tf.float64)


class OnnxTable:
    """A table that lookups read by key.

    Args:
        content: What inference can read.
        token: Names the table in the graph.
        coding: How rows are stored; None: as numbers.
        stored: `[n, width]` rows of the content, as `coding` stores them.
        stored_defaults: `[m, width]` the same of what other keys read.
    """

    def __init__(
        self,
        content: TableContent,
        token: str,
        coding: Coding | None = None,
        stored: Any = None,
        stored_defaults: Any = None,
    ) -> None:
        self._token, self._name, self._coding = token, content.name, coding
        self._keys = np.asarray(content.keys)
        defaults, values = default_rows(content).numpy(), np.asarray(content.values)
        self._num_defaults, self._dtype = len(defaults), tf.as_dtype(values.dtype)
        self._arrays: dict[str, np.ndarray]
        if coding is not None:
            self._arrays = split_rows(np.concatenate([stored_defaults, stored]), coding)
            return
        # 16-bit types: exact, and not every runtime gathers them.
        number = self._dtype if self._dtype in _FLOATS else tf.float32
        self._arrays = {"rows": np.concatenate([defaults, values]).astype(number.as_numpy_dtype)}

    @property
    def size_bytes(self) -> int:
        """Of keys, positions and rows."""
        return 2 * self._keys.nbytes + sum(array.nbytes for array in self._arrays.values())

    def read(self, keys: tf.Tensor) -> tf.Tensor:
        """What stands for the rows of keys, as ServedTable.read.

        Args:
            keys: `[n]` int64.

        Returns:
            `[n, dim]`.
        """
        gathered = {name: self._gather(keys, name) for name in self._arrays}
        if self._coding is not None:
            return joined_rows(gathered, self._coding)
        return tf.cast(gathered["rows"], self._dtype)

    def occurrences(self, keys: tf.Tensor) -> NoReturn:
        """Raises NotImplementedError: an ONNX file says only what rows keys read."""
        raise NotImplementedError(
            f"a lookup asks which keys of the EmbeddingVariable {self._name!r} have a row, as "
            "those of adaptive tables and of blocks by frequency do, and an ONNX file does not "
            'say: leave out format="onnx"'
        )

    def _gather(self, keys: tf.Tensor, name: str) -> tf.Tensor:
        """What stands for the rows of one array."""
        array = self._arrays[name]
        token = f"{self._token}/{name}"
        rows = tf.raw_ops.PyFunc(input=[keys], token=token, Tout=[tf.as_dtype(array.dtype)])[0]
        return tf.reshape(rows, [-1, array.shape[1]])

    def convert(self, ctx: Any, name: str, keys: str, output: str, dtype: int) -> None:
        """Builds the lookup in an array, in a graph of tf2onnx.

        Args:
            ctx: The graph.
            name: Of the array.
            keys: Name of `[n]` int64.
            output: Name of the result, `[n, width]`.
            dtype: Of the result, as ONNX numbers it.
        """
        # Lookups of one table share its rows, and those of the same keys their positions.
        array, rows = self._arrays[name], f"{self._token}/{name}"
        if ctx.get_node_by_name(rows) is None:
            ctx.make_const(rows, array)
        positions = f"{self._token}/positions_of/{keys}"
        if ctx.get_node_by_name(positions) is None:
            found = self._positions(ctx, keys)
            ctx.make_node("Identity", [found], name=positions, outputs=[positions])
        shape = [-1, array.shape[1]]
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
                "values_int64s": [self._num_defaults + i for i in range(len(self._keys))],
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


def with_rows_for_all(content: TableContent) -> TableContent:
    """A table whose other keys read rows that a file has.

    Args:
        content: What inference can read. Random first values become their mean.

    Raises:
        NotImplementedError: If first values are computed otherwise.
    """
    return content._replace(initializer=_as_rows(content.name, content.initializer))


def _as_rows(name: str, initializer: Initializer) -> Initializer:
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


def split_rows(stored: np.ndarray, coding: Coding) -> dict[str, np.ndarray]:
    """Stored rows as arrays that ONNX can decode: it does not take bytes for a float.

    Args:
        stored: `[n, width]` as `coding` stores rows.
        coding: Of "int8" or "int4".

    Returns:
        "quants" `[n, bytes]` uint8, and "numbers" `[n, 2]` float32, scale and bias.
    """
    number = np.dtype(np.float32 if coding.format == "int8" else np.float16)
    numbers = np.ascontiguousarray(stored[:, -2 * number.itemsize :]).view(number)
    quants = np.ascontiguousarray(stored[:, : -2 * number.itemsize])
    return {"quants": quants, "numbers": numbers.astype(np.float32)}


def joined_rows(gathered: dict[str, tf.Tensor], coding: Coding) -> tf.Tensor:
    """`[..., dim]` numbers of what `split_rows` made of rows."""
    quants = tf.cast(gathered["quants"], tf.float32)
    if coding.format == "int4":  # two in a byte, of which the first half of the row has the low one
        high = tf.floor(quants / 16)
        quants = tf.concat([quants - 16 * high, high], axis=-1)[..., : coding.dim]
    numbers = gathered["numbers"]
    return tf.cast(quants * numbers[..., :1] + numbers[..., 1:], coding.dtype)


class OnnxRows(ReadByRow):
    """A variable of rows that ONNX can decode.

    Attributes:
        variables: Of its arrays.

    Args:
        stored: `[n, width]` as `coding` stores rows.
        coding: Of the rows.
        name: Of the variable.
    """

    def __init__(self, stored: np.ndarray, coding: Coding, name: str) -> None:
        self._num_rows, self._coding = len(stored), coding
        self._variables = {
            array: tf.Variable(values, trainable=False, name=f"{name}/{array}")
            for array, values in split_rows(stored, coding).items()
        }
        self.variables = list(self._variables.values())

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix that is stored."""
        return self._num_rows, self._coding.dim

    def gather(self, ids: tf.Tensor) -> tf.Tensor:
        """Decodes rows.

        Args:
            ids: `[...]` int32 or int64.

        Returns:
            `[..., dim]`.
        """
        gathered = {name: tf.gather(of, ids) for name, of in self._variables.items()}
        return joined_rows(gathered, self._coding)


class OnnxTables:
    """All tables of a file, by the tokens of their lookups."""

    def __init__(self) -> None:
        self._tables: dict[str, OnnxTable] = {}

    def add(self, content: TableContent, *stored: Any) -> OnnxTable:
        """A table of this file.

        Args:
            content: What inference can read, `with_rows_for_all`.
            stored: The last arguments of `OnnxTable`.
        """
        token = f"embedding_table_{len(self._tables)}"
        self._tables[token] = OnnxTable(content, token, *stored)
        return self._tables[token]

    @property
    def size_bytes(self) -> int:
        """Of all tables."""
        return sum(table.size_bytes for table in self._tables.values())

    def convert(self, ctx: Any, node: Any, name: str, args: Any) -> None:
        """What tf2onnx calls for each lookup: a handler of `LOOKUP_OP`."""
        token, _, array = node.get_attr_str("token").partition("/")
        keys, output = node.input[0], node.output[0]
        dtype = ctx.get_dtype(output)
        ctx.remove_node(node.name)
        self._tables[token].convert(ctx, array, keys, output, dtype)
