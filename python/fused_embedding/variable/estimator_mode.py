"""What an Estimator (TensorFlow 2.15) is calling its model_fn for."""

import sys


def calling_for() -> str | None:
    """The mode of the Estimator whose model_fn this thread is inside; None: it is in none.

    An Estimator tells nobody but model_fn, so this looks for its call among those on the stack. A
    wrapper around the Estimator would miss models that make their columns in model_fn.

    Returns:
        "train", "eval", "infer" (PREDICT, also for exports) or None.
    """
    if "tensorflow_estimator" not in sys.modules:
        return None
    frame = sys._getframe()
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if frame.f_code.co_name == "_call_model_fn" and module.startswith("tensorflow_estimator."):
            return str(frame.f_locals["mode"])
        frame = frame.f_back  # type: ignore[assignment]
    return None


def is_evaluating() -> bool:
    """Whether this thread is inside the model_fn of an Estimator in mode EVAL or PREDICT."""
    return calling_for() in ("eval", "infer")
