"""What an Estimator (TensorFlow 2.15) is calling its model_fn for."""

import sys


def is_evaluating() -> bool:
    """Whether this thread is inside the model_fn of an Estimator in mode EVAL or PREDICT.

    An Estimator tells nobody but model_fn, so this looks for its call among those on the stack. A
    wrapper around the Estimator would miss models that make their columns in model_fn.
    """
    if "tensorflow_estimator" not in sys.modules:
        return False
    frame = sys._getframe()
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if frame.f_code.co_name == "_call_model_fn" and module.startswith("tensorflow_estimator."):
            return frame.f_locals["mode"] in ("eval", "infer")
        frame = frame.f_back  # type: ignore[assignment]
    return False
