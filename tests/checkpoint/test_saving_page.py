"""docs/saving.md: its program runs, its names exist, and no way to save is missing."""

import operator
import pathlib
import re

import pytest
import tensorflow as tf

import fused_embedding as fe

PAGE = (pathlib.Path(__file__).parents[2] / "docs/saving.md").read_text()
MODULES = (fe, fe.compat, fe.convert, fe.damo, fe.dynamicemb, fe.keras, fe.one_embedding, fe.train)
SAVING = re.compile("save|dump|export|write|checkpoint|snapshot", re.IGNORECASE)
# No ways to save: an option that is accepted for DeepRec's programs, DynamicEmb's name of dump.
OTHERS = {"CheckpointOption", "DynamicEmbDump"}


def test_the_program_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall("```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "docs/saving.md", "exec"), {})


@pytest.mark.parametrize(("prefix", "package"), [("fe", fe), ("tf", tf)])
def test_names_of_the_page_exist(prefix, package):
    names = set(re.findall(rf"\b{prefix}\.([\w.]*\w)", PAGE))
    assert len(names) > 5
    for name in names:
        operator.attrgetter(name)(package)


def test_no_way_to_save_is_missing():
    ways = {name for module in MODULES for name in module.__all__ if SAVING.search(name)} - OTHERS
    assert len(ways) >= 7
    missing = [way for way in ways if not re.search(rf"\b{way}\b", PAGE)]
    assert not missing
