"""Trains a sequence column, by the modules and functions that DeepRec's document names."""

import tensorflow as tf
from tensorflow.python.feature_column import sequence_feature_column

column = sequence_feature_column.sequence_categorical_column_with_embedding(
    key="col_emb", dtype=tf.dtypes.int32
)
embedding = tf.feature_column.embedding_column(
    categorical_column=column, dimension=3, initializer=tf.ones_initializer(tf.dtypes.float32)
)
features = {
    "col_emb": tf.SparseTensor(
        indices=[[0, 0], [0, 1], [1, 1], [2, 2], [3, 3], [4, 4]],
        values=tf.cast([1, 3, 2, 3, 4, 5], tf.dtypes.int64),
        dense_shape=[5, 5],
    )
}
emb, length = tf.contrib.feature_column.sequence_input_layer(features, [embedding])
loss = tf.reduce_sum(tf.multiply(emb, 2.0))
optimizer = tf.train.FtrlOptimizer(
    0.1, l1_regularization_strength=2.0, l2_regularization_strength=0.00001
)
train_op = optimizer.apply_gradients(optimizer.compute_gradients(loss))

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(3):
        print(float(sess.run([emb, train_op, loss])[2]))
    print(sess.run(length).tolist())
