"""The demo's model on tables without a vocabulary: one EmbeddingVariable for each field."""

from typing import Any, NamedTuple

import tensorflow as tf

import fused_embedding as fe
from fused_embedding.demo import model

_MAX_INITIAL = 0.05


class TableModel(NamedTuple):
    """The model, and what a run that may be cut off needs beside it."""

    model: model.Model  # `probability` is of an evaluation: it inserts nothing; saves everything
    global_step: tf.Tensor  # steps taken
    reader_state: tf.Variable  # string: where the reader was at the checkpoint
    statistics: dict[str, tf.Tensor]  # of all tables together


def build(
    filter_option: fe.CounterFilter | None,
    embedding_dim: int,
    seed: int,
    num_columns: int = len(model.NAMES),
) -> TableModel:
    """Builds the model in a graph of its own.

    Args:
        filter_option: Which ids get a row.
        embedding_dim: Dimension of the embeddings.
        seed: Graph-level seed of the initial values.
        num_columns: Categoricals of the rows: C1 and so on.
    """
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(seed)
        inputs = model.placeholders(num_columns=num_columns)
        with v1.variable_scope("model"):
            logits = _logits(inputs, filter_option, embedding_dim)
        with v1.variable_scope("model", reuse=True), fe.inference():
            probability = tf.sigmoid(_logits(inputs, filter_option, embedding_dim))
        loss = model.loss_of(inputs.labels, logits)
        global_step = v1.train.get_or_create_global_step()
        optimizer = v1.train.AdagradOptimizer(model.LEARNING_RATE)
        train_op = optimizer.minimize(loss, global_step=global_step)
        reader_state = v1.get_variable("reader_state", initializer="", trainable=False)
        tables = [table.statistics() for table in v1.get_collection(fe.EMBEDDING_VARIABLES)]
        return TableModel(
            model=model.Model(
                graph=graph,
                **inputs._asdict(),
                probability=probability,
                loss=loss,
                train_op=train_op,
                init_op=v1.global_variables_initializer(),
                saver=v1.train.Saver(max_to_keep=2),
            ),
            global_step=global_step,
            reader_state=reader_state,
            statistics={name: tf.add_n([table[name] for table in tables]) for name in tables[0]},
        )


def _logits(
    inputs: model.Inputs, filter_option: fe.CounterFilter | None, embedding_dim: int
) -> tf.Tensor:
    """The model's logits, `[batch]`. A row has an id's embedding, followed by its linear weight."""
    option = fe.EmbeddingVariableOption(filter_option=filter_option)
    limit = tf.compat.v1.random_uniform_initializer(-_MAX_INITIAL, _MAX_INITIAL)
    features = model.features(inputs.categoricals)
    columns = [
        fe.feature_column.embedding_column(
            fe.feature_column.categorical_column_with_embedding(name, tf.int64, ev_option=option),
            embedding_dim + 1,
            initializer=limit,
            do_fusion="v2",
        )
        for name in features
    ]
    return logits_of(inputs, columns)


def logits_of(inputs: model.Inputs, columns: list[Any]) -> tf.Tensor:
    """Logits `[batch]`.

    Args:
        inputs: Of the model.
        columns: An embedding column for each categorical, all of one dimension; the last value of
            a row is the weight of the id in the wide part.
    """
    rows = tf.compat.v1.feature_column.input_layer(model.features(inputs.categoricals), columns)
    dim = columns[0].dimension
    rows = tf.reshape(rows, [-1, len(columns), dim])
    embeddings, weights = rows[:, :, :-1], rows[:, :, -1]
    wide = tf.reduce_sum(weights, axis=1, keepdims=True)
    deep = tf.reshape(embeddings, [-1, len(columns) * (dim - 1)])
    return model.wide_and_deep(wide, tf.concat([inputs.integers, deep], axis=1))
