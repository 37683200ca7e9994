"""Trains a multi-hash variable that tf.nn.embedding_lookup reads, and a multi-hash column."""

import tensorflow as tf

table = tf.get_multihash_variable(
    "var-dist",
    [[2, 2], [2, 2]],
    complementary_strategy="Q-R",
    operation="concat",
    initializer=tf.ones_initializer,
)
rows = tf.nn.embedding_lookup(table, [0, 1, 2, 3])
categorical = tf.feature_column.categorical_column_with_multihash(
    "col_emb", dims=(5, 3), operation="mult", dtype=tf.int64
)
column = tf.feature_column.embedding_column(
    categorical, dimension=(3, 3), initializer=tf.ones_initializer(tf.float32)
)
features = {
    "col_emb": tf.SparseTensor(
        [[row, 0] for row in range(5)], tf.cast([1, 2, 3, 4, 5], tf.int64), [5, 5]
    )
}
emb = tf.feature_column.input_layer(features, [column])
loss = tf.reduce_sum(tf.multiply(rows, 2.0, name="multiply"), name="reduce_sum")
loss_of_column = tf.reduce_sum(emb)
optimizer = tf.train.AdagradOptimizer(0.1)
train_op = optimizer.apply_gradients(optimizer.compute_gradients(loss + loss_of_column))

with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
    sess.run([tf.global_variables_initializer()])
    for _ in range(3):
        print([float(value) for value in sess.run([loss, loss_of_column, train_op])[:2]])
    print(sorted(variable.op.name for variable in tf.trainable_variables()))
    print(sess.run(table.val_list[0]).tolist())
