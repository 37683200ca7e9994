"""Statistics of the tables of a TF1 program, written while it trains."""

from typing import Any

import tensorflow as tf

from fused_embedding.variable.scope import EMBEDDING_VARIABLES
from fused_embedding.variable.statistics import summarize_statistics, whole_variables


class StatisticsHook(tf.compat.v1.train.SessionRunHook):
    """Writes the statistics of every EmbeddingVariable of the graph for TensorBoard.

    Use it with MonitoredTrainingSession and Estimator. If their own summaries are written often
    enough, `fe.summarize_statistics` alone writes the statistics with them. Steps between two
    writes run no op of the hook.

    >>> with tf.Graph().as_default():
    ...     table = fe.get_embedding_variable("table", 4)
    ...     step = tf.compat.v1.train.get_or_create_global_step()
    ...     train = tf.compat.v1.assign_add(step, 1)
    ...     hook = fe.train.StatisticsHook("/tmp/logs", every_n_steps=100)
    ...     with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
    ...         print(session.run(train))
    1
    """

    def __init__(self, output_dir: str, every_n_steps: int = 100) -> None:
        """Makes the hook.

        Args:
            output_dir: Folder of the event files.
            every_n_steps: Number of global steps from one write to the next, >= 1. The first step
                is written too.

        Raises:
            ValueError: If `every_n_steps` < 1.
        """
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps must be >= 1, got {every_n_steps}")
        self._output_dir = output_dir
        self._every_n_steps = every_n_steps
        self._saver: Any = None

    def begin(self) -> None:
        """Makes the ops for the EmbeddingVariables that the graph has now.

        Raises:
            ValueError: If the graph has none.
        """
        tables = whole_variables(tf.compat.v1.get_collection(EMBEDDING_VARIABLES))
        if not tables:
            raise ValueError(
                "StatisticsHook needs an EmbeddingVariable, and the graph has none; make one with "
                "fe.get_embedding_variable, or leave out the hook"
            )
        # In no collection: otherwise the program's own summaries would include them.
        summary_op = tf.compat.v1.summary.merge(summarize_statistics(tables, collections=()))
        self._saver = tf.compat.v1.train.SummarySaverHook(
            save_steps=self._every_n_steps, output_dir=self._output_dir, summary_op=summary_op
        )
        self._saver.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Called by the session after it was made."""
        self._saver.after_create_session(session, coord)

    def before_run(self, run_context: Any) -> Any:
        """Called by the session before each run; adds the summaries if they are due."""
        return self._saver.before_run(run_context)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Called by the session after each run; writes the summaries if they were due."""
        self._saver.after_run(run_context, run_values)

    def end(self, session: Any) -> None:
        """Called by the session when it ends; flushes the event files."""
        self._saver.end(session)
