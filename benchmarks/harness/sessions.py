"""How the sessions of all benchmarks run."""

import tensorflow as tf


def session_config(threads: int, arithmetic: bool = False) -> tf.compat.v1.ConfigProto:
    """Returns how sessions run; `arithmetic` is that optimisation of Grappler."""
    # One thread is the caller's: a handover to a pool of one costs more than a small step.
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads,
        inter_op_parallelism_threads=threads if threads > 1 else -1,
    )
    if not arithmetic:
        rewrites = config.graph_options.rewrite_options
        rewrites.arithmetic_optimization = type(rewrites).OFF
    return config
