"""An EmbeddingVariable in an export of stock ops: a hash table from key to row, and the rows."""

import copy
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from fused_embedding.serving.applied_deltas import TableChanges
from fused_embedding.serving.first_values import COMPUTED_KINDS, Initializer, first_values
from fused_embedding.serving.stored_rows import Coding, StoredRows


class TableContent(NamedTuple):
    """What lookups of an EmbeddingVariable can read.

    Attributes:
        name: Of the variable.
        keys: `[n]` int64.
        values: `[n, dim]`.
        initializer: What other keys read.
        matrix: `[m, dim]` for the initializer "matrix": key k reads row k mod m.
        seed: Of the table.
        frequencies: `[n]` int64 occurrences of keys, if lookups read them; else None.
    """

    name: str
    keys: Any
    values: Any
    initializer: Initializer
    matrix: Any
    seed: int
    frequencies: Any = None


def table_content(
    name: str, attributes: Any, exported: Any, is_counted: bool = False
) -> TableContent:
    """The content of a table as inference reads it.

    Args:
        name: Of the variable.
        attributes: Gives the attrs of its handle op by name.
        exported: Outputs of the op EmbeddingVariableExport, by name, as eager tensors or arrays.
        is_counted: Whether lookups read how often keys have occurred.

    Returns:
        The content, without anything that only training needs.
    """
    a, b = (float(number) for number in np.asarray(exported["initializer_parameters"]))
    kind = bytes(np.asarray(exported["initializer"]).item()).decode()
    seed = int(np.asarray(exported["seed"]))
    initializer = Initializer(kind, a, b, seed)
    if attributes["admission"] != "all":  # keys without a row were not admitted
        initializer = Initializer("constant", float(attributes["no_permission_value"]), 0.0, 0)
    keys, values = exported["keys"], exported["values"]
    matrix = exported["initializer_matrix"]
    frequencies = exported["frequencies"] if is_counted else None
    return TableContent(name, keys, values, initializer, matrix, seed, frequencies)


def default_rows(content: TableContent) -> tf.Tensor:
    """`[m, dim]`: key k without a row reads row k mod m; zeros where first values are computed."""
    if content.initializer.kind == "matrix":
        return tf.convert_to_tensor(content.matrix)
    value = content.initializer.a if content.initializer.kind == "constant" else 0.0
    values = tf.convert_to_tensor(content.values)
    return tf.cast(tf.fill([1, values.shape.as_list()[1]], np.float64(value)), values.dtype)


class ServedTable:
    """A table that lookups read by key, of stock resources. Lookups insert nothing.

    Attributes:
        name: Of the EmbeddingVariable.
        seed: Of the EmbeddingVariable.
        dim: Of a row.
        dtype: Of its numbers.
        coding: How rows are stored; None: as `[n, dim]` numbers.
        index: Table from key to the row of `rows`, both int64, that even generations read.
        odd_index: The same for odd generations; without keys until there is one.
        rows: Variable `[n, dim]`, or `[n, width]` as `coding` says. Its first rows, as many as
            `num_defaults`, are for keys that are not in `index`: key k reads row k mod
            num_defaults. What stock ops read there is replaced if first values are computed, or
            if there is a `coding`.
        defaults: Variable `[m, dim]` of a table with a `coding`: key k without a row reads row k
            mod m, in full precision, unless first values are computed.
        counts: Variable `[n]` int64: how often the keys of `rows` have occurred, 0 for defaults;
            None: no lookup reads it.
        free_rows: Variable `[f]` int64: rows that no generation reads, but the one that an index
            still has of before.
        last_keys: Variable `[c]` int64: what the last delta changed, which the other index lacks.
        last_rows: Variable `[c]` int64: their rows, -1: removed.

    Args:
        content: What lookups read.
        coding: See above.
        stored: `[n, width]` rows of the content, as `coding` stores them.
        stored_defaults: `[m, width]` the same of `default_rows`, for lookups that do not read
            `defaults`; None: there are no such.
    """

    def __init__(
        self,
        content: TableContent,
        coding: Coding | None = None,
        stored: Any = None,
        stored_defaults: Any = None,
    ) -> None:
        self.name, self.seed, self.coding = content.name, content.seed, coding
        self._initializer = content.initializer
        first, values = default_rows(content), content.values
        self.dim, self.dtype = first.shape[1], first.dtype
        if coding is not None:
            self.defaults = tf.Variable(first, trainable=False, name=f"{content.name}/defaults")
            first, values = tf.zeros([1, stored.shape[1]], coding.row_format.dtype), stored
            if stored_defaults is not None:
                first = tf.convert_to_tensor(stored_defaults)
        self.num_defaults = first.shape[0]
        self.rows = tf.Variable(
            tf.concat([first, values], axis=0),
            shape=[None, first.shape[1]],  # rows may be added later
            trainable=False,
            name=f"{content.name}/rows",
        )
        self.index, self.odd_index = _new_index("index"), _new_index("odd_index")
        self.free_rows, self.last_keys, self.last_rows = (
            tf.Variable(tf.zeros([0], tf.int64), shape=[None], trainable=False, name=name)
            for name in ("free_rows", "last_keys", "last_rows")
        )
        self.counts = None
        if content.frequencies is not None:
            counts = tf.pad(content.frequencies, [[self.num_defaults, 0]])
            self.counts = tf.Variable(
                counts, shape=[None], trainable=False, name=f"{content.name}/counts"
            )
        self._read_index = self.index
        positions = self.num_defaults + tf.range(tf.size(content.keys, tf.int64))
        self.index.insert(content.keys, positions)

    def resources(self) -> dict[str, Any]:
        """What an export keeps, by attribute."""
        names = ["index", "odd_index", "rows", "free_rows", "last_keys", "last_rows"]
        names += ["defaults"] if self.coding is not None else []
        names += ["counts"] if self.counts is not None else []
        return {name: getattr(self, name) for name in names}

    def at(self, is_odd: bool) -> "ServedTable":
        """This table, whose lookups read odd generations, or even ones."""
        table = copy.copy(self)
        table._read_index = self.odd_index if is_odd else self.index
        return table

    def change(self, generation: tf.Tensor, changes: TableChanges) -> tf.Tensor:
        """Makes the generation after `generation`, which goes on to be read.

        Args:
            generation: int64 scalar, of the requests.
            changes: What the next one has of its own.

        Returns:
            A scalar that is there when it is done.
        """
        is_first = tf.equal(generation, 0)
        return tf.cond(
            is_odd(generation),
            lambda: self._change(self.odd_index, self.index, is_first, changes),
            lambda: self._change(self.index, self.odd_index, is_first, changes),
        )

    def _change(self, served: Any, other: Any, is_first: tf.Tensor, changes: Any) -> tf.Tensor:
        caught_up, free = self._catch_up(served, other, is_first)
        removed = tf.cond(
            changes.is_full,
            lambda: tf.raw_ops.ListDiff(x=served.export()[0], y=changes.keys).out,
            lambda: changes.removed_keys,
        )
        placed, rows = self._place(changes, free)
        with tf.control_dependencies([caught_up, placed]):
            removal = other.remove(removed)
        with tf.control_dependencies([removal]):
            insertion = other.insert(changes.keys, rows)
        noted = [
            self.last_keys.assign(tf.concat([changes.keys, removed], axis=0), read_value=False),
            self.last_rows.assign(
                tf.concat([rows, -tf.ones_like(removed)], axis=0), read_value=False
            ),
        ]
        with tf.control_dependencies([insertion, *noted]):
            return tf.constant(True)

    def _catch_up(self, served: Any, other: Any, is_first: tf.Tensor) -> tuple[Any, tf.Tensor]:
        """Brings the other index to what is served; the rows that nobody reads then."""

        def copied() -> tf.Tensor:
            with tf.control_dependencies([other.insert(*served.export())]):
                return tf.constant(True)

        first = tf.cond(is_first, copied, lambda: tf.constant(True))
        keys, rows = self.last_keys.read_value(), self.last_rows.read_value()
        with tf.control_dependencies([first]):
            before = tf.ensure_shape(other.lookup(keys, -tf.ones_like(keys)), [None])
        with tf.control_dependencies([before]):
            removal = other.remove(tf.gather(keys, _positions_of(rows < 0)))
        there = _positions_of(rows >= 0)
        with tf.control_dependencies([removal]):
            insertion = other.insert(tf.gather(keys, there), tf.gather(rows, there))
        unread = tf.gather(before, _positions_of(before >= 0))
        return insertion, tf.concat([self.free_rows.read_value(), unread], axis=0)

    def _place(self, changes: TableChanges, free: tf.Tensor) -> tuple[Any, tf.Tensor]:
        """Writes values to free rows, and to new ones; where they are."""
        count = tf.size(changes.keys, tf.int64)
        num_reused = tf.minimum(count, tf.size(free, tf.int64))
        reused, unused = tf.split(free, tf.stack([num_reused, -1]))
        # Not by ReadVariableOp, which copies all rows. Readers keep no reference to the rows.
        num_rows = tf.raw_ops.VariableShape(input=self.rows.handle, out_type=tf.int64)[0]
        num_missing = count - num_reused
        # Each growth copies all rows: a sixteenth more than is needed makes it rare.
        num_new = tf.where(num_missing > 0, num_missing + num_rows // 16, 0)
        new, spare = tf.split(tf.range(num_rows, num_rows + num_new), tf.stack([num_missing, -1]))
        written = [_write(self.rows, changes.values, reused, num_new)]
        if self.counts is not None:
            written.append(_write(self.counts, changes.frequencies, reused, num_new))
        freed = self.free_rows.assign(tf.concat([unused, spare], axis=0), read_value=False)
        with tf.control_dependencies([freed, *written]):
            placed = tf.constant(True)
        return placed, tf.concat([reused, new], axis=0)

    def read(self, keys: tf.Tensor) -> tf.Tensor:
        """The rows of keys, as inference reads them.

        Args:
            keys: `[n]` int64.

        Returns:
            `[n, dim]`.
        """
        positions = self.positions(keys)
        if self.coding is None:
            rows = tf.gather(self.rows, positions)
        else:
            rows = StoredRows(self.rows.handle, self.coding).gather(positions)
        if self.coding is None and not self.computes_first_values:
            return rows
        unknown = tf.where(positions < self.num_defaults)
        unknown_keys = tf.gather(keys, unknown[:, 0])
        return tf.tensor_scatter_nd_update(rows, unknown, self._first_values(unknown_keys))

    def positions(self, keys: tf.Tensor) -> tf.Tensor:
        """`[n]` int64 row in `rows` of each of `[n]` int64 keys; one of the first: it has none."""
        defaults = tf.math.floormod(keys, tf.constant(self.num_defaults, tf.int64))
        return self._read_index.lookup(keys, defaults)

    @property
    def computes_first_values(self) -> bool:
        """Whether keys without a row read values that are computed from the key."""
        return self._initializer.kind in COMPUTED_KINDS

    def occurrences(self, keys: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Which keys have a row, and how often they have occurred.

        Args:
            keys: `[n]` int64.

        Returns:
            `[n]` bool; and `[n]` int64, 0 without a row, or None without `counts`.
        """
        positions = self.positions(keys)
        frequencies = None if self.counts is None else tf.gather(self.counts, positions)
        return positions >= self.num_defaults, frequencies

    def _first_values(self, keys: tf.Tensor) -> tf.Tensor:
        """`[n, dim]`: what keys without a row read that is not in `rows`."""
        if self.computes_first_values:
            return first_values(self._initializer, keys, self.dim, self.dtype)
        num_defaults = tf.constant(self.defaults.shape[0], tf.int64)
        return tf.gather(self.defaults, tf.math.floormod(keys, num_defaults))


def _positions_of(mask: tf.Tensor) -> tf.Tensor:
    """`[m]` int64: where a `[n]` mask is true. tf.boolean_mask would be fifteen ops."""
    return tf.squeeze(tf.where(mask), axis=1)


def _write(variable: tf.Variable, values: Any, reused: tf.Tensor, num_new: tf.Tensor) -> Any:
    """Writes the first values to entries that are reused, and the others behind the last entry.

    Args:
        variable: `[n, ...]`.
        values: `[m, ...]`.
        reused: `[r]` int64 entries, at most m.
        num_new: Number of entries to add, at least m - r.

    Returns:
        A scalar that is there when it is done.
    """
    num_reused = tf.size(reused, tf.int64)
    scatter = tf.raw_ops.ResourceScatterUpdate(
        resource=variable.handle, indices=reused, updates=values[:num_reused]
    )

    def grown() -> tf.Tensor:
        more = values[num_reused:]
        num_spare = num_new - tf.shape(more, tf.int64)[0]
        spare = tf.zeros([num_spare, *variable.shape[1:]], values.dtype)
        entries = tf.concat([variable.read_value(), more, spare], axis=0)
        with tf.control_dependencies([variable.assign(entries, read_value=False)]):
            return tf.constant(True)

    with tf.control_dependencies([scatter]):
        return tf.cond(num_new > 0, grown, lambda: tf.constant(True))


def _new_index(name: str) -> Any:
    return tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, default_value=0, name=name)


def is_odd(generation: tf.Tensor) -> tf.Tensor:
    """Which of its two indices a table reads in a generation (int64 scalar)."""
    return tf.equal(tf.math.floormod(generation, 2), 1)
