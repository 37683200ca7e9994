"""Deltas of an export: their files, and the signature that applies them in order."""

import abc
import hashlib
import itertools
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.serving.stored_rows import Coding

APPLY = "apply_delta"  # signature of an export
# Tensors of a delta, a TensorBundle; those of table i have "i/" before their names, and the value
# of dense variable i is "dense/i".
ID, CONTINUES, HAS_DENSE = "id", "continues", "has_dense"
_PART = "/part_"


class ChangeTensor(NamedTuple):
    """A tensor of a delta, for each table."""

    name: str
    dtype: tf.DType | None  # None: of the table's stored rows


_CHANGES = (
    ChangeTensor("keys", tf.int64),
    ChangeTensor("values", None),
    ChangeTensor("removed_keys", tf.int64),
    ChangeTensor("is_full", tf.bool),
)
_FREQUENCIES = ChangeTensor("frequencies", tf.int64)  # of tables that are counted


class TableChanges(NamedTuple):
    """What a delta says of a table.

    Attributes:
        keys: `[n]` int64, distinct.
        values: `[n, dim]` rows, or `[n, width]` as the table's coding stores them.
        removed_keys: `[m]` int64, distinct and none of `keys`.
        is_full: Bool scalar: all keys but `keys` are removed.
        frequencies: `[n]` int64 occurrences of `keys`, if requests read them; else None.
    """

    keys: tf.Tensor
    values: tf.Tensor
    removed_keys: tf.Tensor
    is_full: tf.Tensor
    frequencies: tf.Tensor | None = None


class DeltaTable(NamedTuple):
    """A table of an export: one EmbeddingVariable, or a partition of one.

    Attributes:
        name: Of the variable, with the partition's suffix.
        dim: Of a row.
        dtype: Of the values.
        seed: Of the initializer. A restore brings it back, so it identifies a table that was
            renamed or restored elsewhere; None: of an export before there were seeds.
        place: Where the model keeps the variable: attributes joined by "/"; "": unknown.
        coding: How its rows are stored; None: as numbers.
        is_counted: Whether requests read how often keys have occurred.
    """

    name: str
    dim: int
    dtype: tf.DType
    seed: int | None = None
    place: str = ""
    coding: Coding | None = None
    is_counted: bool = False

    @property
    def changes(self) -> tuple[ChangeTensor, ...]:
        """The tensors that a delta has for it."""
        return (*_CHANGES, _FREQUENCIES) if self.is_counted else _CHANGES

    @property
    def stored(self) -> tuple[tf.DType, int]:
        """Type and length of a stored row."""
        if self.coding is None:
            return self.dtype, self.dim
        row_format = self.coding.row_format
        return row_format.dtype, row_format.width(self.dim)


class DenseVariable(NamedTuple):
    """A dense variable of an export.

    Attributes:
        name: Of it, or where the model keeps it.
        variable: The variable of the export.
        coding: How its rows are stored; None: as numbers.
    """

    name: str
    variable: tf.Variable
    coding: Coding | None = None


class Delta(NamedTuple):
    """What is in a delta.

    Attributes:
        id: String scalar, of this one.
        changes: Of each table.
        dense: Values of all dense variables from then on.
    """

    id: tf.Tensor
    changes: list[TableChanges]
    dense: list[tf.Tensor]


def dense_name(i: int) -> str:
    """The tensor of a delta with the value of dense variable `i`."""
    return f"dense/{i}"


def new_id() -> str:
    """What tells an export or a delta from all others."""
    return uuid.uuid4().hex


def variable_of(name: str) -> str:
    """The name of a variable by that of one of its partitions, or by its own."""
    stem, part, number = name.rpartition(_PART)
    return stem if part and number.isdigit() else name


def part_of(name: str) -> int:
    """The number of the partition that has a name; 0 for a whole variable."""
    return 0 if variable_of(name) == name else int(name.rpartition(_PART)[2])


def id_of_delta(seeds: Sequence[int], codings: Sequence[Coding | None]) -> str:
    """A new ID that also identifies the tables of a delta by their seeds, and how rows are stored.

    It is no tensor of its own, which an export could not do without: older deltas have none.
    """
    return "-".join(filter(None, (new_id(), _digest(seeds), stored_as(codings))))


def stored_as(codings: Sequence[Coding | None]) -> str:
    """What tells the formats of tables and dense variables from others; "": all are numbers."""
    formats = [coding and coding.format for coding in codings]
    return _digest(formats) if any(formats) else ""


def stored_as_by_id(delta_id: str) -> str:
    """`stored_as` of what a delta with an ID has."""
    return "".join(delta_id.split("-")[2:])


def _digest(values: Sequence[Any]) -> str:
    return hashlib.blake2b(repr(list(values)).encode(), digest_size=8).hexdigest()


class AppliedDeltas(tf.Module, abc.ABC):
    """Which deltas the tables of an export have. How they are put in is for the form of tables.

    Attributes:
        loaded: ID of the export or of the last delta that was applied.
        current: Number of deltas applied.
        names: Of the tables, in the order in which deltas have them.
        dims: `[n]` int64 of the tables.
        dtypes: `[n]` names of the types of their values.
        seeds: `[n]` int64 of the tables.
        places: `[n]` where the model keeps them.
        dense_names: `[m]` names of the dense variables, in the order of the export.

    An export that stores rows in fewer bytes also has:
        formats: `[n]` names of the formats of the tables; "": numbers.
        dense_formats: `[m]` the same of the dense variables.
        dense_dims: `[m]` int64 lengths of their rows; 0 where there is no format.
        dense_dtypes: `[m]` names of the types of the numbers in their rows.

    An export whose requests read how often keys have occurred also has:
        counted: `[n]` bool of the tables: whether they read it of this one.
    """

    def __init__(self, tables: Sequence[DeltaTable], dense: Sequence[DenseVariable]) -> None:
        super().__init__()
        self._tables_of_deltas = tuple(tables)
        self._dense = [one.variable for one in dense]
        self._identity = _digest([table.seed for table in tables])
        codings = [table.coding for table in tables] + [one.coding for one in dense]
        self._stored_as = stored_as(codings)
        export_id = new_id()
        self._mutex_name = f"fused_embedding/{export_id}"
        self.loaded = tf.Variable(export_id, trainable=False, name="loaded")
        self.current = tf.Variable(0, trainable=False, dtype=tf.int64, name="current")
        self.names, self.dims, self.dtypes, self.seeds, self.places, self.dense_names = (
            tf.Variable(tf.constant(values, dtype), trainable=False, name=name)
            for name, values, dtype in (
                *_columns(tables),
                ("dense_names", [one.name for one in dense], tf.string),
            )
        )
        if self._stored_as:
            self.formats, self.dense_formats, self.dense_dims, self.dense_dtypes = (
                tf.Variable(tf.constant(values, dtype), trainable=False, name=name)
                for name, values, dtype in _coding_columns(codings, len(tables))
            )

        self._note_counted()

    def _note_counted(self) -> None:
        are_counted = [table.is_counted for table in self._tables_of_deltas]
        if any(are_counted):
            self.counted = tf.Variable(are_counted, trainable=False, name="counted")

    def apply_function(self) -> Any:
        """The signature that applies a delta: `path` of its files -> `generation`."""

        @tf.function(input_signature=[tf.TensorSpec([], tf.string, name="path")], autograph=False)
        def apply_delta(path: tf.Tensor) -> dict[str, tf.Tensor]:
            mutex = tf.raw_ops.MutexV2(shared_name=self._mutex_name)
            lock = tf.raw_ops.MutexLock(mutex=mutex)  # one delta at a time
            with tf.control_dependencies([lock]):
                generation = self._apply(path)
            with tf.control_dependencies([generation]):
                tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
                return {"generation": tf.identity(generation)}

        return apply_delta.get_concrete_function()

    def _apply(self, path: tf.Tensor) -> tf.Tensor:
        generation = self.current.read_value()
        delta = self._read(path, generation, self._check(generation))
        return self._put(generation, delta)

    def _check(self, generation: tf.Tensor) -> list[Any]:
        """What fails where no delta can be applied."""
        return []

    @abc.abstractmethod
    def _dense_values(self, generation: tf.Tensor) -> list[tf.Tensor]:
        """What requests read of the dense variables in a generation."""

    @abc.abstractmethod
    def _put(self, generation: tf.Tensor, delta: Delta) -> tf.Tensor:
        """Puts a delta in; `generation + 1`, which requests read from then on."""

    def _read(self, path: tf.Tensor, generation: tf.Tensor, checked: list[Any]) -> Delta:
        """A delta, after all that can be wrong with it was looked at."""
        next_id, continues, has_dense = _restore(
            path, [ID, CONTINUES, HAS_DENSE], [tf.string, tf.string, tf.bool]
        )
        follows = tf.debugging.Assert(
            tf.equal(continues, self.loaded.read_value()),
            [
                "the delta ",
                path,
                " continues ",
                continues,
                ", but loaded is ",
                self.loaded.read_value(),
                ": apply those between them first, each once; where there are none, load a new "
                "export",
            ],
        )
        with tf.control_dependencies([*checked, follows]):
            is_of_tables = self._check_identity(path, next_id)
        with tf.control_dependencies([is_of_tables]):
            path = tf.identity(path)
        changes = self._read_changes(path)
        dense = []
        if self._dense:
            dense = tf.cond(
                has_dense, lambda: self._read_dense(path), lambda: self._dense_values(generation)
            )
        return Delta(next_id, changes, dense)

    def _check_identity(self, path: tf.Tensor, delta_id: tf.Tensor) -> Any:
        """What fails for a delta of other tables. Deltas before there were identities have none."""
        identity = tf.strings.regex_replace(delta_id, "^[0-9a-f]*-?", "")
        if self._stored_as:
            identity = self._check_formats(path, identity)
        return tf.debugging.Assert(
            tf.equal(identity, "") | tf.equal(identity, self._identity),
            ["the delta ", path, " is of other tables than the export that is loaded"],
        )

    def _check_formats(self, path: tf.Tensor, identity: tf.Tensor) -> tf.Tensor:
        """Of an identity the part before the formats, if these are those of the export."""
        is_same = tf.debugging.Assert(
            tf.equal(tf.strings.regex_replace(identity, "^[^-]*-?", ""), self._stored_as),
            [
                "the delta ",
                path,
                " has rows in other formats than the export that is loaded, which was made with "
                "quantize: write the delta for this export",
            ],
        )
        with tf.control_dependencies([is_same]):
            return tf.strings.regex_replace(identity, "-.*$", "")

    def _read_changes(self, path: tf.Tensor) -> list[TableChanges]:
        tables = self._tables_of_deltas
        names = [f"{i}/{c.name}" for i, table in enumerate(tables) for c in table.changes]
        dtypes = [c.dtype or table.stored[0] for table in tables for c in table.changes]
        tensors = iter(_restore(path, names, dtypes))
        changes = [TableChanges(*itertools.islice(tensors, len(t.changes))) for t in tables]
        return [_checked(path, *pair) for pair in zip(tables, changes, strict=True)]

    def _read_dense(self, path: tf.Tensor) -> list[tf.Tensor]:
        names = [dense_name(i) for i in range(len(self._dense))]
        values = _restore(path, names, [variable.dtype for variable in self._dense])
        return [
            tf.ensure_shape(value, variable.shape)
            for value, variable in zip(values, self._dense, strict=True)
        ]


def _checked(path: tf.Tensor, table: DeltaTable, changes: TableChanges) -> TableChanges:
    """What a delta says of a table, if no key is in it twice and each has its row."""
    keys = tf.concat([changes.keys, changes.removed_keys], axis=0)
    is_distinct = tf.debugging.Assert(
        tf.equal(tf.size(tf.unique(keys).y), tf.size(keys)),
        [
            "the delta ",
            path,
            f" has a key of the table {table.name} twice: write it again, with each key once",
        ],
    )
    wanted = [tf.size(changes.keys), table.stored[1]]
    has_rows = tf.debugging.Assert(
        tf.reduce_all(tf.equal(tf.shape(tf.ensure_shape(changes.values, [None, None])), wanted)),
        [
            "the delta ",
            path,
            f" has rows of the table {table.name} of shape ",
            tf.shape(changes.values),
            ", but must have ",
            wanted,
            ": write it again",
        ],
    )
    checked = [is_distinct, has_rows]
    if table.is_counted:
        checked.append(_has_counts(path, table, changes))
    with tf.control_dependencies(checked):
        return TableChanges(*(None if one is None else tf.identity(one) for one in changes))


def _has_counts(path: tf.Tensor, table: DeltaTable, changes: TableChanges) -> Any:
    """What fails unless each key has its count."""
    return tf.debugging.Assert(
        tf.reduce_all(tf.equal(tf.shape(changes.frequencies), tf.shape(changes.keys))),
        [
            "the delta ",
            path,
            f" has frequencies of the table {table.name} of shape ",
            tf.shape(changes.frequencies),
            ", but keys of shape ",
            tf.shape(changes.keys),
            ": write it again",
        ],
    )


def _columns(tables: Sequence[DeltaTable]) -> list[tuple[str, list[Any], tf.DType]]:
    """What an export says of its tables: name, values and type of each variable."""
    return [
        ("names", [table.name for table in tables], tf.string),
        ("dims", [table.dim for table in tables], tf.int64),
        ("dtypes", [table.dtype.name for table in tables], tf.string),
        ("seeds", [table.seed for table in tables], tf.int64),
        ("places", [table.place for table in tables], tf.string),
    ]


def _coding_columns(
    codings: Sequence[Coding | None], num_tables: int
) -> list[tuple[str, list[Any], tf.DType]]:
    """What an export says of the formats of its tables and dense variables, as `_columns`."""
    formats = [coding.format if coding else "" for coding in codings]
    dense = codings[num_tables:]
    return [
        ("formats", formats[:num_tables], tf.string),
        ("dense_formats", formats[num_tables:], tf.string),
        ("dense_dims", [coding.dim if coding else 0 for coding in dense], tf.int64),
        ("dense_dtypes", [coding.dtype.name if coding else "" for coding in dense], tf.string),
    ]


def _restore(path: tf.Tensor, names: list[str], dtypes: list[tf.DType]) -> list[tf.Tensor]:
    """Tensors of a bundle, of which TensorFlow compares the checksums."""
    return tf.raw_ops.RestoreV2(
        prefix=path, tensor_names=names, shape_and_slices=[""] * len(names), dtypes=dtypes
    )
