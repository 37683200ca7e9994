"""TensorFlow's private names that the lookups need; the only place that imports them.

`variable_accessed` is how a variable tells gradient tapes and tf.function that an op of its own has
read it; tf.Variable has no public method for that. `colocate_with` keeps a gather with its table;
the public tf.compat.v1.colocate_with is the same function behind a deprecation warning. Same
signatures in TensorFlow 2.15 to 2.21.
"""

from tensorflow.python.framework.ops import colocate_with
from tensorflow.python.ops.resource_variable_ops import variable_accessed

__all__ = ["colocate_with", "variable_accessed"]
