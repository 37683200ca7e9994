"""What a program trains on: sizes, batches, the number of steps, a folder."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness.workloads import zipf_ids

Batch = dict[str, np.ndarray]
Outcome = dict[str, Any]  # what a user sees at the end: losses, variables, files, answers

# Of eight rows: where the ids of a sparse feature are. Two rows have none.
_INDICES = np.array([[0, 0], [0, 1], [1, 0], [3, 0], [3, 1], [4, 0], [6, 0], [7, 1]], np.int64)


class Size(NamedTuple):
    """Sizes of a program; the defaults are those of tests.

    Attributes:
        columns: Embedding columns, about: a program has as many of each kind.
        rows: Of a table.
        dim: Values of a row.
        batch: Rows of a batch, a multiple of 8.
        units: Of the hidden layer.
    """

    columns: int = 1
    rows: int = 12
    dim: int = 4
    batch: int = 8
    units: int = 6

    def copies(self, num_kinds: int) -> range:
        """The numbers of the copies of a program's kinds of columns."""
        return range(max(1, round(self.columns / num_kinds)))

    def vocabulary(self) -> list[str]:
        """`rows - 2` words."""
        return [f"w{i:x}" for i in range(self.rows - 2)]

    def indices(self) -> np.ndarray:
        """`[batch, 2]` int64 indices of sparse features of shape `[batch, 2]`."""
        blocks = np.arange(0, self.batch, 8)[:, None, None] * [1, 0]
        return (blocks + _INDICES).reshape(-1, 2)


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a program runs.

    Attributes:
        size: Its sizes.
        batches: What it trains on, in turns, as the module of the program makes them.
        num_steps: Training steps.
        folder: Where it saves.
        config: A ConfigProto of its sessions.
        after_step: Called with the loss of each training step.
        warm_start: A folder with a checkpoint that an Estimator starts from.
    """

    size: Size
    batches: Sequence[Batch]
    num_steps: int
    folder: str
    config: Any = None
    after_step: Callable[[Any], None] = lambda loss: None
    warm_start: str | None = None

    def losses_of(self, step: Callable[[Batch], Any]) -> list[Any]:
        """Calls `step` with a batch in each step and returns the losses, its results."""
        losses = []
        for batch in itertools.islice(itertools.cycle(self.batches), self.num_steps):
            losses.append(step(batch))
            self.after_step(losses[-1])
        return losses

    def stacked(self) -> Batch:
        """All batches, one behind the other: `[len(batches), ...]`."""
        return {key: np.stack([batch[key] for batch in self.batches]) for key in self.batches[0]}


def zipf_words(rng: np.random.Generator, size: Size, num: int) -> np.ndarray:
    """`[num]` bytes as objects: words, one outside of the vocabulary, and none at all."""
    words = np.array([*map(str.encode, size.vocabulary()), b"other", b""], object)
    return words[zipf_ids(rng, size.rows, num)]


def each(num: int, seed: int, make: Callable[[np.random.Generator], Batch]) -> Iterator[Batch]:
    """Batches that `make` draws."""
    rng = np.random.default_rng(seed)
    for _ in range(num):
        yield make(rng)
