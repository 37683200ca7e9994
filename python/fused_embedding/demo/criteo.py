"""Reads Criteo rows: label, 13 integers and 26 categoricals of 8 hex digits, TAB separated."""

import binascii
import gzip
import itertools
import re
import zlib
from array import array
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, cast

import numpy as np
from absl import logging

NUM_INTEGERS = 13
# Distinct values of C1 to C26 in the 45.8 million rows of the Kaggle 2014 training set.
CARDINALITIES = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
MISSING = -1

_FIELD_NAMES = (
    "label",
    *(f"I{i + 1}" for i in range(NUM_INTEGERS)),
    *(f"C{i + 1}" for i in range(len(CARDINALITIES))),
)
_LABEL = rb"[01]"
_INTEGER = rb"(?:-?[0-9]{1,18})?"
_CATEGORICAL = rb"[0-9a-fA-F]{0,8}"
_FIELDS = (
    (re.compile(_LABEL), "is not 0 or 1"),
    *((re.compile(_INTEGER), "is not an integer of up to 18 digits"),) * NUM_INTEGERS,
    *((re.compile(_CATEGORICAL), "is not up to 8 hex digits"),) * len(CARDINALITIES),
)
_LINE = re.compile(b"\t".join(pattern.pattern for pattern, _ in _FIELDS))
_EXPECTED_FIELDS = f"{len(_FIELD_NAMES)} fields: label, I1 to I13, C1 to C26, separated by TABs"
# A file without line ends must not be read into memory as one line; real lines have 200 bytes.
_MAX_LINE_BYTES = 1 << 16


class InputError(ValueError):
    """The user's rows or options do not make a run possible."""


class Rows(NamedTuple):
    """Labelled rows.

    `integers` hold log(1 + max(value, 0)), and 0 where the field is empty. `categoricals` hold
    the 32-bit value of the hex digits, and `MISSING` where the field is empty; `with_strings`
    makes them strings again.
    """

    labels: np.ndarray  # [num_rows] float32
    integers: np.ndarray  # [num_rows, 13] float32
    categoricals: np.ndarray  # [num_rows, 26 or fewer] int64, or bytes objects

    def take(self, index: np.ndarray | slice) -> "Rows":
        """The rows at `index`."""
        return Rows(*(column[index] for column in self))

    def first_columns(self, n: int) -> "Rows":
        """The rows with their first `n` categoricals alone."""
        return self._replace(categoricals=self.categoricals[:, :n])

    def with_strings(self) -> "Rows":
        """The rows with categoricals as in a Criteo file: 8 hex digits, or "" if missing."""
        digits = binascii.hexlify(self.categoricals.astype(">u4").tobytes())
        strings = np.frombuffer(digits, "S8").reshape(self.categoricals.shape).astype(object)
        strings[self.categoricals == MISSING] = b""
        return self._replace(categoricals=strings)


def read_rows(path: str, max_rows: int, max_bad_lines: int) -> Rows:
    """Reads up to `max_rows` rows of `path`, plain or gzip, whatever its name.

    A malformed line is logged with its number and reason, and skipped.

    Args:
        path: File of labelled rows.
        max_rows: Reading stops after so many good rows.
        max_bad_lines: So many malformed lines are skipped; one more is an error.

    Raises:
        InputError: If there are more than `max_bad_lines` malformed lines, or no good one.
        OSError: If the file cannot be read.
    """
    columns = _Columns()
    num_bad_lines = 0
    for number, line, read_error in _numbered_lines(path):
        reason = read_error or _why_malformed(line)
        if reason is None:
            columns.append(line)
            if len(columns.labels) == max_rows:
                break
            continue
        num_bad_lines += 1
        logging.warning("%s:%d: %s; skipped", path, number, reason)
        if num_bad_lines > max_bad_lines:
            raise InputError(
                f"{path} has more than {max_bad_lines} malformed lines, the last is line {number}: "
                f"{reason}; repair the file or raise --max_bad_lines"
            )
    if not columns.labels:
        raise InputError(f"{path} has no rows; expected lines of {_EXPECTED_FIELDS}")
    if num_bad_lines:
        logging.warning("%s: malformed lines skipped: %d", path, num_bad_lines)
    return columns.rows()


class _Columns:
    """Collects rows in flat arrays: a Python object for each field would take ten times more."""

    def __init__(self) -> None:
        self.labels, self._integers, self._categoricals = array("f"), array("d"), array("q")

    def append(self, line: bytes) -> None:
        """Adds a well-formed line."""
        label, *fields = line.split(b"\t")
        self.labels.append(float(label))
        self._integers.extend(float(x or 0) for x in fields[:NUM_INTEGERS])
        self._categoricals.extend(int(x, 16) if x else MISSING for x in fields[NUM_INTEGERS:])

    def rows(self) -> Rows:
        """All rows so far."""
        return Rows(
            np.frombuffer(self.labels, np.float32),
            log1p(np.frombuffer(self._integers).reshape(-1, NUM_INTEGERS)),
            np.frombuffer(self._categoricals, np.int64).reshape(-1, len(CARDINALITIES)),
        )


def log1p(integers: np.ndarray) -> np.ndarray:
    """log(1 + max(x, 0)) in float32: the counts span six decades and a few are negative."""
    return np.log1p(np.maximum(integers, 0)).astype(np.float32)


def _why_malformed(line: bytes) -> str | None:
    """What is wrong with `line`, or None."""
    if _LINE.fullmatch(line):
        return None
    if not line.isascii():
        at, byte = next((i, byte) for i, byte in enumerate(line, 1) if byte > 0x7F)
        return f"byte {at} is {byte:#04x}, which is not ASCII"
    fields = line.split(b"\t")
    if len(fields) != len(_FIELDS):
        return f"{len(fields)} fields, expected {_EXPECTED_FIELDS}"
    return next(
        f"{name} = {field[:40].decode()!r} {complaint}"
        for name, field, (pattern, complaint) in zip(_FIELD_NAMES, fields, _FIELDS, strict=True)
        if not pattern.fullmatch(field)
    )


def _numbered_lines(path: str) -> Iterator[tuple[int, bytes, str | None]]:
    """Yields line number from 1, line without its end, and why reading failed, or None."""
    with _open(path) as file:
        for number in itertools.count(1):
            try:
                line, read_error = _read_line(file)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                yield number, b"", f"the gzip data is damaged or cut off here ({error})"
                return
            if not line:
                return
            yield number, line.rstrip(b"\r\n"), read_error


def _read_line(file: BinaryIO) -> tuple[bytes, str | None]:
    """The next line, cut at `_MAX_LINE_BYTES`, and what is wrong with it, or None."""
    line = file.readline(_MAX_LINE_BYTES)
    if len(line) < _MAX_LINE_BYTES or line.endswith(b"\n"):
        return line, None
    while (rest := file.readline(_MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass
    return line, f"longer than {_MAX_LINE_BYTES:,} bytes"


def _open(path: str) -> BinaryIO:
    with open(path, "rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path)) if is_gzip else open(path, "rb")
