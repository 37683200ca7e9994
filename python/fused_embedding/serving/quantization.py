"""Which tables and variables of an export are stored in fewer bytes, and what that costs them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from fused_embedding.serving.applied_deltas import DenseVariable, variable_of
from fused_embedding.serving.first_values import COMPUTED_KINDS
from fused_embedding.serving.looked_up import Candidate, LookedUp, Uses
from fused_embedding.serving.onnx_tables import (
    OnnxRows,
    OnnxTable,
    OnnxTables,
    with_rows_for_all,
)
from fused_embedding.serving.row_formats import FORMATS
from fused_embedding.serving.served_table import ServedTable, TableContent, default_rows
from fused_embedding.serving.stock_forms import STOCK_OPS
from fused_embedding.serving.stock_ops import Lookups
from fused_embedding.serving.stored_lookups import STORED_LOOKUPS
from fused_embedding.serving.stored_rows import (
    Coding,
    StoredRows,
    row_of_default,
    row_of_key,
    row_of_variable,
)

_CHUNK_ROWS = 65536  # that are decoded at one time
_FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


@dataclasses.dataclass(frozen=True)
class RowErrors:
    """How far the stored numbers of a table are from those of the model.

    Attributes:
        format: "int8", "int4" or "bfloat16".
        rows: Number of rows, in all partitions.
        max_abs: The largest magnitude of the error of a number.
        rms: Root of the mean square of the errors.
        relative: `rms`, divided by that of the numbers; 0 for a table of zeros.
    """

    format: str
    rows: int
    max_abs: float
    rms: float
    relative: float


@dataclasses.dataclass
class _Sums:
    """Of the errors in the rows of a table so far."""

    format: str
    rows: int = 0
    numbers: int = 0
    max_abs: float = 0.0
    errors_squared: float = 0.0
    numbers_squared: float = 0.0

    def add(self, numbers: np.ndarray, decoded: np.ndarray) -> None:
        """Counts some rows, both `[n, dim]` float64."""
        errors = np.abs(decoded - numbers)
        self.rows += len(numbers)
        self.numbers += numbers.size
        self.max_abs = max(self.max_abs, float(errors.max(initial=0.0)))
        self.errors_squared += float(np.square(errors).sum())
        self.numbers_squared += float(np.square(numbers).sum())

    def errors(self) -> RowErrors:
        """Of all rows."""
        rms, size = (
            (squared / max(self.numbers, 1)) ** 0.5
            for squared in (self.errors_squared, self.numbers_squared)
        )
        return RowErrors(self.format, self.rows, self.max_abs, rms, rms / size if size else 0.0)


class Quantization:
    """What the argument `quantize` of an export asks for, and what has been done of it.

    Attributes:
        are_lookups_fused: Whether ops of this package read stored rows.

    Args:
        quantize: A format for all tables and variables that are only looked up, or a format for
            each of some by name; None: nothing is stored in fewer bytes.
        is_fused: Whether the export has ops of this package.
        is_onnx: Whether it is an ONNX file.

    Raises:
        NotImplementedError: For a format that ONNX files do not have.
        ValueError: For a format that there is not.
        TypeError: For what is neither a format nor a dictionary.
    """

    def __init__(
        self,
        quantize: str | Mapping[str, str] | None,
        is_fused: bool = False,
        is_onnx: bool = False,
    ) -> None:
        if not isinstance(quantize, str | Mapping | None):
            raise TypeError(
                "quantize must be a format or a dictionary of formats by the names of tables, got "
                f"{quantize!r}"
            )
        self._is_asked_for = quantize is not None
        self.are_lookups_fused = is_fused and self._is_asked_for
        self._is_onnx = is_onnx
        self._for_all = quantize if isinstance(quantize, str) else None
        self._by_name = dict(quantize) if isinstance(quantize, Mapping) else {}
        self._tables: set[str] = set()
        self._sums: dict[str, _Sums] = {}
        for row_format in self._by_name.values() if self._for_all is None else [self._for_all]:
            if row_format not in FORMATS:
                raise ValueError(
                    f"quantize has the format {row_format!r}: give one of {', '.join(FORMATS)}"
                )
            if is_onnx and row_format == "bfloat16":
                raise NotImplementedError(
                    "quantize has the format 'bfloat16', whose numbers not every runtime of ONNX "
                    "reads: give 'int8' or 'int4', or leave out format='onnx'"
                )

    def errors(self) -> dict[str, RowErrors] | None:
        """Of each table and variable that was stored in fewer bytes; None: nobody asked for it."""
        if not self._is_asked_for:
            return None
        return {name: sums.errors() for name, sums in self._sums.items()}

    def table(self, content: TableContent) -> ServedTable:
        """A table that is served as this says."""
        stored = self._stored_rows(content)
        if stored is None:
            return ServedTable(content)
        coding, rows = stored
        first = None
        if self.are_lookups_fused and content.initializer.kind not in COMPUTED_KINDS:
            first = coding.encode(default_rows(content), self._name(content), row_of_default)
        return ServedTable(content, coding, rows, first)

    def onnx_table(self, content: TableContent, tables: OnnxTables) -> OnnxTable:
        """The same, as a table of an ONNX file."""
        content = with_rows_for_all(content)
        stored = self._stored_rows(content)
        if stored is None:
            return tables.add(content)
        first = stored[0].encode(default_rows(content), self._name(content), row_of_default)
        return tables.add(content, *stored, first)

    def _name(self, content: TableContent) -> str:
        return variable_of(content.name)

    def _stored_rows(self, content: TableContent) -> tuple[Coding, np.ndarray] | None:
        """How a table is stored, and its rows; None: as they are."""
        name = self._name(content)
        self._tables.add(name)
        numbers = np.asarray(content.values)
        coding = self._coding(name, numbers.shape[1], tf.as_dtype(numbers.dtype))
        if coding is None:
            return None
        stored = coding.encode(numbers, name, row_of_key(content.keys))
        self._measure(name, coding, numbers, stored)
        return coding, stored

    @property
    def lookups(self) -> Lookups:
        """What ops of this package become."""
        return STORED_LOOKUPS if self.are_lookups_fused else STOCK_OPS

    def _coding(self, name: str, dim: int, dtype: tf.DType) -> Coding | None:
        """How a table is stored; None: as it is."""
        chosen = self._for_all or self._by_name.get(name)
        if chosen is None:
            return None
        coding = Coding(chosen, dim, dtype)
        return coding if coding.is_smaller or self._for_all is None else None

    def variables(
        self, dense: Sequence[DenseVariable], trace: Callable[[dict[int, LookedUp]], None]
    ) -> tuple[list[DenseVariable], dict[int, LookedUp]]:
        """Stores those of the dense variables that are asked for.

        Args:
            dense: Of the export.
            trace: Copies all graphs, with the given things in place of variables.

        Returns:
            The dense variables, those of stored rows in their places, and what stands for the
            latter in a graph, by the id of the handle of the former.

        Raises:
            ValueError: If a name of `quantize` is of no table or variable, or of one that is not a
                float matrix or not only looked up.
        """
        if not self._is_asked_for:
            return list(dense), {}
        self._check_names(dense)
        codings = {id(one.variable.handle): self._coding_of(one.variable) for one in dense}
        candidates = {
            id(one.variable.handle): Candidate(one.variable)
            for one in dense
            if codings[id(one.variable.handle)] is not None
        }
        if candidates:
            trace(dict(candidates))
        stored: list[DenseVariable] = []
        stand_ins: dict[int, LookedUp] = {}
        for one in dense:
            handle = id(one.variable.handle)
            coding = codings[handle]
            if coding and self._is_only_looked_up(one.variable, candidates[handle].uses):
                one, stand_ins[handle] = self._stored(one, coding)
            stored.append(one)
        self._check_is_done()
        return stored, stand_ins

    def _check_names(self, dense: Sequence[DenseVariable]) -> None:
        known = {name_of(variable): variable for _, variable, _ in dense}
        for name in sorted(self._by_name.keys() - self._tables):
            if name not in known:
                raise ValueError(
                    f"quantize has {name!r}, but the export has {sorted(self._tables.union(known))}"
                )
            if not _is_float_matrix(known[name]):
                raise ValueError(
                    f"quantize has {name!r}, which is a variable of {known[name].dtype.name} of "
                    f"shape {known[name].shape}: only float matrices are stored by row; leave "
                    "it out"
                )

    def _coding_of(self, variable: tf.Variable) -> Coding | None:
        if not _is_float_matrix(variable):
            return None
        return self._coding(name_of(variable), variable.shape[1], variable.dtype)

    def _is_only_looked_up(self, variable: tf.Variable, uses: Uses) -> bool:
        if uses.num_lookups and uses.other_op is None:
            return True
        if self._for_all is None:
            op = uses.other_op
            used = f"used by the op {op.name!r} of type {op.type}" if op else "not looked up"
            raise ValueError(
                f"quantize has the variable {name_of(variable)!r}, which is {used}: only variables "
                "that signatures look up, and use in no other way, are stored by row; leave it out"
            )
        return False

    def _stored(self, one: DenseVariable, coding: Coding) -> tuple[DenseVariable, LookedUp]:
        name, numbers = one.variable.name.removesuffix(":0"), one.variable.numpy()
        rows = coding.encode(numbers, name, row_of_variable)
        self._measure(variable_of(name), coding, numbers, rows)
        if self._is_onnx:
            return one, OnnxRows(rows, coding, name)
        stored = tf.Variable(rows, trainable=False, name=name)
        stands = StoredRows(stored.handle, coding, len(rows))
        return one._replace(variable=stored, coding=coding), stands

    def _measure(self, name: str, coding: Coding, numbers: np.ndarray, stored: np.ndarray) -> None:
        sums = self._sums.setdefault(name, _Sums(coding.format))
        for first in range(0, len(numbers), _CHUNK_ROWS):
            chunk = slice(first, first + _CHUNK_ROWS)
            decoded = coding.decode(tf.constant(stored[chunk])).numpy()
            sums.add(numbers[chunk].astype(np.float64), decoded.astype(np.float64))

    def _check_is_done(self) -> None:
        if self._for_all is not None and not self._sums:
            raise ValueError(
                f"quantize is {self._for_all!r}, but the export has no table, and no float matrix "
                "that is only looked up, whose rows get smaller: leave it out"
            )


def name_of(variable: tf.Variable) -> str:
    """The name of a variable in `quantize`; partitions have that of the whole."""
    return variable_of(variable.name.removesuffix(":0"))


def _is_float_matrix(variable: tf.Variable) -> bool:
    shape = variable.shape
    return variable.dtype in _FLOATS and shape.rank == 2 and shape.is_fully_defined()
