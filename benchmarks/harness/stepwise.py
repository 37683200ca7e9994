"""A program that runs from its beginning to its end, a step at a time."""

import threading
from collections.abc import Callable
from typing import Any


class _EndedError(Exception):
    """Ends a program in the middle."""


class Stepwise:
    """A program in a thread of its own, which waits after each step for the call of the next.

    So programs whose loops are in a library (`fit`, Estimators) take turns in one process. A
    handover between threads costs some 20 us.
    """

    def __init__(self, run: Callable[[Callable[[Any], None]], object]) -> None:
        """Starts a program and waits for its first step.

        Args:
            run: The program; it calls what it is given after each step, with the step's result.

        Raises:
            Exception: What the program raises.
        """
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._result: Any = None
        self._error: BaseException | None = None
        self._is_ended = False
        self._thread = threading.Thread(target=self._run, args=(run,), daemon=True)
        self._thread.start()
        self.first = self._wait()

    def step(self, _: int = 0) -> Any:
        """Lets the program do a step and returns the step's result.

        Raises:
            Exception: What the program raises.
        """
        self._go.release()
        return self._wait()

    def end(self) -> None:
        """Ends the program by an exception inside it."""
        self._is_ended = True
        self._go.release()
        self._thread.join()

    def _run(self, run: Callable[[Callable[[Any], None]], object]) -> None:
        try:
            run(self._after_step)
            raise RuntimeError("the program has no more steps; give it a larger number of them")
        except _EndedError:
            pass
        except BaseException as error:  # the caller of step raises it
            self._error = error
        self._done.release()

    def _after_step(self, result: Any) -> None:
        self._result = result
        self._done.release()
        self._go.acquire()
        if self._is_ended:
            raise _EndedError

    def _wait(self) -> Any:
        self._done.acquire()
        if self._error is not None:
            raise self._error
        return self._result
