"""Measurements happen alone, and on a machine that is fit for them."""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are no installed package

from benchmarks.harness import bench, fitness, machine, measuring_lock, timing  # noqa: E402


@pytest.fixture(autouse=True)
def lock_path(monkeypatch, tmp_path):
    """A lock of the test's own: another measurement may run."""
    monkeypatch.setattr(measuring_lock, "PATH", tmp_path / "fused_embedding_measuring.lock")
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # for children
    monkeypatch.delenv(fitness.VARIABLE, raising=False)
    return measuring_lock.PATH


def noisy_step(monkeypatch, noise):
    """A step that takes 1 ms, and up to `noise` more, each block another part of it."""
    rng, now, calls = np.random.default_rng(0), [0], [-2 * timing.WARM_UP_STEPS]
    factors = 1 + noise * rng.random(2 * fitness.ROUNDS)
    monkeypatch.setattr(timing.time, "perf_counter_ns", lambda: now[0])

    def step(_):
        now[0] += int(1e6 * factors[calls[0] // (fitness.BLOCK_STEPS + 1)])
        calls[0] += 1

    return step


@pytest.mark.parametrize(("noise", "is_unfit"), [(0.0, False), (0.04, False), (0.3, True)])
def test_a_machine_is_unfit_if_a_step_differs_from_itself(monkeypatch, noise, is_unfit):
    found = fitness.check(noisy_step(monkeypatch, noise))
    assert found.is_unfit == is_unfit
    assert found.spread <= noise
    assert noise == 0 or found.spread > noise / 10
    assert found.load_average >= 0


def test_all_cores_gather_at_once():
    found = fitness.check()
    assert found.spread >= 0  # of a busy machine: any


def run_bench(*arguments, spread):
    """Returns what `make bench` becomes."""
    became = []
    bench.main(
        list(arguments),
        check=lambda: fitness.Fitness(spread, 0.25),
        become=lambda *command: became.append(command),
    )
    return became


@pytest.mark.parametrize("arguments", [["--threads=2"], ["harness.run", "--threads=2"]])
def test_a_fit_machine_measures(arguments, capsys):
    ((program, command, environment),) = run_bench(*arguments, spread=0.05)
    assert command == [program, "-m", "benchmarks.harness.run", "--threads=2"]
    assert fitness.of_record(environment) == {
        "fitness": {"spread": 0.05, "load_average": 0.25},
        "unfit": False,
    }
    printed = capsys.readouterr().out
    assert printed.startswith(
        "load average 0.25, spread of a computation timed against itself 5.0%"
    )


def test_an_unfit_machine_does_not_measure():
    message = r"not measured: the spread is above 5%, .* or measure with --even_if_unfit"
    with pytest.raises(SystemExit, match=message):
        run_bench("--threads=2", spread=0.051)


def test_an_unfit_machine_measures_if_told_to_and_the_result_says_so(monkeypatch):
    ((_, command, environment),) = run_bench("tables.growth", bench.EVEN_IF_UNFIT, spread=0.2)
    assert command[1:] == ["-m", "benchmarks.tables.growth"]
    monkeypatch.setenv(fitness.VARIABLE, environment[fitness.VARIABLE])
    record = machine.provenance()
    assert record["unfit"] is True
    assert record["fitness"] == {"spread": 0.2, "load_average": 0.25}


def test_a_program_that_is_started_alone_records_no_fitness():
    record = machine.provenance()
    assert (record["fitness"], record["unfit"]) == (None, False)


def test_a_program_that_is_not_there_is_named():
    with pytest.raises(SystemExit, match=r"no such program: tables\.nothing; name"):
        run_bench("tables.nothing", spread=0)


def test_a_second_measurement_of_a_process_is_refused(lock_path):
    held = measuring_lock.hold()
    holder = re.escape(f"{os.getpid()} ({shlex.join(sys.orig_argv)})")  # pytest, or its worker
    with pytest.raises(SystemExit, match=f"not measured: process {holder} is measuring"):
        run_bench(spread=0)
    os.close(held)
    assert len(run_bench(spread=0)) == 1
    assert lock_path.stat().st_mode & 0o777 == 0o666


def start_holder():
    """A process that takes the lock and becomes another program."""
    program = [sys.executable, "-c", "print('up', flush=True); input()"]
    command = [sys.executable, "-m", "benchmarks.harness.measuring_lock", *program]
    holder = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "up\n"
    return holder


def test_a_second_process_is_refused_until_the_first_dies(tmp_path):
    holder = start_holder()
    command = [sys.executable, "-m", "benchmarks.harness.measuring_lock", "touch"]
    command.append(str(tmp_path / "ran"))
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"not measured: process {holder.pid} (")
    assert not (tmp_path / "ran").exists()
    with pytest.raises(measuring_lock.HeldError, match=f"process {holder.pid} "):
        measuring_lock.hold()
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    subprocess.run(command, cwd=ROOT, check=True)
    assert (tmp_path / "ran").exists()
