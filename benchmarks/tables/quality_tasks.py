"""Tasks of model quality: real and synthetic data, in train and held-out rows, and their metrics.

All ids of a task are in one space, so each model has one table.
"""

import dataclasses
import gzip
import pathlib
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.harness import machine, workloads

DATA = machine.ROOT.parent / "shared" / "data"
TOP = 20  # of recall
HELD_OUT_OF = 5  # one row of so many is held out
NUM_CANDIDATES = 256  # items of a batch that each user of it is compared with
EVAL_BATCH = 8192
_USERS_AT_ONCE = 500

_PLANTED_DIM = 4
_PLANTED_EFFECT = 0.6  # standard deviation of what an id adds to the logit
_PLANTED_FACTOR = 0.5  # that of each number of a factor of the interactions
_PLANTED_BIAS = -0.5


@dataclasses.dataclass(frozen=True)
class Task:
    """Rows of ids to train and to judge a model by.

    Attributes:
        name: Of the data.
        train_ids: `[n, num_fields]` int64. Of a retrieval: user and item.
        train_labels: `[n]` float32, 0 or 1; None: a retrieval.
        held_ids: `[m, num_fields]` int64, held out.
        held_labels: `[m]` float32; None: a retrieval.
        num_ids: Size of the id space.
        num_items: Of a retrieval: ids below it are items, those above users.
        dim: Length of a row.
        epochs: Passes over the train rows.
        batch_size: Rows of a training step.
        learning_rate: Of Adagrad.
        held_out: How the held-out rows were chosen, in words.
    """

    name: str
    train_ids: np.ndarray
    train_labels: np.ndarray | None
    held_ids: np.ndarray
    held_labels: np.ndarray | None
    num_ids: int
    num_items: int
    dim: int
    epochs: int
    batch_size: int
    learning_rate: float
    held_out: str

    @property
    def is_retrieval(self) -> bool:
        """Whether items are ranked for users; else a label is predicted."""
        return self.train_labels is None

    @property
    def metric(self) -> str:
        """Name of the metric that kinds are compared by."""
        return f"recall@{TOP}" if self.is_retrieval else "auc"

    def counts(self) -> np.ndarray:
        """`[num_ids]` occurrences of each id in one pass over the train rows."""
        return np.bincount(self.train_ids.ravel(), minlength=self.num_ids)

    def batches(self, seed: int) -> Iterator[np.ndarray]:
        """Indices of the train rows of each step, in an order that the seed alone decides."""
        rng = np.random.default_rng([31, seed])
        num_rows = len(self.train_ids)
        size = min(self.batch_size, num_rows)
        for _ in range(self.epochs):
            order = rng.permutation(num_rows)
            for first in range(0, num_rows - size + 1, size):
                yield order[first : first + size]

    def describe(self) -> dict[str, object]:
        """What a result says about the data and the model."""
        seen = int(np.count_nonzero(self.counts()))
        fields = ("name", "num_ids", "dim", "epochs", "batch_size", "learning_rate", "held_out")
        sizes = {"train_rows": len(self.train_ids), "held_rows": len(self.held_ids)}
        return {f: getattr(self, f) for f in fields} | sizes | {"ids_seen": seen}


def frappe(dim: int, epochs: int, num_rows: int | None = None) -> Task:
    """Clicks on apps, ten one-hot fields; one row of five is held out, by a hash of its number.

    Args:
        dim: Length of a row.
        epochs: Passes over the train rows.
        num_rows: The first so many; None: all.
    """
    lines: list[bytes] = []
    for part in ("validation", "test"):
        lines += _lines(DATA / "frappe" / f"frappe.{part}.libfm.gz")
    values = np.array([line.replace(b":1", b"").split() for line in lines[:num_rows]], np.int64)
    is_held = workloads.hash64(np.arange(len(values))) % HELD_OUT_OF == 0
    ids, labels = values[:, 1:], (values[:, 0] > 0).astype(np.float32)
    held_out = f"rows of the validation and test files whose number's hash % {HELD_OUT_OF} is 0"
    return Task(
        name="frappe",
        train_ids=ids[~is_held],
        train_labels=labels[~is_held],
        held_ids=ids[is_held],
        held_labels=labels[is_held],
        num_ids=int(ids.max()) + 1,
        num_items=0,
        dim=dim,
        epochs=epochs,
        batch_size=1024,
        learning_rate=0.2,
        held_out=held_out,
    )


def amazon_book(dim: int, epochs: int, num_users: int) -> Task:
    """Books that users rated: the test file's are to be found among all but the train file's.

    Args:
        dim: Length of a row.
        epochs: Passes over the train rows.
        num_users: Users whose recall is measured, those with the smallest hashes.
    """
    folder = DATA / "amazon_book_kgat"
    train, test = (_pairs(folder / f"{name}.txt.gz") for name in ("train", "test"))
    judged = np.unique(test[:, 0])
    judged = judged[np.argsort(workloads.hash64(judged))[:num_users]]
    held_out = f"the test file's, of {len(judged)} users with the smallest hashes"
    return retrieval("amazon_book", train, test[np.isin(test[:, 0], judged)], dim, epochs, held_out)


def retrieval(
    name: str, train: np.ndarray, held: np.ndarray, dim: int, epochs: int, held_out: str
) -> Task:
    """A task of `[n, 2]` users and items, in one id space: items first, then users."""
    num_items = int(max(train[:, 1].max(), held[:, 1].max())) + 1
    num_ids = num_items + int(max(train[:, 0].max(), held[:, 0].max())) + 1
    moved = [pairs + np.array([num_items, 0]) for pairs in (train, held)]
    return Task(
        name=name,
        train_ids=moved[0],
        train_labels=None,
        held_ids=moved[1],
        held_labels=None,
        num_ids=num_ids,
        num_items=num_items,
        dim=dim,
        epochs=epochs,
        batch_size=2048,
        learning_rate=0.1,
        held_out=held_out,
    )


def _lines(path: pathlib.Path) -> list[bytes]:
    with gzip.open(path) as file:
        return file.read().splitlines()


def _pairs(path: pathlib.Path) -> np.ndarray:
    """`[n, 2]` user and item of each line's items."""
    lists = [np.array(line.split(), np.int64) for line in _lines(path)]
    users = np.repeat([each[0] for each in lists], [len(each) - 1 for each in lists])
    return np.stack([users, np.concatenate([each[1:] for each in lists])], axis=1)


def synthetic(dim: int, epochs: int, num_ids: int, num_rows: int) -> Task:
    """Four Zipf-distributed ids in a row; their effects and interactions decide the label's odds.

    Args:
        dim: Length of a row.
        epochs: Passes over the train rows.
        num_ids: Of all four fields together.
        num_rows: Of train and held-out rows together; the last fifth is held out.
    """
    rng = np.random.default_rng(2026)
    of_field = num_ids // 4
    fields = [workloads.zipf_ids(rng, of_field, num_rows) + i * of_field for i in range(4)]
    ids = np.stack(fields, axis=1)
    effects = rng.normal(0, _PLANTED_EFFECT, num_ids).astype(np.float32)
    factors = rng.normal(0, _PLANTED_FACTOR, (num_ids, _PLANTED_DIM)).astype(np.float32)
    of_row = factors[ids]
    pairs = (of_row.sum(axis=1) ** 2 - (of_row**2).sum(axis=1)).sum(axis=1) / 2
    logits = _PLANTED_BIAS + effects[ids].sum(axis=1) + pairs
    labels = (rng.random(num_rows) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    first = num_rows - num_rows // HELD_OUT_OF
    held_out = f"the last of {HELD_OUT_OF} parts of rows drawn with one seed"
    return Task(
        name="synthetic",
        train_ids=ids[:first],
        train_labels=labels[:first],
        held_ids=ids[first:],
        held_labels=labels[first:],
        num_ids=4 * of_field,
        num_items=0,
        dim=dim,
        epochs=epochs,
        batch_size=min(4096, first),
        learning_rate=0.1,
        held_out=held_out,
    )


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve: how often a 1 scores above a 0; equal scores count a half."""
    ordered = np.sort(scores)
    below = np.searchsorted(ordered, scores, side="left")
    through = np.searchsorted(ordered, scores, side="right")
    ranks = (below + through + 1) / 2
    is_one = labels > 0
    ones, zeros = int(is_one.sum()), int((~is_one).sum())
    return float((ranks[is_one].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def logloss(labels: np.ndarray, logits: np.ndarray) -> float:
    """Mean cross-entropy of labels and logits."""
    logits = logits.astype(np.float64)
    return float(np.mean(np.logaddexp(0, logits) - labels * logits))


Rows = Callable[[np.ndarray], np.ndarray]  # ids to `[n, dim]` rows


def recall(task: Task, rows_of: Rows) -> float:
    """Mean over users of the share of held-out items among the TOP scores.

    Items of a user's train rows are not ranked; of equal scores the smaller id is first.

    Args:
        task: A retrieval.
        rows_of: Reads rows of the model's table.
    """
    import tensorflow as tf  # here, so that --help starts fast

    users = np.unique(task.held_ids[:, 0])
    items = rows_of(np.arange(task.num_items)).T
    known, wanted = (_items_of(users, ids) for ids in (task.train_ids, task.held_ids))
    found = []
    for first in range(0, len(users), _USERS_AT_ONCE):
        scores = rows_of(users[first : first + _USERS_AT_ONCE]) @ items
        for of_user, at in zip(scores, known[first:], strict=False):
            of_user[at] = -np.inf
        top = tf.math.top_k(scores, TOP, sorted=False).indices.numpy()
        of_users = zip(top, wanted[first:], strict=False)
        found += [np.isin(want, best).mean() for best, want in of_users]
    return float(np.mean(found))


def _items_of(users: np.ndarray, pairs: np.ndarray) -> list[np.ndarray]:
    """The items of each user; `users` are in order."""
    ordered = pairs[np.argsort(pairs[:, 0], kind="stable")]
    first, last = (np.searchsorted(ordered[:, 0], users, side=side) for side in ("left", "right"))
    return [ordered[i:j, 1] for i, j in zip(first, last, strict=True)]
