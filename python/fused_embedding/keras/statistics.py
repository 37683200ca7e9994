"""Statistics of the tables of a Keras model, written while it trains."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from fused_embedding.keras.table_of import table_of
from fused_embedding.keras.table_training import keras_of
from fused_embedding.variable.statistics import summarize_statistics, whole_variables


class _StatisticsCallback:
    """Writes the statistics of every table of the model: `fe.keras.statistics_callback`.

    Steps are the optimizer's iterations.
    """

    model: Any
    params: Any
    _says_first_batch: bool
    _supports_tf_logs = True  # else tf_keras fetches all metrics after each batch, for nothing

    def __init__(self, log_dir: str, every_n_steps: int) -> None:
        super().__init__()
        self._log_dir = log_dir
        self._every_n_steps = every_n_steps
        self._writer: Any = None
        self._write: Callable[[tf.Tensor], Any] | None = None
        self._epoch_begin = self._step = self._written = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Opens the file of events.

        Args:
            logs: Ignored.
        """
        self._writer = tf.summary.create_file_writer(self._log_dir)
        self._write = None
        optimizer = getattr(self.model, "optimizer", None)
        iterations = 0 if optimizer is None else tf.convert_to_tensor(optimizer.iterations).numpy()
        self._epoch_begin = self._step = self._written = int(iterations)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Writes if a multiple of every_n_steps has passed.

        Args:
            batch: Number of the batch in its epoch.
            logs: Ignored.
        """
        self._step = self._epoch_begin + self._num_batches(batch)
        if self._step // self._every_n_steps > self._written // self._every_n_steps:
            self._write_now()

    def _num_batches(self, batch: int) -> int:
        """How many batches of the epoch have been trained.

        The last execution of an epoch may have fewer than the others. Keras does not say so.
        """
        num = batch + (self.model.steps_per_execution if self._says_first_batch else 1)
        return min(num, self.params.get("steps") or num)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the epoch's steps to the count.

        Args:
            epoch: Ignored.
            logs: Ignored.
        """
        self._epoch_begin = self._step

    def on_train_end(self, logs: Any = None) -> None:
        """Writes the last step and closes the file.

        Args:
            logs: Ignored.
        """
        if self._step > self._written:
            self._write_now()
        self._writer.close()

    def _write_now(self) -> None:
        if self._write is None:  # the model may not have been built before
            self._write = _writes(self.model)
        with self._writer.as_default():
            self._write(tf.constant(self._step, tf.int64))
        self._written = self._step


def _writes(model: Any) -> Callable[[tf.Tensor], Any]:
    """A function that writes the statistics of a model's tables at a step."""
    found = (table_of(variable) for variable in model.variables)
    tables = whole_variables(table for table in found if table is not None)
    if not tables:
        raise ValueError(
            f"the model {model.name!r} has no EmbeddingVariable to write statistics of; give it a "
            "layer of fe.keras.embedding_layer(), or leave out the callback"
        )
    # A tf.function, because hundreds of eager ops would take a millisecond per table.
    return tf.function(lambda step: summarize_statistics(tables, step))


@functools.cache
def _callback_class(keras: Any) -> Any:
    bases = (_StatisticsCallback, keras.callbacks.Callback)
    # Of `steps_per_execution` batches, Keras 3.0 to 3.10 names the first, others name the last.
    major, minor = map(int, keras.__version__.split(".")[:2])
    attributes = {
        "__module__": __name__,
        "__doc__": _StatisticsCallback.__doc__,
        "_says_first_batch": major == 3 and minor < 11,
    }
    return type("StatisticsCallback", bases, attributes)


def statistics_callback(log_dir: str, every_n_steps: int = 100, keras: Any = None) -> Any:
    """A callback of `fit` that writes the statistics of a model's tables for TensorBoard.

    Steps between two writes run no op of the callback.

    Args:
        log_dir: Folder of the event files.
        every_n_steps: Number of training steps from one write to the next, >= 1. The last step is
            written too.
        keras: The module whose models are trained: keras, tf_keras, tf.keras; None: tf.keras.

    Returns:
        A keras.callbacks.Callback. Training a model without tables raises ValueError.

    Raises:
        ValueError: If `every_n_steps` < 1.

    >>> callback = fe.keras.statistics_callback("/tmp/logs", every_n_steps=100)
    >>> isinstance(callback, tf.keras.callbacks.Callback)
    True
    """
    if every_n_steps < 1:
        raise ValueError(f"every_n_steps must be >= 1, got {every_n_steps}")
    module = keras_of((keras or tf.keras).callbacks.Callback)
    return _callback_class(module)(log_dir, every_n_steps)
