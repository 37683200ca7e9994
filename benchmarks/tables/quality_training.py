"""Trains a small model over one table in a TF1 session, and judges it by held-out rows.

Labels are predicted by a factorisation machine: the first number of a row is the id's weight, the
others are its factors. Items are ranked by their rows' products with the user's, trained by a
softmax over the items of a batch, less the logarithm of how frequent each is there.
"""

import pathlib

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from benchmarks.harness import sessions
from benchmarks.tables import quality_tables as tables
from benchmarks.tables import quality_tasks as tasks

v1 = tf.compat.v1
UPDATES_OF_A_PASS = 10  # of the bounds of dynamic dimensions
Metrics = dict[str, float]


class Program:
    """One model: its table, its training step and its evaluation.

    Attributes:
        plan: Of the table.
        task: What it is trained for.
        table: It.
        session: Of the model's graph, open until `close`.
    """

    def __init__(self, plan: tables.Plan, task: tasks.Task, seed: int) -> None:
        self.plan, self.task, self._seed = plan, task, seed
        graph = tf.Graph()
        with graph.as_default():
            v1.set_random_seed(seed)
            self.table = tables.make(plan, task, seed)
            self._build()
            self._statistics = [
                (counts["size"], counts["filtered"])
                for counts in (v.statistics() for v in tables.embedding_variables(plan, self.table))
            ]
            if plan.kind == "full":
                self._loaded = v1.placeholder(tf.float32, [task.num_ids, task.dim], "loaded")
                self._assign = self.table.assign(self._loaded).op
            if plan.kind == "dynamic_dimension":
                self._update_bounds = self.table.update_bounds()
                bounds = [tables.NEVER] * plan.options["num_blocks"]
                self._hide_all = self.table.bounds.assign(tf.constant(bounds, tf.int64)).op
            initialize = v1.global_variables_initializer()
        self.session = v1.Session(graph=graph, config=sessions.session_config(threads=1))
        self.session.run(initialize)

    def _build(self) -> None:
        task = self.task
        self._ids = v1.placeholder(tf.int64, [None, task.train_ids.shape[1]], "ids")
        self._labels = v1.placeholder(tf.float32, [None], "labels")
        self._bias = v1.get_variable("bias", [], initializer=v1.zeros_initializer())
        with fe.inference():
            rows = self._rows_of(self._ids)
            self._scores = self._score(rows)
            self._flat = v1.placeholder(tf.int64, [None], "flat")
            self._flat_rows = self._rows_of(self._flat[:, tf.newaxis])[:, 0]
        trained = self._rows_of(self._ids)
        self._counted = trained.op
        loss = self._retrieval_loss(trained) if task.is_retrieval else self._label_loss(trained)
        self._train = fe.train.AdagradOptimizer(task.learning_rate).minimize(loss)

    def _rows_of(self, ids: tf.Tensor) -> tf.Tensor:
        """`[n, num_fields, dim]` rows of `[n, num_fields]` ids."""
        flat = tf.reshape(ids, [-1])
        if self.plan.modulus:
            flat %= self.plan.modulus
        count = tf.size(flat, tf.int64)
        indices = tf.stack([tf.range(count), tf.zeros([count], tf.int64)], axis=1)
        sparse = tf.SparseTensor(indices, flat, tf.stack([count, 1]))
        rows = fe.nn.fused_safe_embedding_lookup_sparse(self.table, sparse, combiner="sum")
        return tf.reshape(rows, [-1, ids.shape[1], self.task.dim])

    def _score(self, rows: tf.Tensor) -> tf.Tensor:
        """`[n]` logits of labels, or products of user and item."""
        if self.task.is_retrieval:
            return tf.reduce_sum(rows[:, 0] * rows[:, 1], axis=1)
        weights, factors = rows[:, :, 0], rows[:, :, 1:]
        of_pairs = tf.reduce_sum(factors, axis=1) ** 2 - tf.reduce_sum(factors**2, axis=1)
        return self._bias + tf.reduce_sum(weights, axis=1) + tf.reduce_sum(of_pairs, axis=1) / 2

    def _label_loss(self, rows: tf.Tensor) -> tf.Tensor:
        logits = self._score(rows)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=self._labels, logits=logits)
        return tf.reduce_sum(losses)

    def _retrieval_loss(self, rows: tf.Tensor) -> tf.Tensor:
        """Softmax of each user's item and the first items of the batch."""
        counts = self.task.counts()[: self.task.num_items]
        often = tf.constant(np.log(np.maximum(counts, 1) / len(self.task.train_ids)), tf.float32)
        users, items = rows[:, 0], rows[:, 1]
        ids = self._ids[:, 1]
        others = ids[: tasks.NUM_CANDIDATES]
        logits = tf.matmul(users, items[: tasks.NUM_CANDIDATES], transpose_b=True)
        logits -= tf.gather(often, others)
        is_own = tf.equal(ids[:, tf.newaxis], others)
        logits -= 1e9 * tf.cast(is_own, tf.float32)
        own = tf.reduce_sum(users * items, axis=1) - tf.gather(often, ids)
        return tf.reduce_sum(tf.reduce_logsumexp(_with(own, logits), axis=1) - own)

    def train(self) -> None:
        """Runs all steps; a table of dynamic dimensions counts all ids in a pass before."""
        step = self.session.make_callable(self._train, feed_list=[self._ids, self._labels])
        num_steps = max(len(self.task.train_ids) // self.task.batch_size, 1)
        every = max(num_steps // UPDATES_OF_A_PASS, 1)
        is_dynamic = self.plan.kind == "dynamic_dimension"
        if is_dynamic:
            self._count()
        for i, chosen in enumerate(self.task.batches(self._seed)):
            if is_dynamic and i % every == 0:
                self.session.run(self._update_bounds)
            step(self.task.train_ids[chosen], _labels_of(self.task.train_labels, chosen))

    def _count(self) -> None:
        """Lets the table count the train rows without giving a block to any id."""
        self.session.run(self._hide_all)
        count = self.session.make_callable(self._counted, feed_list=[self._ids])
        for first in range(0, len(self.task.train_ids), tasks.EVAL_BATCH):
            count(self.task.train_ids[first : first + tasks.EVAL_BATCH])

    def content(self) -> tables.Content:
        """What the table has now."""
        sizes = [(int(n), int(w)) for n, w in self.session.run(self._statistics)]
        return tables.content(self.plan, self.task, sizes)

    def scores(self, ids: np.ndarray) -> np.ndarray:
        """Scores of rows of ids."""
        run = self.session.make_callable(self._scores, feed_list=[self._ids])
        parts = range(0, len(ids), tasks.EVAL_BATCH)
        return np.concatenate([run(ids[first : first + tasks.EVAL_BATCH]) for first in parts])

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """`[n, dim]` rows of ids."""
        return self.session.run(self._flat_rows, {self._flat: ids})

    def evaluate(self) -> Metrics:
        """Metrics of the held-out rows."""
        if self.task.is_retrieval:
            return {self.task.metric: tasks.recall(self.task, self.rows)}
        labels = self.task.held_labels
        assert labels is not None
        logits = self.scores(self.task.held_ids)
        return {"auc": tasks.auc(labels, logits), "logloss": tasks.logloss(labels, logits)}

    def all_rows(self) -> np.ndarray:
        """The table of the kind "full"."""
        return self.session.run(self.table)

    def load(self, rows: np.ndarray) -> None:
        """Replaces the table of the kind "full"."""
        self.session.run(self._assign, {self._loaded: rows})

    def exported_scores(self, folder: pathlib.Path, quantize: str, ids: np.ndarray) -> np.ndarray:
        """Scores that a quantised export of the model gives."""
        fe.export_for_serving(
            *(self.session, folder),
            inputs={"ids": self._ids},
            outputs={"scores": self._scores},
            quantize=quantize,
        )
        with tf.Graph().as_default(), v1.Session() as session:
            loaded = v1.saved_model.load(session, ["serve"], str(folder))
            signature = loaded.signature_def["serving_default"]
            feed = {signature.inputs["ids"].name: ids}
            return session.run(signature.outputs["scores"].name, feed)

    def close(self) -> None:
        """Frees the model."""
        self.session.close()


def _with(own: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.concat([own[:, tf.newaxis], logits], axis=1)


def _labels_of(labels: np.ndarray | None, chosen: np.ndarray) -> np.ndarray:
    return np.zeros(0, np.float32) if labels is None else labels[chosen]
