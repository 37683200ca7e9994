"""Trains the embedding column of one id feature with DeepRec's tf.feature_column."""

import tensorflow as tf
from tensorflow.python.framework import ops

column = tf.feature_column.categorical_column_with_embedding("col_emb", dtype=tf.dtypes.int64)
embedding = tf.feature_column.embedding_column(
    categorical_column=column,
    dimension=3,
    initializer=tf.ones_initializer(tf.dtypes.float32),
    do_fusion="v2",
)

features = {
    "col_emb": tf.SparseTensor(
        indices=[[0, 0], [1, 1], [2, 2], [3, 3], [4, 4]],
        values=tf.cast([1, 2, 3, 4, 5], tf.dtypes.int64),
        dense_shape=[5, 4],
    )
}
emb = tf.feature_column.input_layer(features, [embedding])
loss = tf.reduce_sum(tf.multiply(emb, 2.0))

optimizer = tf.train.FtrlOptimizer(
    0.1, l1_regularization_strength=2.0, l2_regularization_strength=0.00001
)
train_op = optimizer.apply_gradients(optimizer.compute_gradients(loss))
assert train_op in ops.get_default_graph().get_operations()

with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(3):
        emb_value, _, loss_value = sess.run([emb, train_op, loss])
        print([emb_value.tolist(), float(loss_value)])
