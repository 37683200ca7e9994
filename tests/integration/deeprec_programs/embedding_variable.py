"""Trains a partitioned EmbeddingVariable that tf.nn.embedding_lookup reads."""

import tensorflow as tf

table = tf.get_embedding_variable(
    "table",
    embedding_dim=3,
    initializer=tf.ones_initializer(tf.float32),
    partitioner=tf.fixed_size_partitioner(num_shards=4),
)
sizes = [part.total_count() for part in table]
emb = tf.nn.embedding_lookup(table, tf.cast([0, 1, 2, 5, 6, 7], tf.int64))
of_parts = tf.nn.embedding_lookup(list(table), tf.cast([7, 0], tf.int64))
loss = tf.reduce_sum(tf.multiply(emb, 2.0, name="multiply"), name="reduce_sum")
optimizer = tf.train.AdagradOptimizer(0.1)
train_op = optimizer.apply_gradients(optimizer.compute_gradients(loss))

config = tf.ConfigProto(allow_soft_placement=True, log_device_placement=False)
with tf.Session(config=config) as sess:
    sess.run([tf.global_variables_initializer()])
    for _ in range(3):
        print(float(sess.run([emb, train_op, loss])[2]))
    print(sum(sess.run(sizes)))
    print((sess.run(of_parts) == sess.run(emb)[[5, 0]]).all())
    print(sess.run(table.get_dynamic_shape()).tolist())
