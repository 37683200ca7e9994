"""The demo on tables without a vocabulary: what they hold, and a run that may be cut off."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from fused_embedding import extras
from fused_embedding.demo import criteo, table_model, trainer
from fused_embedding.demo.reader import Reader

MIN_OCCURRENCES = 2
# The two runs, by the name that is printed: which ids get a row.
FILTERS: dict[str, fe.CounterFilter | None] = {
    "every id": None,
    f"CounterFilter({MIN_OCCURRENCES})": fe.CounterFilter(filter_freq=MIN_OCCURRENCES),
}


@dataclass(frozen=True)
class Plan:
    """What a run trains on.

    Attributes:
        rows: Training rows.
        held_out: Rows of the evaluation.
        steps: Training steps.
        batch_size: Rows of a step.
        embedding_dim: Dimension of the embeddings.
        seed: Of initial values and row order.
        checkpoint_dir: Where a run leaves checkpoints and goes on from the last one; None: neither.
        checkpoint_every: Steps between two checkpoints.
    """

    rows: criteo.Rows
    held_out: criteo.Rows
    steps: int
    batch_size: int
    embedding_dim: int
    seed: int
    checkpoint_dir: str | None
    checkpoint_every: int

    def reader(self) -> Reader:
        """A reader at the first batch."""
        return Reader(self.rows, self.batch_size, self.seed)


@dataclass(frozen=True)
class Result:
    """What a run gave."""

    name: str
    loss: float  # of the last step; NaN if the checkpoint was of the last step
    steps_per_second: float
    auc: float
    statistics: dict[str, int]
    size_after_evaluation: int


class ResumableRun:
    """Trains a model, leaves checkpoints, and goes on from the last one.

    A checkpoint holds everything that the next steps depend on: tables with slots and counters,
    dense variables, the step, and the reader's position and random state. A run that was killed
    has the losses of one that was not, to the last bit.
    """

    def __init__(self, plan: Plan, model: table_model.TableModel, folder: str | None) -> None:
        self._plan, self._table_model, self._folder = plan, model, folder
        self.model = model.model
        self.session = trainer.open_session(model.model.graph)
        self._reader = plan.reader()
        self.step = 0
        self.loss = float("nan")
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
        self._start()

    def _start(self) -> None:
        self.session.run(self.model.init_op)
        path = tf.train.latest_checkpoint(self._folder) if self._folder else None
        if path is None:
            return
        with self.model.graph.as_default():
            self.model.saver.restore(self.session, path)
        state, step = self.session.run(
            (self._table_model.reader_state, self._table_model.global_step)
        )
        self._reader.restore(state.decode())
        self.step = int(step)
        print(f"resume  at step {self.step} from {path}", flush=True)

    def train(self, on_step: Callable[[float], None]) -> None:
        """Trains to the last step; calls `on_step` with the loss of each."""
        while self.step < self._plan.steps:
            batch = next(self._reader)
            _, loss = self.session.run(
                (self.model.train_op, self.model.loss), self.model.feed(batch)
            )
            self.step, self.loss = self.step + 1, float(loss)
            self._log_loss()
            if self.step % self._plan.checkpoint_every == 0:
                self._save()
            on_step(self.loss)

    def _log_loss(self) -> None:
        """Appends step and loss, all its bits, to losses.txt: what a restart can be checked by."""
        if self._folder is not None:
            with open(os.path.join(self._folder, "losses.txt"), "a") as file:
                file.write(f"{self.step} {self.loss.hex()}\n")

    def _save(self) -> None:
        if self._folder is None:
            return
        with self.model.graph.as_default():  # elsewhere the variable takes itself for eager
            self._table_model.reader_state.load(self._reader.state(), self.session)
            path = os.path.join(self._folder, "model")
            self.model.saver.save(self.session, path, self.step, write_meta_graph=False)

    def statistics(self) -> dict[str, int]:
        """What the tables count, all together."""
        counted = self.session.run(self._table_model.statistics)
        return {name: int(value) for name, value in counted.items()}


def run(plan: Plan, name: str) -> Result:
    """Trains and evaluates the model with the filter of that name."""
    num_columns = plan.rows.categoricals.shape[1]
    model = table_model.build(FILTERS[name], plan.embedding_dim, plan.seed, num_columns)
    folder = None
    if plan.checkpoint_dir is not None:
        folder = os.path.join(plan.checkpoint_dir, "all" if FILTERS[name] is None else "filtered")
    resumable = ResumableRun(plan, model, folder)
    done, began = resumable.step, time.perf_counter()
    with extras.load("tqdm").tqdm(total=plan.steps, initial=done, unit="step", desc=name) as bar:

        def show(loss: float) -> None:
            bar.update()
            bar.set_postfix(loss=f"{loss:.6f}")

        resumable.train(show)
    rate = (resumable.step - done) / (time.perf_counter() - began)
    statistics = resumable.statistics()
    return Result(
        name=name,
        loss=resumable.loss,
        steps_per_second=rate,
        auc=trainer.evaluate(resumable.model, resumable.session, plan.held_out),
        statistics=statistics,
        size_after_evaluation=resumable.statistics()["size"],
    )


def expected_sizes(plan: Plan) -> dict[str, int]:
    """Rows that each run's tables must have: ids of the batches that occurred often enough."""
    reader = plan.reader()
    ids = np.concatenate([next(reader).categoricals for _ in range(plan.steps)])
    counts = [
        np.unique(column[column != criteo.MISSING], return_counts=True)[1] for column in ids.T
    ]
    occurrences = np.concatenate(counts)
    least = {name: 1 if option is None else MIN_OCCURRENCES for name, option in FILTERS.items()}
    return {name: int(np.sum(occurrences >= n)) for name, n in least.items()}


def report(results: list[Result], expected: dict[str, int]) -> int:
    """Prints the table; returns 0 if the tables hold what they must, else 1."""
    lines: list[tuple[str, Callable[[Result], str]]] = [
        ("steps per second", lambda r: f"{r.steps_per_second:.1f}"),
        ("last loss", lambda r: f"{r.loss:.6f}"),
        ("held-out AUC", lambda r: f"{r.auc:.6f}"),
        ("rows in the tables", lambda r: f"{r.statistics['size']:,}"),
        ("ids without a row yet", lambda r: f"{r.statistics['filtered']:,}"),
        ("megabytes", lambda r: f"{r.statistics['memory_bytes'] / 1e6:.1f}"),
    ]
    print("\n" + " " * 24 + "".join(f"{r.name:>18}" for r in results))
    for what, value in lines:
        print(f"{what:24}" + "".join(f"{value(r):>18}" for r in results))
    print()
    checks = []
    for result in results:
        size, want = result.statistics["size"], expected[result.name]
        checks += [
            (f"{result.name}: {size:,} rows, {want:,} ids in the batches call for one", size, want),
            (
                f"{result.name}: {result.size_after_evaluation:,} rows after the evaluation",
                result.size_after_evaluation,
                size,
            ),
        ]
    for what, got, want in checks:
        print(f"{'ok    ' if got == want else 'FAILED'}  {what}")
    return int(any(got != want for _, got, want in checks))
