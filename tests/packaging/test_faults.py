"""The seeded faults of tests/faults are changes of today's lines."""

import pathlib

import pytest

from faults import seeds

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("folder", "suffixes", "faults"),
    [
        ("python", {".py"}, seeds.PYTHON),
        ("tf_ops", {".cc", ".h"}, seeds.CPP),
    ],
    ids=["python", "cpp"],
)
def test_each_is_in_one_file_once(folder, suffixes, faults):
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    text = "".join(path.read_text() for path in files)
    counts = {fault.old: text.count(fault.old) for fault in faults}
    assert counts == dict.fromkeys(counts, 1)
