"""Whether lookups that are built or run now may change EmbeddingVariables."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from fused_embedding.variable.estimator_mode import is_evaluating

_state = threading.local()


@contextlib.contextmanager
def inference() -> Iterator[None]:
    """A context in which lookups of EmbeddingVariables count and insert no keys.

    The mode of a lookup in a graph or a tf.function is fixed when it is built: trace an evaluation
    function inside the context. A key without a row reads its first value, or
    `default_value_no_permission` if the variable has a filter.

    >>> table = fe.get_embedding_variable("table", 4)
    >>> with fe.inference():
    ...     rows = tf.nn.embedding_lookup(table, [1, 2])
    >>> int(table.total_count())
    0
    """
    before = _is_inside()
    _state.is_inference = True
    try:
        yield
    finally:
        _state.is_inference = before


def inference_unless_trained(layer: Any, training: Any) -> contextlib.AbstractContextManager[None]:
    """The context in which a layer of Keras looks up.

    Args:
        layer: The layer, whose `trainable` counts; None: a caller without a layer.
        training: What the layer was called with.

    Returns:
        `inference()` for a layer that does not train, else a context without effect.
    """
    is_frozen = training is False or not getattr(layer, "trainable", True)
    return inference() if is_frozen else contextlib.nullcontext()


def is_inference() -> bool:
    """Whether this thread is inside `inference()`, or in an Estimator that does not train."""
    return _is_inside() or is_evaluating()


def _is_inside() -> bool:
    return getattr(_state, "is_inference", False)
