"""`fe.accelerate`."""

import threading
from typing import Any, Literal, get_args

from fused_embedding.acceleration import (
    columns,
    examples,
    exports,
    keras_optimizers,
    lookups,
    optimizers,
)
from fused_embedding.acceleration.records import Record, Records
from fused_embedding.acceleration.replacements import Installation
from fused_embedding.acceleration.switch import Optimizers, Switch

_switch = Switch()
_lock = threading.RLock()
_active: list["Acceleration"] = []  # the last one's settings count
_installation: Installation | None = None


class Acceleration:
    """What `fe.accelerate()` returns. As a context manager it is on inside, and off behind.

    As a string it is a table of what was replaced and what was left to stock, and why.
    """

    def __init__(self, settings: Optimizers):
        self._settings: Optimizers = settings
        self._records = Records()

    def __enter__(self) -> "Acceleration":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.stop()

    def __str__(self) -> str:
        return str(self._records)

    @property
    def records(self) -> dict[Record, int]:
        """How many calls were replaced, and left, by kind and reason."""
        return self._records.counts()

    def stop(self) -> None:
        """Ends it; a second call does nothing.

        The end of the last one restores stock's functions. If another thread is applying gradients,
        they are restored when it is done.
        """
        with _lock:
            if self in _active:
                _active.remove(self)
            _apply()

    def _start(self) -> None:
        with _lock:
            _active.append(self)
            _apply()


def _apply() -> None:
    """Makes TensorFlow what the active accelerations say."""
    global _installation
    if _active:
        _switch.optimizers = _active[-1]._settings
        _switch.records = _active[-1]._records
        _installation = _installation or _install()
    elif _installation is not None:
        _switch.records = None
        if not _switch.is_busy:
            _installation.undo()
            _installation = None


def _when_idle() -> None:
    with _lock:
        _apply()


_switch.when_idle = _when_idle


def _install() -> Installation:
    replacements = [
        *columns.replacements(_switch),
        *examples.replacements(_switch),
        *optimizers.replacements(_switch),
        *keras_optimizers.replacements(_switch),
        *exports.replacements(),
    ]
    return Installation(replacements, lookups.dispatches(_switch))


def accelerate(
    enabled: bool = True, *, optimizers: Literal["equal", "lazy"] = "equal"
) -> Acceleration:
    """Takes the fastest path in a program of stock TensorFlow, without an edit of the program.

    Graphs that are built, functions that are traced and eager calls from now on have our ops where
    the numbers stay stock's:

    * `tf.compat.v1.feature_column.input_layer`, `linear_model` and `DenseFeatures` of Keras 2 look
      up all their columns in one op, from the features as the batch has them;
    * `tf.nn.safe_embedding_lookup_sparse`, `tf.nn.embedding_lookup_sparse` and their names in
      tf.compat.v1 are one op each;
    * `tf.io.parse_example`, `tf.io.parse_single_example` and their names in tf.compat.v1 are one op
      of ours, also in functions of a `tf.data.Dataset`;
    * `GradientDescentOptimizer`, `MomentumOptimizer`, `AdagradOptimizer`, `RMSPropOptimizer` and
      `FtrlOptimizer` of tf.compat.v1.train, SGD without momentum of Keras, and Adagrad of Keras 2
      update all sparse variables of a step in one op.

    Everything else is left to stock: docs/accelerate.md lists it. Classes, names of variables,
    checkpoints and exports stay stock's. A SavedModel that would have our ops is refused.

    Args:
        enabled: False ends all accelerations of the process.
        optimizers: "equal": only optimizers with the same numbers; "lazy": AdamOptimizer and those
            of Keras too, with other numbers: rows that a step does not name rest, and repeated ids
            are summed first (docs/optimizers.md, as `fe.train` and `fe.keras.optimizers`).

    Returns:
        What ends it: a context manager with `stop()`. As a string it says what was replaced and
        what was left, and why.

    Raises:
        ValueError: If `optimizers` is anything else.

    >>> with fe.accelerate() as acceleration:
    ...     ids = tf.sparse.from_dense([[1, 2], [3, 0]])
    ...     rows = tf.nn.safe_embedding_lookup_sparse(tf.Variable(tf.ones([4, 2])), ids)
    >>> print(acceleration)
    safe_embedding_lookup_sparse (1): replaced
    """
    if optimizers not in get_args(Optimizers):
        raise ValueError(
            f'optimizers must be "equal" or "lazy", got {optimizers!r}; "equal" keeps all numbers'
        )
    acceleration = Acceleration(optimizers)
    with _lock:
        if enabled:
            acceleration._start()
        else:
            for active in list(_active):
                active.stop()
    return acceleration
