"""Trains an ordinary variable by each optimizer that DeepRec adds."""

import tensorflow as tf

variable = tf.get_variable("variable", shape=[10, 16], initializer=tf.ones_initializer(tf.float32))
step = tf.train.get_or_create_global_step()
train_ops = []
for optimizer in (
    tf.train.AdagradDecayOptimizer(0.1, global_step=step),
    tf.train.AdagradDecayOptimizerV2(0.1, global_step=step),
    tf.train.AdamAsyncOptimizer(0.1),
    tf.train.AdamWOptimizer(weight_decay=0.01, learning_rate=0.1),
):
    emb = tf.nn.embedding_lookup(variable, tf.cast([0, 1, 2, 5, 6, 7], tf.int64))
    loss = tf.reduce_sum(tf.multiply(emb, 2.0))
    train_ops.append((optimizer.apply_gradients(optimizer.compute_gradients(loss)), loss))

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for train_op in train_ops:
        print(float(sess.run(train_op)[1]))
