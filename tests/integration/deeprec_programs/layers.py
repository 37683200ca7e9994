"""A dense layer of tf.layers, which are Keras 2's."""

import tensorflow as tf

with tf.variable_scope("dnn", reuse=tf.AUTO_REUSE):
    out = tf.layers.dense(tf.ones([4, 8]), units=2, activation=tf.nn.relu)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    print(sess.run(out).shape)
