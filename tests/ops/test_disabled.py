"""FE_DISABLE itself: words, errors, the line of the log."""

import logging
import threading

import pytest

from fused_embedding.ops import disabled
from fused_embedding.ops.disabled import is_disabled


@pytest.mark.parametrize(
    ("value", "lookup", "apply"),
    [
        (None, False, False),
        ("", False, False),
        (",", False, False),
        ("lookup", True, False),
        ("apply", False, True),
        ("lookup,apply", True, True),
        (" apply , lookup,", True, True),
    ],
)
def test_words(value, lookup, apply, monkeypatch):
    monkeypatch.delenv("FE_DISABLE", raising=False)
    if value is not None:
        monkeypatch.setenv("FE_DISABLE", value)
    assert (is_disabled("lookup"), is_disabled("apply")) == (lookup, apply)


@pytest.mark.parametrize("value", ["lookups", "lookup,Apply", "lookup;apply", "1"])
def test_an_unknown_word_is_an_error(value, monkeypatch):
    monkeypatch.setenv("FE_DISABLE", value)
    message = f"FE_DISABLE is '{value}', but '.*' is none of 'lookup', 'apply'"
    with pytest.raises(ValueError, match=message):
        is_disabled("apply")


def test_one_line_of_the_log_in_a_process(monkeypatch, caplog):
    monkeypatch.setattr(disabled, "_first_use", threading.Lock())
    monkeypatch.setenv("FE_DISABLE", "")
    with caplog.at_level(logging.WARNING, "fused_embedding"):
        is_disabled("lookup")
        assert not caplog.records
        monkeypatch.setenv("FE_DISABLE", "apply,lookup")
        for _ in range(3):
            is_disabled("lookup")
            is_disabled("apply")
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "FE_DISABLE=lookup,apply: lookups of ordinary tables use stock TensorFlow's ops, sparse "
        "updates of ordinary variables use stock TensorFlow's ops"
    )
