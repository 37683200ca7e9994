"""Saves two tables and reads their tensors from the checkpoint."""

import os

import tensorflow as tf
from tensorflow.contrib.framework.python.framework import checkpoint_utils

a = tf.get_embedding_variable("a", embedding_dim=4)
b = tf.get_embedding_variable("b", embedding_dim=8, partitioner=tf.fixed_size_partitioner(4))
emb = tf.concat(
    [
        tf.nn.embedding_lookup(a, tf.constant([0, 1, 2, 3, 4], dtype=tf.int64)),
        tf.nn.embedding_lookup(b, tf.constant([5, 6, 7, 8, 9], dtype=tf.int64)),
    ],
    axis=1,
)
train_op = tf.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(emb))
saver = tf.train.Saver()
os.makedirs("ckpt")
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run([emb, train_op])
    saver.save(sess, "./ckpt/model")
print(tf.train.load_variable("ckpt", "b-keys").tolist())
shapes = dict(checkpoint_utils.list_variables("ckpt"))
print([shapes["a-values"], shapes["b-values"], shapes["a-frequencies"]])
