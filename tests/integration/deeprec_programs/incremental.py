"""Saves incremental checkpoints between full ones, and starts again from the last one."""

import tensorflow as tf

table = tf.get_embedding_variable("table", 4, partitioner=tf.fixed_size_partitioner(2))
dense = tf.get_variable(
    "dense",
    shape=[30, 4],
    initializer=tf.ones_initializer(tf.float32),
    partitioner=tf.fixed_size_partitioner(num_shards=4),
)
ids = tf.placeholder(dtype=tf.int64, name="ids")
rows = tf.nn.embedding_lookup(table, ids) + tf.nn.embedding_lookup(dense, ids)
global_step = tf.train.get_or_create_global_step()
optimizer = tf.train.AdagradOptimizer(0.1, initial_accumulator_value=1)
train_op = optimizer.minimize(tf.reduce_sum(rows), global_step=global_step)
content = table.export().values

with tf.train.MonitoredTrainingSession(
    checkpoint_dir="ckpt", save_checkpoint_steps=4, save_incremental_checkpoint_secs=1e-9
) as sess:
    for i in range(3):
        sess.run(train_op, feed_dict={"ids:0": [i, i + 10]})
    print([int(sess.run(global_step)), sess.run(content).tolist()])
