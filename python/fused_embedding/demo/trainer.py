"""Trains models in turn on the same batches, from the same values, and times them."""

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from fused_embedding import extras
from fused_embedding.demo import criteo
from fused_embedding.demo.model import Model
from fused_embedding.demo.reader import Reader

# The models alternate in blocks of so many steps: a slow moment of the machine hits both.
BLOCK_STEPS = 10
_EVALUATION_BATCH = 4096


@dataclass
class Run:
    """One model in its session, and what its training gave."""

    name: str
    model: Model
    session: tf.compat.v1.Session
    losses: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)  # mean of each block
    aucs: dict[int, float] = field(default_factory=dict)  # on held-out rows, by steps trained

    @property
    def steps_per_second(self) -> float:
        """Median over the timed blocks."""
        return statistics.median(self.block_rates)

    @property
    def block_rates(self) -> list[float]:
        """Steps per second of each timed block: all but the first, which is the warm-up."""
        return [1.0 / seconds for seconds in self.step_seconds[1:]]

    @property
    def auc(self) -> float:
        """AUC after the last step."""
        return self.aucs[len(self.losses)]

    def evaluate(self, held_out: criteo.Rows) -> None:
        """Adds the AUC on `held_out` after the steps so far."""
        self.aucs[len(self.losses)] = evaluate(self.model, self.session, held_out)


def initialize(runs: Sequence[Run]) -> None:
    """Gives all models the initial values of the first.

    The values are passed by a checkpoint, which stock and fused models read and write alike.
    """
    with tempfile.TemporaryDirectory() as folder:
        for i, run in enumerate(runs):
            run.session.run(run.model.init_op)
            with run.model.graph.as_default():  # elsewhere the Saver takes itself for eager
                if i == 0:
                    path = run.model.saver.save(run.session, f"{folder}/initial")
                else:
                    run.model.saver.restore(run.session, path)


def open_session(graph: tf.Graph, is_tuned: bool = True) -> tf.compat.v1.Session:
    """Opens a session for `graph`.

    Args:
        graph: The graph.
        is_tuned: Whether Grappler's arithmetic optimization is off. If it is on, TensorFlow's
            default, it makes stock's gathers read whole tables, and each update then copies the
            table: stock is faster without it.
    """
    config = tf.compat.v1.ConfigProto()
    if is_tuned:
        rewrites = config.graph_options.rewrite_options
        rewrites.arithmetic_optimization = rewrites.OFF
    return tf.compat.v1.Session(graph=graph, config=config)


def batches(rows: criteo.Rows, batch_size: int, steps: int, seed: int) -> Iterator[criteo.Rows]:
    """Yields `steps` batches; each epoch goes through the rows once, in an order of its own.

    Raises:
        InputError: If there are fewer rows than a batch needs.
    """
    yield from itertools.islice(Reader(rows, batch_size, seed), steps)


def train(
    runs: Sequence[Run], stream: Iterator[criteo.Rows], on_block: Callable[[Run, int], None]
) -> None:
    """Trains all `runs` on the batches of `stream`, block by block.

    Args:
        runs: Their losses and step times are appended to.
        stream: The batches; made before the clock starts. A model that reads rows has them in a
            file, in this order.
        on_block: Called after each block with its run and its number of steps.
    """
    order = list(runs)
    while block := list(itertools.islice(stream, BLOCK_STEPS)):
        for run in order:
            began = time.perf_counter()
            for batch in block:
                _, loss = run.session.run(
                    (run.model.train_op, run.model.loss), run.model.training_feed(batch)
                )
                run.losses.append(float(loss))
            run.step_seconds.append((time.perf_counter() - began) / len(block))
            on_block(run, len(block))
        order.reverse()  # the first of a round finds colder caches


def relative_differences(reference: Run, run: Run) -> np.ndarray:
    """|loss - reference loss| / |reference loss| of each step of `run`."""
    want = np.asarray(reference.losses[: len(run.losses)])
    return np.abs(np.asarray(run.losses) - want) / np.abs(want)


def speedup(baseline: Run, run: Run) -> float:
    """Median over the rounds of the rate of `run` by the rate of `baseline`.

    The blocks of a round are neighbours in time, so that this is steadier on a busy machine than
    the ratio of the medians. Only rounds in which both trained count.
    """
    rounds = zip(run.block_rates, baseline.block_rates, strict=False)
    return statistics.median(ours / theirs for ours, theirs in rounds)


def evaluate(model: Model, session: tf.compat.v1.Session, rows: criteo.Rows) -> float:
    """Area under the ROC curve of the model on `rows`, which have both labels."""
    probabilities = []
    for at in range(0, len(rows.labels), _EVALUATION_BATCH):
        part = rows.take(slice(at, at + _EVALUATION_BATCH))
        probabilities.append(session.run(model.probability, model.feed(part)))
    return auc(rows.labels, np.concatenate(probabilities))


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve: how often a 1 scores above a 0; equal scores count a half.

    That is the U statistic of Mann and Whitney, divided by the number of pairs.
    """
    scores = scores.astype(np.float64)  # whose dtype the statistic has
    ones, zeros = scores[labels > 0], scores[labels == 0]
    test = extras.load("scipy.stats").mannwhitneyu(ones, zeros, method="asymptotic")
    return float(test.statistic / (len(ones) * len(zeros)))
