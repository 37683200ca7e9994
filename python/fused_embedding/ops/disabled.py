"""The environment variable FE_DISABLE, which turns parts of this package off.

It is for an engineer on call: a job that is started anew with `FE_DISABLE=lookup,apply` runs stock
TensorFlow, without a change to the program. In Python this module is the only reader of the
variable; the ops read "huge_pages" themselves (tf_ops/core/base/huge_pages.h).
"""

import logging
import os
import threading
from typing import Literal

VARIABLE = "FE_DISABLE"
Part = Literal["lookup", "apply", "parse", "huge_pages"]

# THE list of parts, each with what the log says of it.
_PARTS: dict[str, str] = {
    "lookup": "lookups of ordinary tables use stock TensorFlow's ops",
    "apply": "sparse updates of ordinary variables use stock TensorFlow's ops",
    "parse": "examples are parsed by stock TensorFlow's op",
    "huge_pages": "ordinary variables stay on small pages",
}

_log = logging.getLogger("fused_embedding")
_first_use = threading.Lock()  # acquired by the thread that logs, and never released


def is_disabled(part: Part) -> bool:
    """Whether FE_DISABLE names a part now. The answer is not cached: tests and notebooks change it.

    Args:
        part: "lookup": lookups of ordinary tables. "apply": sparse updates of ordinary variables.
            "parse": examples. "huge_pages": moves of ordinary variables onto huge pages.

    Returns:
        True if it is, and stock TensorFlow's way is the one to take.

    Raises:
        ValueError: If FE_DISABLE has a word that is not in the list.
    """
    value = os.environ.get(VARIABLE)
    if not value:
        return False
    disabled = _parsed(value)
    if disabled and _first_use.acquire(blocking=False):
        what = ", ".join(_PARTS[name] for name in disabled)
        _log.warning("%s=%s: %s", VARIABLE, ",".join(disabled), what)
    return part in disabled


def why_disabled(part: Part) -> str:
    """Why stock TensorFlow does it, for `fe.explain`.

    Args:
        part: A part that is disabled.

    Returns:
        The reason, in words for users.
    """
    return f"{VARIABLE}={part}"


def _parsed(value: str) -> list[str]:
    words = {word.strip() for word in value.split(",")} - {""}
    unknown = sorted(words - _PARTS.keys())
    if unknown:
        raise ValueError(
            f"the environment variable {VARIABLE} is {value!r}, but {unknown[0]!r} is none of "
            f"{', '.join(map(repr, _PARTS))}; separate words by commas, or unset {VARIABLE}"
        )
    return [name for name in _PARTS if name in words]
