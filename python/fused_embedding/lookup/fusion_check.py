"""State and logs of `do_fusion="check"`: the step of each lookup, and whether it uses stock."""

import atexit
import dataclasses
import logging
import threading
import weakref
from typing import Any, Literal

import numpy as np

from fused_embedding.lookup.run import BEST, LOOKUPS

_logger = logging.getLogger("fused_embedding")

# Results of `Monitor.start`; any other result is the number of a step to be checked.
FUSED, STOCK = 0, -1


@dataclasses.dataclass(frozen=True)
class FusionCheck:
    """A value of `do_fusion` and `fusion_version`: compares fused lookups with stock's.

    "check" means `FusionCheck()`. Lookups log through `logging.getLogger("fused_embedding")`:

    * at WARNING, which Python shows by default, one line for all lookups after their second check
      or at the end of the process;
    * at INFO each measurement;
    * at ERROR that a lookup uses stock TensorFlow from then on.

    Attributes:
        every: A lookup is checked in its first step and in every `every`-th step after it.
        tolerance: Largest difference that counts as rounding, as a fraction of the largest absolute
            value of stock's result. In gradients, float32 sums over the ten thousands of
            occurrences of one id differ by 1e-5; a wrong row or weight differs by more than 1e-2.
        version: The fused lookup to check: "v1", "v2" or "v3", the best path.

    Raises:
        ValueError: If `every` < 1, `tolerance` is not >= 0, or `version` is unknown.
    """

    every: int = 100
    tolerance: float = 1e-4
    version: Literal["v1", "v2", "v3"] = BEST

    def describe(self) -> str:
        """A description of the check for `fe.explain`."""
        return f"{self.version}, and stock beside it on one step in {self.every}"

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every must be >= 1, got {self.every}; 1 checks each step")
        if not self.tolerance >= 0:
            raise ValueError(
                f"tolerance must be >= 0, got {self.tolerance}; it is a part of the largest value"
            )
        if self.version not in LOOKUPS:
            raise ValueError(f"version must be one of {', '.join(LOOKUPS)}, got {self.version!r}")


def as_check(value: Any) -> FusionCheck | None:
    """The check for a value of `do_fusion` or `fusion_version`, or None if it is not one."""
    if isinstance(value, FusionCheck):
        return value
    return FusionCheck() if isinstance(value, str) and value == "check" else None


class _Summary:
    """The log line that summarizes the first two checks of a model's lookups.

    It is logged after the second check, or at the end of the process. In the first check stock's
    times include the creation of its kernels by TensorFlow.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._names: set[str] = set()
        self._stopped: set[str] = set()
        # Difference / stock's largest value, difference, stock's largest value; below any check's.
        self._largest = (-1.0, 0.0, 0.0)
        self._first_seconds = np.zeros(2)  # of the fused and of the stock lookups
        self._second_seconds = np.zeros(2)

    def add(self, name: str, is_first: bool, difference: float, largest: float, took: Any) -> None:
        """Adds a check of the lookup `name`."""
        part = difference / largest if largest else difference
        with self._lock:
            self._names.add(name)
            if not part <= self._largest[0]:  # NaN is larger than any number
                self._largest = (part, difference, largest)
            if is_first:
                self._first_seconds += took
            else:
                self._second_seconds += took

    def stop(self, name: str) -> None:
        """Records that the lookup `name` uses stock from now on."""
        with self._lock:
            self._stopped.add(name)

    def log(self, name: str | None = None) -> None:
        """Logs the line, unless all checks have been logged.

        Args:
            name: The lookup that has finished its second check; None: the process ends.
        """
        with self._lock:
            if not self._names or name not in (None, *self._names):
                return
            num_lookups, num_stopped = len(self._names), len(self._stopped)
            _, difference, largest = self._largest
            has_second = self._second_seconds.any()
            fused, stock = self._second_seconds if has_second else self._first_seconds
            self._clear()
        stopped = f", {num_stopped} use stock TensorFlow from now on" if num_stopped else ""
        _logger.warning(
            'do_fusion="check": %d lookups checked%s, largest difference %.2g beside a largest '
            'value of %.2g, fused %.2f times as fast as stock%s; getLogger("fused_embedding") has '
            "details at level INFO",
            *(num_lookups, stopped, difference, largest, stock / max(fused, 1e-9)),
            "" if has_second else " in the first step, which is not typical",
        )


_summary = _Summary()
atexit.register(_summary.log)


class Monitor:
    """State of one checked lookup. Graphs call it from any thread, through tf.numpy_function.

    Attributes:
        check: The FusionCheck of the lookup.
    """

    def __init__(self, name: str, check: FusionCheck):
        self._name = name
        self.check = check
        self._lock = threading.Lock()
        self._step = 0
        self._uses_stock = False

    def start(self) -> np.int64:
        """Begins a step; returns `FUSED`, `STOCK`, or the step's number if it is to be checked."""
        with self._lock:
            self._step += 1
            step = self._step
        if step == self.check.every + 2:
            _summary.log(self._name)
        with self._lock:
            if self._uses_stock:
                return np.int64(STOCK)
            return np.int64(FUSED if (step - 1) % self.check.every else step)

    def record_outputs(self, step: Any, *measured: Any) -> np.bool_:
        """Judges and logs the outputs of a checked step; see `_record` for `measured`.

        Returns:
            Whether the lookup uses stock from now on.
        """
        return self._record("outputs", step, *measured)

    def record_gradients(self, step: Any, *measured: Any) -> np.bool_:
        """Judges and logs the gradients of a checked step; see `_record` for `measured`.

        Returns:
            Whether the lookup uses stock from now on.
        """
        return self._record("gradients", step, *measured)

    def _record(
        self, what: str, step: Any, difference: Any, between: Any, largest: Any, seconds: Any
    ) -> np.bool_:
        """Judges and logs a check.

        Args:
            what: What was compared, "outputs" or "gradients".
            step: Number of the step.
            difference: Largest absolute difference between the fused and the stock result.
            between: Largest absolute difference between two fused results, one from before stock's
                lookup and one from after it.
            largest: Largest absolute value of stock's result.
            seconds: `[2]` time of the fused and the stock lookup.

        Returns:
            Whether the lookup uses stock from now on.
        """
        head = f"{self._name}, step {step}: {what}"
        limit = self.check.tolerance * largest
        fused_ms, stock_ms = 1e3 * seconds
        if step <= self.check.every + 1 and not between > limit:
            _summary.add(self._name, step == 1, float(difference), float(largest), seconds)
        if between > limit:
            # Fused lookups repeat to the bit, so the table was written, for example by a worker.
            _logger.warning(
                "%s were not compared: the table was written meanwhile, two fused lookups around "
                "stock's differ by %.2g, largest value %.2g",
                *(head, between, largest),
            )
        elif difference > limit:
            with self._lock:
                self._uses_stock = True
            if step <= self.check.every + 1:
                _summary.stop(self._name)
            _logger.error(
                "%s of the fused and the stock lookup differ by %.2g, largest value %.2g, more "
                "than tolerance = %g allows; this lookup uses stock TensorFlow from now on. Please "
                "report it with the shapes and options of the lookup",
                *(head, difference, largest, self.check.tolerance),
            )
        else:
            _logger.info(
                "%s differ by %.2g at most, largest value %.2g; fused %.3g ms, stock %.3g ms: %.2f "
                "times as fast",
                *(head, difference, largest, fused_ms, stock_ms, stock_ms / max(fused_ms, 1e-6)),
            )
        return np.bool_(self._uses_stock)


_monitors: dict[tuple[int, str, FusionCheck], Monitor] = {}


def monitor_of(table: Any, name: str, check: FusionCheck) -> Monitor:
    """The monitor of a lookup: always the same one if it is called eagerly or traced again.

    Args:
        table: The lookup's variable or tensor. The monitor lives as long as it does.
        name: Name of the lookup, with its scopes.
        check: The FusionCheck of the lookup.

    Returns:
        The monitor.
    """
    key = (id(table), name, check)
    if key not in _monitors:
        _monitors[key] = Monitor(name, check)
        weakref.finalize(table, _monitors.pop, key, None)
    return _monitors[key]
