import json
import pathlib
import shutil
import subprocess
import sys

import pytest
from benchmarks.gpu import core_rows, core_speed

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_command_times_every_row(library_path, tmp_path):
    command = [sys.executable, "-m", "benchmarks.gpu.core_speed", "--size=tiny", "--rounds=2"]
    paths = [f"--old={library_path}", f"--new={shutil.copy(library_path, tmp_path / 'new.so')}"]
    done = subprocess.run(
        [*command, *paths, "--old_commit=abc", f"--output={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    # Rows of microseconds may have any verdict, but for one.
    assert done.returncode in (0, 1, 2), done.stderr[-3000:]
    assert not done.stderr
    (path,) = tmp_path.glob("*-core-speed.json")
    record = json.loads(path.read_text())
    assert (record["schema"], record["old_commit"]) == (core_speed.SCHEMA, "abc")
    assert list(record["rows"]) == list(core_rows.ROWS)
    assert {row["verdict"] for row in record["rows"].values()} <= {
        "as fast",
        "slower",
        "not judged",
    }
    assert all(row["ratio"]["median"] > 0 for row in record["rows"].values())
    assert all(f"| {name} |" in done.stdout for name in core_rows.ROWS)


@pytest.mark.parametrize(
    ("ratio", "spread", "verdict"),
    [
        (1.0, 0.001, "as fast"),
        (1.02, 0.001, "as fast"),
        (1.021, 0.001, "slower"),
        (1.04, 0.041, "as fast"),
        (1.043, 0.041, "slower"),
        (0.5, 0.05, "as fast"),
        (3.0, 0.051, "not judged"),
    ],
)
def test_the_verdict_weighs_the_spread(ratio, spread, verdict):
    assert core_speed.verdict(ratio, spread) == verdict


@pytest.mark.parametrize("is_changed", [False, True])
def test_other_bits_are_noticed(cpu, is_changed):
    lookup, changed = core_rows.ROWS["sparse apply: adagrad, dim 16"].make(
        cpu, core_rows.SIZES["tiny"]
    )
    table = changed[0].numpy()

    class Other:
        """The same machine; one value is another then."""

        run = staticmethod(cpu.run)

        def copy(self, *arguments):
            cpu.copy(*arguments)

    other = Other()
    if is_changed:
        other.run = lambda asked: [cpu.upload(table), *cpu.run(asked)]
    assert core_speed._differ(cpu, other, lookup, changed) == is_changed
    assert (changed[0].numpy() == table).all()


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["as fast"], 0),
        (["as fast", "not judged"], 2),
        (["as fast", "slower", "not judged"], 1),
        (["other bits", "as fast"], 1),
    ],
)
def test_the_exit_code_is_that_of_the_worst_row(verdicts, code, capsys):
    rows = {str(i): {"verdict": verdict} for i, verdict in enumerate(verdicts)}
    assert core_speed._judge(rows) == code
    assert ("not judged: a copy" in capsys.readouterr().out) == ("not judged" in verdicts)
