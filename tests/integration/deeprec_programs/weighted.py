"""Trains a column of weighted ids."""

import tensorflow as tf

column = tf.feature_column.categorical_column_with_embedding("col_emb", dtype=tf.dtypes.int64)
features = {
    "col_emb": tf.SparseTensor(
        indices=[[0, 0], [0, 1], [1, 1], [2, 2], [3, 3], [4, 3], [4, 4]],
        values=tf.cast([1, 3, 2, 3, 4, 5, 3], tf.dtypes.int64),
        dense_shape=[5, 5],
    ),
    "weight": [[2.0], [5.0], [4.0], [8.0], [3.0], [1.0], [2.5]],
}
weighted = tf.feature_column.weighted_categorical_column(column, "weight")
embedding = tf.feature_column.embedding_column(
    categorical_column=weighted, dimension=3, initializer=tf.ones_initializer(tf.dtypes.float32)
)
emb = tf.feature_column.input_layer(features, [embedding])
loss = tf.reduce_sum(tf.multiply(emb, 2.0))
optimizer = tf.train.FtrlOptimizer(
    0.1, l1_regularization_strength=2.0, l2_regularization_strength=0.00001
)
train_op = optimizer.apply_gradients(optimizer.compute_gradients(loss))

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(3):
        print(float(sess.run([emb, train_op, loss])[2]))
