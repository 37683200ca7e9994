"""Trains the embedding column of one id feature with DeepRec's tf.contrib.layers."""

import tensorflow as tf
from tensorflow.contrib.layers.python.layers import (
    embedding_ops,
    feature_column,
    feature_column_ops,
)
from tensorflow.python.ops.embedding_ops import fused_safe_embedding_lookup_sparse

assert embedding_ops.fused_safe_embedding_lookup_sparse is fused_safe_embedding_lookup_sparse

column = feature_column.sparse_column_with_embedding(column_name="col_emb", dtype=tf.dtypes.int64)
embedding = feature_column.embedding_column(
    sparse_id_column=column,
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
emb = feature_column_ops.input_from_feature_columns(
    columns_to_tensors=features, feature_columns=[embedding]
)
loss = tf.reduce_sum(tf.multiply(emb, 2.0))

optimizer = tf.train.FtrlOptimizer(
    0.1, l1_regularization_strength=2.0, l2_regularization_strength=0.00001
)
train_op = optimizer.apply_gradients(optimizer.compute_gradients(loss))

with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(3):
        emb_value, _, loss_value = sess.run([emb, train_op, loss])
        print([emb_value.tolist(), float(loss_value)])
