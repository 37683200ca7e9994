"""Batches of rows in shuffled order, from any point on."""

import json
from collections.abc import Iterator

import numpy as np

from fused_embedding.demo import criteo


class Reader(Iterator[criteo.Rows]):
    """Yields batches without end; each epoch goes through the rows once, in an order of its own."""

    def __init__(self, rows: criteo.Rows, batch_size: int, seed: int) -> None:
        """Starts at the first batch.

        Raises:
            InputError: If there are fewer rows than a batch needs.
        """
        self._rows, self._batch_size = rows, batch_size
        self._batches_per_epoch = len(rows.labels) // batch_size
        if self._batches_per_epoch == 0:
            raise criteo.InputError(
                f"{len(rows.labels)} training rows do not fill a batch of {batch_size}; lower "
                "--batch_size"
            )
        self._random = np.random.default_rng(seed)
        self._start_epoch()

    def __next__(self) -> criteo.Rows:
        if self._batch == self._batches_per_epoch:
            self._start_epoch()
        first = self._batch * self._batch_size
        self._batch += 1
        return self._rows.take(self._order[first : first + self._batch_size])

    def _start_epoch(self) -> None:
        self._random_state = self._random.bit_generator.state
        self._order = self._random.permutation(len(self._rows.labels))
        self._batch = 0

    def state(self) -> str:
        """Where the reader is: its random state when the epoch began, and batches since."""
        state = {"random": self._random_state, "batch": self._batch, "shape": self._shape()}
        return json.dumps(state)

    def restore(self, state: str) -> None:
        """Goes to where the reader of `state()` was.

        Raises:
            InputError: If that one read another number of rows, or batches of another size.
        """
        saved = json.loads(state)
        if saved["shape"] != self._shape():
            raise criteo.InputError(
                f"the checkpoint is of a run with rows and batch size {saved['shape']}, and these "
                f"are {self._shape()}; give the same --data, --steps and --batch_size, or another "
                "--checkpoint_dir"
            )
        self._random.bit_generator.state = saved["random"]
        self._start_epoch()
        self._batch = saved["batch"]

    def _shape(self) -> list[int]:
        return [len(self._rows.labels), self._batch_size]
