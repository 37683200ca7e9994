"""The seeded faults of tests/faults are changes of today's lines."""

import pathlib

import pytest

from faults import seeds

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kind", seeds.KINDS)
def test_each_is_in_one_file_once(kind):
    faults, *_ = seeds.KINDS[kind]
    counts = {fault.old: len(seeds.lines_of(ROOT, kind, fault)) for fault in faults}
    assert counts == dict.fromkeys(counts, 1)
