"""Writes the graph of a training on a parameter server, as `.meta` files have it.

    PYTHONPATH=CHECKOUT/python:tests python -m distributed.old_graph FILE

wrote tests/distributed/data/6743d72.meta, with a checkout of the commit that it is named after.
"""

import sys

import tensorflow as tf

import fused_embedding as fe

tf1 = tf.compat.v1

DIM, KEYS = 2, [1, 5, 9]


def main() -> None:
    with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
        table = fe.get_embedding_variable("table", DIM, initializer=tf.zeros_initializer())
        rows = tf.identity(tf.nn.embedding_lookup(table, KEYS), "rows")
        tf1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(rows), name="train")
        saver = tf1.train.Saver()
        tf1.train.export_meta_graph(sys.argv[1], graph=graph, saver_def=saver.saver_def)


if __name__ == "__main__":
    main()
