"""Trains a variable whose rows have as many blocks as each id is given."""

import tensorflow as tf
from tensorflow.python.framework import dtypes

table = tf.get_dynamic_dimension_embedding_variable(
    "var_dist",
    embedding_block_dimension=6,
    embedding_block_num=4,
    key_dtype=dtypes.int64,
    initializer=tf.ones_initializer(tf.float32),
    steps_to_live=4000,
)
ids = tf.cast([21, 34, 78, 99, 56], tf.int64)
emb = tf.nn.embedding_lookup(table, ids, blocknums=tf.constant([4, 1, 4, 3, 1]))
loss = tf.reduce_sum(tf.multiply(emb, 2.0, name="multiply"), name="reduce_sum")
global_step = tf.train.get_or_create_global_step()
optimizer = tf.train.AdagradDecayOptimizer(0.1, global_step=global_step)
train_op = optimizer.apply_gradients(optimizer.compute_gradients(loss), global_step)
sizes = [block.total_count() for block in table._ev_list]

with tf.Session() as sess:
    sess.run([tf.global_variables_initializer()])
    print(sess.run(emb).sum(axis=1).tolist())
    for _ in range(3):
        print(float(sess.run([emb, train_op, loss])[2]))
    print([int(size) for size in sess.run(sizes)])
    print([table.shape.as_list()[-1], table.blocknum(), table.mainev().op.name])
