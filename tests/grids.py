"""Which cases of a grid to run: as few as together hold each pair of its values.

Most faults need one value, or two together: float16, or float16 with a norm. A grid of five
parameters with four values each has 1,024 cases; some 25 of them hold every pair.
"""

import heapq
import itertools
import zlib
from collections.abc import Hashable, Sequence


def covering(rows: Sequence[Sequence[Hashable]], strength: int) -> list[int]:
    """Chooses rows that together hold every combination of `strength` values that any row holds.

    Greedy: each choice adds the most combinations. Ties are broken by a checksum of the row, so the
    same grid always gives the same rows, and values beyond the strength vary as well.

    Args:
        rows: The cases, each with one value per parameter. Rows are of equal length.
        strength: 1: each value; 2: each pair of values of two parameters; and so on.

    Returns:
        Indices of the chosen rows, ascending.
    """
    missing = [set(itertools.combinations(enumerate(row), min(strength, len(row)))) for row in rows]
    ties = [zlib.crc32(repr((len(rows), *row)).encode()) for row in rows]
    heap = [(-len(missing[i]), ties[i], i) for i in range(len(rows))]
    heapq.heapify(heap)
    covered: set[tuple[tuple[int, Hashable], ...]] = set()
    chosen = []
    while heap:
        gain, tie, i = heapq.heappop(heap)
        missing[i] -= covered
        # Gains only shrink, so the first row whose gain in the heap still holds is the best one.
        if len(missing[i]) == -gain:
            covered |= missing[i]
            chosen.append(i)
        elif missing[i]:
            heapq.heappush(heap, (-len(missing[i]), tie, i))
    return sorted(chosen)
