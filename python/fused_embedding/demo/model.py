"""A Wide & Deep click model as a tf.compat.v1 user writes it: a program of TensorFlow alone."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from fused_embedding.demo import criteo

# Large fields share buckets: what matters to the demo is the rows of a batch, not the tables' size.
_MAX_BUCKETS = 100_000
_HIDDEN_UNITS = 64
LEARNING_RATE = 0.02
NAMES = tuple(f"C{i + 1}" for i in range(len(criteo.CARDINALITIES)))

EmbeddingColumn = Callable[[Any, int], Any]  # of a categorical column and a dimension


# [batch, columns] int64 with -1, or strings with "", where one is missing; or [batch] of each by
# name.
Categoricals: TypeAlias = tf.Tensor | dict[str, tf.Tensor]


class Inputs(NamedTuple):
    """A batch: placeholders, or what a pipeline reads."""

    labels: tf.Tensor  # [batch] float32
    integers: tf.Tensor  # [batch, 13] float32
    categoricals: Categoricals


MakeInputs = Callable[[], Inputs]


class Model(NamedTuple):
    """A graph and the tensors that a trainer needs."""

    graph: tf.Graph
    labels: tf.Tensor  # as in Inputs
    integers: tf.Tensor
    categoricals: Categoricals
    probability: tf.Tensor  # [batch] float32
    loss: tf.Tensor  # scalar
    train_op: tf.Operation
    init_op: tf.Operation
    saver: tf.compat.v1.train.Saver  # of the trainable variables

    @property
    def reads_rows(self) -> bool:
        """Whether the rows that it trains on are those of a pipeline in its graph."""
        return self.labels.op.type != "Placeholder"

    def feed(self, rows: criteo.Rows) -> dict[Any, Any]:
        """The feed_dict for `rows`."""
        fed = {self.labels: rows.labels, self.integers: rows.integers}
        if isinstance(self.categoricals, dict):
            return fed | dict(zip(self.categoricals.values(), rows.categoricals.T, strict=True))
        return fed | {self.categoricals: rows.categoricals}

    def training_feed(self, rows: criteo.Rows) -> dict[Any, Any]:
        """The feed_dict of a step on `rows`, which a model that reads rows reads next."""
        return {} if self.reads_rows else self.feed(rows)


def placeholders(categorical_dtype: tf.DType = tf.int64, num_columns: int = len(NAMES)) -> Inputs:
    """Makes placeholders of a batch with the first `num_columns` of NAMES, as int64 or strings."""
    placeholder = tf.compat.v1.placeholder
    return Inputs(
        placeholder(tf.float32, [None], "labels"),
        placeholder(tf.float32, [None, criteo.NUM_INTEGERS], "integers"),
        placeholder(categorical_dtype, [None, num_columns], "categoricals"),
    )


def string_placeholders(num_columns: int = len(NAMES)) -> Inputs:
    """Makes placeholders of a batch whose categoricals are strings."""
    return placeholders(tf.string, num_columns)


def features(categoricals: Categoricals) -> dict[str, tf.Tensor]:
    """`[batch, columns]` categoricals as `[batch]` features by name."""
    if isinstance(categoricals, dict):
        return categoricals
    columns = tf.unstack(categoricals, axis=1)
    return dict(zip(NAMES[: len(columns)], columns, strict=True))


def loss_of(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """The mean loss of a batch."""
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(losses, name="loss")


def num_buckets() -> list[int]:
    """Rows of the embedding table of C1 to C26: twice the cardinality leaves few collisions."""
    return [min(2 * n + 100, _MAX_BUCKETS) for n in criteo.CARDINALITIES]


def build(
    embedding_dim: int,
    seed: int,
    embedding_column: EmbeddingColumn = tf.feature_column.embedding_column,
    make_inputs: MakeInputs = string_placeholders,
) -> Model:
    """Builds the model in a graph of its own. Its categoricals are strings.

    Args:
        embedding_dim: Dimension of the embeddings.
        seed: Graph-level seed of the initial values.
        embedding_column: Makes the embedding columns.
        make_inputs: Makes placeholders for rows that are fed, or the pipeline to train on.
    """
    with tf.Graph().as_default() as graph:
        tf.compat.v1.set_random_seed(seed)
        inputs = make_inputs()
        logits = _logits(inputs, embedding_dim, embedding_column)
        loss = loss_of(inputs.labels, logits)
        saver = tf.compat.v1.train.Saver(tf.compat.v1.trainable_variables())
        train_op = tf.compat.v1.train.AdagradOptimizer(LEARNING_RATE).minimize(loss)
        return Model(
            graph=graph,
            **inputs._asdict(),
            probability=tf.sigmoid(logits, name="probability"),
            loss=loss,
            train_op=train_op,
            init_op=tf.group(
                tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()
            ),
            saver=saver,
        )


def _logits(inputs: Inputs, embedding_dim: int, embedding_column: EmbeddingColumn) -> tf.Tensor:
    """Wide part on the categoricals, deep part on their embeddings and the integers: `[batch]`."""
    batch = features(inputs.categoricals)
    columns = [
        tf.feature_column.categorical_column_with_hash_bucket(name, size)
        for name, size in zip(batch, num_buckets()[: len(batch)], strict=True)
    ]
    embeddings = [embedding_column(column, embedding_dim) for column in columns]
    wide = tf.compat.v1.feature_column.linear_model(batch, columns)
    deep = tf.compat.v1.feature_column.input_layer(batch, embeddings)
    return wide_and_deep(wide, tf.concat([inputs.integers, deep], axis=1))


def wide_and_deep(wide: tf.Tensor, deep: tf.Tensor) -> tf.Tensor:
    """Logits `[batch]` of `wide` `[batch, 1]` and the inputs of the deep part `[batch, n]`."""
    # Not relu: where an input is 0 up to rounding, its gradient is 0 or 1 by chance, and trainings
    # that are compared drift apart.
    deep = tf.nn.elu(_dense("hidden_1", deep, _HIDDEN_UNITS))
    deep = tf.nn.elu(_dense("hidden_2", deep, _HIDDEN_UNITS))
    return tf.squeeze(wide + _dense("deep_logit", deep, 1), axis=1, name="logits")


def _dense(name: str, x: tf.Tensor, units: int) -> tf.Tensor:
    # tf.compat.v1.layers.dense does not exist beside Keras 3.
    with tf.compat.v1.variable_scope(name):
        limit = math.sqrt(6.0 / (x.shape[1] + units))
        kernel = tf.compat.v1.get_variable(
            "kernel",
            [x.shape[1], units],
            initializer=tf.compat.v1.random_uniform_initializer(-limit, limit),
        )
        bias = tf.compat.v1.get_variable("bias", [units], initializer=tf.zeros_initializer())
        return tf.linalg.matmul(x, kernel) + bias
