"""Types of values that the ops have."""

import tensorflow as tf

VALUE_DTYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16)


class UnsupportedDtypeError(TypeError):
    """A dtype that the fused ops do not have. The stand-ins for tf.nn then call stock."""
