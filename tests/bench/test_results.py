"""The committed results, and how they are read."""

import json
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are no installed package

from benchmarks.report import commands, results  # noqa: E402

FOLDERS = results.folders()


def records_of_all():
    return [record for folder in FOLDERS for record in results.newest(folder)]


def make_record(date="2026-11-23T10:00:00+00:00", **fields):
    return {"schema": results.SCHEMA, "date": date, "axes": {"workload": "W1"}} | fields


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_only_the_newest_result_of_a_benchmark_is_kept(folder):
    names = [path.name for path in results.superseded(folder)]
    assert names == [], "a newer result of the same benchmark is here: git rm these"


def test_an_older_result_of_a_benchmark_is_noticed(tmp_path):
    for name, hour in (("aaaaaaaaaa-W1-t1", 9), ("0123456789-W1-t1", 8), ("aaaaaaaaaa-W1-t2", 7)):
        record = make_record(date=f"2026-11-23T{hour:02}:00:00+00:00")
        (tmp_path / f"2026-11-23-{name}.json").write_text(json.dumps(record))
    (tmp_path / "2026-11-22-0123456789-crafted.json").write_text("{}")
    (tmp_path / "2026-11-23-0123456789-crafted.json").write_text("{}")
    older = [path.name for path in results.superseded(tmp_path)]
    assert older == ["2026-11-22-0123456789-crafted.json", "2026-11-23-0123456789-W1-t1.json"]
    kept = [record["file"] for record in results.newest(tmp_path)]
    assert kept == ["2026-11-23-aaaaaaaaaa-W1-t1.json", "2026-11-23-aaaaaaaaaa-W1-t2.json"]


def test_each_result_is_in_the_folder_of_its_machine_and_is_fit_to_be_shown():
    known = {results.SCHEMA, results.CORE_SPEED_SCHEMA, results.GPU_SCHEMA}
    known |= {results.GPU_STEPS_SCHEMA, None}
    for path in results.machine.RESULTS.glob("*/*.json"):
        record = json.loads(path.read_text())
        assert record.get("schema") in known, path
        if "machine" in record:
            assert results.machine.folder(record["machine"]) == path.parent, path
            assert path.name.startswith(f"{record['date'][:10]}-{record['commit']}-"), path
            assert not record["dirty"], path
            assert not record.get("unfit"), path


def test_a_gpu_is_shown_by_a_result_of_all_sizes():
    """Later ones of some sizes, `--only=table`, are beside it."""
    shown = results.of_gpus()
    assert shown
    assert all(
        {"criteo_d128_forward", "unique", "cpu_W2"} <= record["cells"].keys() for record in shown
    )


def test_load_rejects_another_schema(tmp_path):
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"schema": "something/0"}))
    with pytest.raises(ValueError, match=r"has schema something/0, but .*; measure again"):
        results.load(path)


def test_results_from_before_the_fitness_was_measured_load(tmp_path):
    path = tmp_path / "2026-11-23-W1.json"
    path.write_text(json.dumps(make_record()))
    assert results.load(path) == make_record(fitness=None, unfit=False, file=path.name)
    fitness = {"load_average": 0.5, "spread": 0.012}
    path.write_text(json.dumps(make_record(fitness=fitness, unfit=True)))
    assert results.load(path) == make_record(fitness=fitness, unfit=True, file=path.name)


def test_counts_of_tests_are_no_results_of_benchmarks(tmp_path):
    (tmp_path / "2026-11-23-W1.json").write_text(json.dumps(make_record()))
    (tmp_path / "2026-11-23-crafted_files.json").write_text(json.dumps({"files": 6000}))
    core_speed = make_record() | {"schema": results.CORE_SPEED_SCHEMA}
    (tmp_path / "2026-11-23-core-speed.json").write_text(json.dumps(core_speed))
    assert [record["file"] for record in results.newest(tmp_path)] == ["2026-11-23-W1.json"]
    of_core = results.newest(tmp_path, results.CORE_SPEED_SCHEMA)
    assert [record["file"] for record in of_core] == ["2026-11-23-core-speed.json"]


def test_each_recorded_command_can_be_repeated():
    recorded = {record["command"] for record in records_of_all()}
    assert recorded
    for command in map(commands.today, recorded):
        module = re.search(r"-m (benchmarks\.\w+\.\w+)( |$)", command)
        assert module, command
        assert "/tmp" not in command
        assert commands.today(command) == command
        given = re.findall(r" --(\w+)", command)
        assert set(given) <= flags_of(module[1]), command


def flags_of(module):
    """The flags that a program defines, also those that it shares."""
    path = (ROOT / module.replace(".", "/")).with_suffix(".py")
    if not path.exists():
        return set()
    text = path.read_text()
    found = set(re.findall(r'DEFINE_\w+\(\s*"(\w+)"', text))
    if "full_tables" in text:
        found |= flags_of("benchmarks.tiers.full_tables")
    for imported in re.findall(r"from benchmarks\.input import (\w+(?:, \w+)*)", text):
        for name in imported.split(", "):
            found |= flags_of(f"benchmarks.input.{name}")
    return found


def test_the_speed_of_core_is_repeated_by_its_script():
    recorded = "python -m benchmarks.gpu.core_speed --old=a.so --old_commit=3da88aa8f0 --rounds=5"
    today = "tools/core_speed.sh .venv/bin 2 3da88aa8f0"
    assert commands.today(recorded) == today
    recorded = recorded.replace("--rounds=5", "--new_commit=b --other_bits --rounds=5")
    assert commands.today(recorded) == f"{today} --other_bits"
