"""DeepRec's arguments for incremental checkpoints, on stock's Saver, Scaffold, hook and session.

Full and incremental checkpoints are both those of `fe.train.Saver(incremental=True)`: each can be
restored by itself, and the newest one is what a session that starts again restores.
"""

import inspect
import os
from typing import Any

import tensorflow as tf

from fused_embedding.checkpoint.saver import Saver as IncrementalSaver  # before `install`

v1 = tf.compat.v1

__all__ = ["CheckpointSaverHook", "MonitoredTrainingSession", "Saver", "Scaffold"]

_DEFAULT_SAVE_SECS = 600  # of tf.compat.v1.train.MonitoredTrainingSession
# Held, as `install` replaces them.
_StockSaver = v1.train.Saver
_stock_session = v1.train.MonitoredTrainingSession
_HOOK = inspect.signature(v1.train.CheckpointSaverHook)


class _SaverType(type):
    """Makes a stock Saver, or an incremental one: only the latter is of another class."""

    def __call__(cls, *args: Any, incremental_save_restore: bool = False, **kwargs: Any) -> Any:
        if cls is not Saver:  # a program's own subclass
            if incremental_save_restore:
                raise ValueError(
                    f"incremental_save_restore was given to {cls.__name__}, but only "
                    "tf.train.Saver itself has it; derive the class from fe.train.Saver"
                )
            return super().__call__(*args, **kwargs)
        if incremental_save_restore:
            return IncrementalSaver(*args, incremental=True, **kwargs)
        return _StockSaver(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, _StockSaver)
            if cls is Saver
            else super().__instancecheck__(instance)
        )


class Saver(tf.compat.v1.train.Saver, metaclass=_SaverType):
    """tf.compat.v1.train.Saver; with `incremental_save_restore` an incremental fe.train.Saver."""


class Scaffold(tf.compat.v1.train.Scaffold):
    """tf.compat.v1.train.Scaffold with DeepRec's `incremental_save_restore`.

    With that argument and without a Saver of its own, it makes an incremental Saver.
    """

    def __init__(self, *args: Any, incremental_save_restore: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_incremental = incremental_save_restore

    def finalize(self) -> "Scaffold":
        """Makes the missing ops and the Saver, and finalizes the graph."""
        savers = v1.GraphKeys.SAVERS
        if self._is_incremental and self.saver is None and not v1.get_collection(savers):
            saver = IncrementalSaver(sharded=True, allow_empty=True, incremental=True)
            v1.add_to_collection(savers, saver)
        super().finalize()
        return self


class _FullSaves(tf.compat.v1.train.CheckpointSaverListener):
    """Makes what a hook saves at its own intervals full checkpoints, and knows the last one."""

    def __init__(self, hook: "CheckpointSaverHook") -> None:
        self._hook = hook
        self.last_step = -1

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Makes the next save a full one."""
        self._hook.incremental_saver().restart_series()

    def after_save(self, session: Any, global_step_value: int) -> None:
        """Records the step of the save."""
        self.last_step = global_step_value


class CheckpointSaverHook(tf.compat.v1.train.CheckpointSaverHook):
    """tf.compat.v1.train.CheckpointSaverHook with DeepRec's `incremental_save_secs`.

    It saves a full checkpoint every `save_secs` or `save_steps`, and every `incremental_save_secs`
    a checkpoint with what changed since the previous one.
    """

    def __init__(
        self, *args: Any, incremental_save_secs: float | None = None, **kwargs: Any
    ) -> None:
        """Makes the hook.

        Args:
            *args: Arguments of tf.compat.v1.train.CheckpointSaverHook.
            incremental_save_secs: Seconds between incremental checkpoints; None: none are saved.
            **kwargs: Arguments of tf.compat.v1.train.CheckpointSaverHook.
        """
        given = _HOOK.bind(*args, **kwargs).arguments
        basename = given.get("checkpoint_basename", _HOOK.parameters["checkpoint_basename"].default)
        self._save_prefix = os.path.join(given["checkpoint_dir"], basename)
        self._saver_or_scaffold = given.get("saver"), given.get("scaffold")
        self._full_saves = _FullSaves(self)
        self._last_step = -1
        self._incremental_timer = None
        if incremental_save_secs is not None:
            self._incremental_timer = v1.train.SecondOrStepTimer(every_secs=incremental_save_secs)
            given["listeners"] = [self._full_saves, *(given.get("listeners") or [])]
        super().__init__(**given)

    def incremental_saver(self) -> Any:
        """The Saver of this hook.

        Raises:
            ValueError: If it cannot save incrementally.
        """
        saver, scaffold = self._saver_or_scaffold
        if saver is None:
            savers = v1.get_collection(v1.GraphKeys.SAVERS)
            saver = scaffold.saver if scaffold else (savers or [None])[0]
        if not getattr(saver, "is_incremental", False):
            raise ValueError(
                f"incremental checkpoints were asked for, but the Saver is {saver!r}, which cannot "
                "write them; make it with tf.train.Saver(sharded=True, "
                "incremental_save_restore=True), or make none"
            )
        return saver

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Called by the session after it was made; saves the first full checkpoint."""
        super().after_create_session(session, coord)
        if self._incremental_timer is not None:
            self._incremental_timer.update_last_triggered_step(self._full_saves.last_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Called by the session after each run; saves a full or incremental checkpoint if due."""
        super().after_run(run_context, run_values)
        timer = self._incremental_timer
        # The timer compares only seconds, so any later step number works.
        if timer is None or not timer.should_trigger_for_step(run_values.results + 1):
            return
        step = run_context.session.run(v1.train.get_global_step(run_context.session.graph))
        timer.update_last_triggered_step(step)
        if step not in (self._full_saves.last_step, self._last_step):
            self._last_step = step
            self.incremental_saver().save(
                run_context.session, self._save_prefix, step, write_meta_graph=False
            )


def MonitoredTrainingSession(  # noqa: N802  # TensorFlow's name
    *args: Any, save_incremental_checkpoint_secs: float | None = None, **kwargs: Any
) -> Any:
    """tf.compat.v1.train.MonitoredTrainingSession with DeepRec's argument.

    Args:
        *args: Arguments of tf.compat.v1.train.MonitoredTrainingSession.
        save_incremental_checkpoint_secs: Seconds between incremental checkpoints, in addition to
            the full ones of `save_checkpoint_secs` or `save_checkpoint_steps`; None: none are
            saved.
        **kwargs: Arguments of tf.compat.v1.train.MonitoredTrainingSession.

    Returns:
        The session.
    """
    if save_incremental_checkpoint_secs is None:
        return _stock_session(*args, **kwargs)
    given = inspect.signature(_stock_session).bind(*args, **kwargs).arguments
    given["scaffold"] = given.get("scaffold") or Scaffold(incremental_save_restore=True)
    secs = given.get("save_checkpoint_secs")
    steps = given.get("save_checkpoint_steps")
    if not {"save_checkpoint_secs", "save_checkpoint_steps"} & set(given):
        secs = _DEFAULT_SAVE_SECS
    if given.get("checkpoint_dir") and (secs or steps):
        hook = CheckpointSaverHook(
            given["checkpoint_dir"],
            save_secs=secs or None,
            save_steps=steps or None,
            scaffold=given["scaffold"],
            incremental_save_secs=save_incremental_checkpoint_secs,
            save_graph_def=given.get("save_graph_def", True),
        )
        given["chief_only_hooks"] = [*(given.get("chief_only_hooks") or []), hook]
        # Otherwise stock adds a hook of its own.
        given["save_checkpoint_secs"] = given["save_checkpoint_steps"] = None
    return _stock_session(**given)
