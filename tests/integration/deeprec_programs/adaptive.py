"""Trains an adaptive column, whose mask says which ids have rows of their own."""

import tensorflow as tf

columns = tf.feature_column.categorical_column_with_adaptive_embedding(
    "col_emb", hash_bucket_size=100, dtype=tf.int64, ev_option=tf.EmbeddingVariableOption()
)
column = tf.feature_column.embedding_column(
    categorical_column=columns, dimension=16, initializer=tf.ones_initializer(tf.dtypes.float32)
)
features = {
    "col_emb": tf.SparseTensor(
        indices=[[row, 0] for row in range(10)],
        values=tf.cast([1, 2, 3, 4, 5, 6, 7, 8, 9, 0], tf.dtypes.int64),
        dense_shape=[10, 1],
    )
}
masks = {"col_emb": tf.constant([1, 0, 1, 0, 1, 0, 0, 1, 0, 1], tf.int32)}
emb = tf.feature_column.input_layer(features, [column], adaptive_mask_tensors=masks)
loss = tf.reduce_sum(tf.multiply(emb, 2.0, name="multiply"), name="reduce_sum")
optimizer = tf.train.FtrlOptimizer(
    0.1, l1_regularization_strength=2.0, l2_regularization_strength=0.00001
)
train_op = optimizer.apply_gradients(optimizer.compute_gradients(loss))
[shared] = [v for v in tf.global_variables() if v.op.name.endswith("/hash_weights")]
[own] = tf.get_collection(tf.GraphKeys.EMBEDDING_VARIABLES)

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(3):
        print(float(sess.run([emb, train_op, loss])[2]))
    print((sess.run(shared) != 1).any(axis=1).nonzero()[0].tolist())
    print(sess.run(own.export()).keys.tolist())
    print([shared.op.name, own.op.name])
