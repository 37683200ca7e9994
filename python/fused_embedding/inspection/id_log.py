"""Logs of ids, and a sample of one that keeps every occurrence of the ids that it has."""

import gzip
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

_LINES_AT_ONCE = 1 << 16
_IDS_AT_ONCE = 1 << 20
_HASH_BITS = 53
_MIN_IDS = 1000


class LogError(Exception):
    """A log of ids cannot be read."""


def read_ids(path: str) -> Iterator[np.ndarray]:
    """The ids of a log, in order, some at a time.

    Args:
        path: `*.npy`: integers of any shape. Else text, gzip if it ends in `.gz`: integers
            separated by white space or commas.

    Yields:
        `[n]` int64.

    Raises:
        LogError: If it cannot be read, or holds something else.
    """
    try:
        yield from _read_npy(path) if path.endswith(".npy") else _read_text(path)
    except (OSError, EOFError, ValueError) as error:
        raise LogError(f"ids {path} cannot be read: {error}") from error


def _read_npy(path: str) -> Iterator[np.ndarray]:
    ids = np.load(path, mmap_mode="r")
    if not np.issubdtype(ids.dtype, np.integer):
        raise LogError(f"ids {path} must be integers, got {ids.dtype}; hash other ids first")
    ids = ids.reshape(-1)
    for begin in range(0, len(ids), _IDS_AT_ONCE):
        yield np.asarray(ids[begin : begin + _IDS_AT_ONCE]).astype(np.int64)


def _read_text(path: str) -> Iterator[np.ndarray]:
    with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as file:
        for first in itertools.count(0, _LINES_AT_ONCE):
            lines = list(itertools.islice(file, _LINES_AT_ONCE))
            if not lines:
                return
            try:
                yield _parse("".join(lines))
            except (ValueError, OverflowError):
                raise LogError(_bad_id(path, first, lines)) from None


def _parse(text: str) -> np.ndarray:
    return np.array(text.replace(",", " ").split(), np.int64)


def _bad_id(path: str, first: int, lines: list[str]) -> str:
    for number, line in enumerate(lines, first + 1):
        for word in line.replace(",", " ").split():
            try:
                _parse(word)
            except (ValueError, OverflowError):
                return (
                    f"ids {path}, line {number}: {word[:40]!r} is no integer of 64 bits; hash "
                    "other ids first, and give integers separated by white space or commas"
                )
    return f"ids {path} cannot be read from line {first + 1} on"


def spatial_hash(ids: np.ndarray) -> np.ndarray:
    """`[n]` uint64 below 2^53 of `[n]` int64 ids: SplitMix64's finalizer (Steele et al., 2014).

    Ids that follow one another must not be sampled together, so it is no plain modulo.
    """
    h = ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (h ^ (h >> np.uint64(31))) >> np.uint64(64 - _HASH_BITS)


class Sample(NamedTuple):
    """Occurrences of some ids in a log: all of each id, or none.

    Attributes:
        ids: `[n]` int64, in the order of the log.
        positions: `[n]` int64 where they are in the log.
        rate: Share of all possible ids that were sampled, in (0, 1].
        num_ids: Length of the log.
    """

    ids: np.ndarray
    positions: np.ndarray
    rate: float
    num_ids: int


def sample_ids(batches: Iterator[np.ndarray], max_sample: int) -> Sample:
    """Samples ids by their hash in one pass, so that at most `max_sample` occurrences are kept.

    An id is in the sample if its hash is below a threshold, which starts at all and is halved
    whenever the sample has grown too large; what is above it then is dropped. So memory is bounded,
    and the result is that of a pass with the last threshold from the start. No fewer than 1000
    distinct ids are kept, whatever occurrences they have.

    Args:
        batches: Ids of the log, in order; `[n]` int64 each.
        max_sample: Occurrences to keep at most.

    Returns:
        The sample.

    Source: Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC Construction with SHARDS", FAST
    2015. There the bound is on distinct ids, and counts are rescaled; here it is on occurrences,
    which are kept.
    """
    threshold = 1 << _HASH_BITS
    kept = np.zeros([3, 0], np.int64)  # ids, positions, hashes
    waiting: list[np.ndarray] = []
    num_ids = num_waiting = 0
    for ids in batches:
        hashes = spatial_hash(ids).astype(np.int64)
        is_sampled = np.flatnonzero(hashes < threshold)
        rows = (ids[is_sampled], num_ids + is_sampled, hashes[is_sampled])
        waiting.append(np.stack(rows).astype(np.int64))
        num_ids += len(ids)
        num_waiting += len(is_sampled)
        if kept.shape[1] + num_waiting > max_sample:
            kept, threshold = _shrunk(np.concatenate([kept, *waiting], 1), threshold, max_sample)
            waiting, num_waiting = [], 0
    kept = np.concatenate([kept, *waiting], axis=1)
    return Sample(kept[0], kept[1], threshold / (1 << _HASH_BITS), num_ids)


def _shrunk(kept: np.ndarray, threshold: int, max_sample: int) -> tuple[np.ndarray, int]:
    while kept.shape[1] > max_sample:
        fewer = kept[:, kept[2] < threshold // 2]
        if len(np.unique(fewer[0])) < _MIN_IDS:
            break
        kept, threshold = fewer, threshold // 2
    return kept, threshold
