"""Makes tables and columns with the options of DeepRec's documents."""

import tensorflow as tf
from tensorflow.contrib.layers.python.layers import feature_column
from tensorflow.python.framework import dtypes

OPTIONS = {
    "init_option": tf.InitializerOption(
        initializer=tf.glorot_uniform_initializer, default_value_dim=1000
    ),
    "steps": tf.GlobalStepEvict(steps_to_live=4000),
    "norm": tf.L2WeightEvict(l2_weight_threshold=1.0),
    "bloom": tf.CBFFilter(
        filter_freq=3,
        max_element_size=2**10,
        false_positive_probability=0.01,
        counter_type=dtypes.int64,
    ),
    "counter": tf.CounterFilter(filter_freq=3),
}
FIELDS = {
    "steps": "evict_option",
    "norm": "evict_option",
    "bloom": "filter_option",
    "counter": "filter_option",
}

rows = []
for name, part in OPTIONS.items():
    option = tf.EmbeddingVariableOption(**{FIELDS.get(name, name): part})
    table = tf.get_embedding_variable(name, embedding_dim=16, ev_option=option)
    rows.append(tf.nn.embedding_lookup(table, tf.constant([1, 2], tf.int64)))
    feature_column.sparse_column_with_embedding(name, ev_option=option)
    tf.feature_column.categorical_column_with_embedding(name, ev_option=option)
    print([table.steps_to_live, table.storage_type.name])

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    print([bool(value.any()) for value in sess.run(rows)])
