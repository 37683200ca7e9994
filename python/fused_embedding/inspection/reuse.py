"""How often, and after how long, ids come again: what decides which of them a table still has."""

from typing import NamedTuple

import numpy as np

NEVER = np.iinfo(np.int64).max  # gap and distance of the first occurrence of an id


class Reuse(NamedTuple):
    """For each occurrence of ids, in their order; `[n]` int64 all.

    Attributes:
        rank: Occurrences of the id before it.
        total: Occurrences of the id in all.
        gap: Steps since the one before it.
        distance: Distinct other ids since the one before it: its LRU stack distance.
        next_step: Step of the next occurrence of the id.
    """

    rank: np.ndarray
    total: np.ndarray
    gap: np.ndarray
    distance: np.ndarray
    next_step: np.ndarray


def reuse_of(ids: np.ndarray, steps: np.ndarray) -> Reuse:
    """Where each of `[n]` ids, used at `[n]` non-decreasing steps, was before and will be."""
    n = len(ids)
    order = np.argsort(ids, kind="stable")
    is_first = np.ones(n, bool)
    is_first[1:] = ids[order[1:]] != ids[order[:-1]]
    starts = np.flatnonzero(is_first)
    counts = np.diff(np.append(starts, n))
    rank, total, previous = (np.empty(n, np.int64) for _ in range(3))
    rank[order] = np.arange(n) - np.repeat(starts, counts)
    total[order] = np.repeat(counts, counts)
    previous[order] = np.where(is_first, -1, np.roll(order, 1))
    again = np.flatnonzero(previous >= 0)
    gap, distance, next_step = (np.full(n, NEVER) for _ in range(3))
    gap[again] = steps[again] - steps[previous[again]]
    next_step[previous[again]] = steps[again]
    # Distinct ids between i and its previous p: those j in between whose own previous one is not.
    # Of the j < i with previous[j] <= p, p + 1 are not after p.
    distance[again] = _num_smaller_before(previous)[again] - (previous[again] + 1)
    return Reuse(rank, total, gap, distance, next_step)


def sorted_elements(n: int) -> int:
    """Elements that are sorted to find the stack distances of n occurrences: what they cost."""
    return n * max(n - 1, 0).bit_length()


def _num_smaller_before(values: np.ndarray) -> np.ndarray:
    """Of each of `[n]` values >= -1, how many before it are smaller; values >= 0 are distinct.

    A merge sort from the bottom up, all blocks of a level at once: each element of the right half
    of a block counts what is smaller in the left half.
    """
    n = len(values)
    index = np.arange(n)
    counts = np.zeros(n, np.int64)
    for level in range(max(n - 1, 0).bit_length()):
        block, is_left = index >> (level + 1), (index >> level) & 1 == 0
        order = np.argsort(block * (n + 1) + values + 1, kind="stable")
        num_left = np.cumsum(is_left[order])
        # Left elements of all blocks before: their left halves are whole.
        before = block[order] << level
        smaller = num_left - before
        is_right = ~is_left[order]
        counts[order[is_right]] += smaller[is_right]
    return counts
