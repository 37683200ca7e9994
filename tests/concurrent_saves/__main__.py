"""Saves of two processes to one folder, and kills in saves: what is returned, lost and left.

    PYTHONPATH=python:tests python -m concurrent_saves --kills=120 --output=FILE.json

Two processes save to the same prefixes at the same time, by each way to save and by stock's. Then
processes are killed in saves and started again; each restores the last checkpoint. The folder also
has a checkpoint whose copy is not finished: its `.index` is missing.
"""

import collections
import json
import multiprocessing
import pathlib
import random
import shutil
import sys
import tempfile
import time
from typing import Any

import tensorflow as tf
from absl import app, flags, logging

from concurrent_saves import programs

FLAGS = flags.FLAGS
flags.DEFINE_integer("saves", 20, "Saves of each of two writers.", lower_bound=1)
flags.DEFINE_integer("kills", 120, "Kills, shared by all ways to save.", lower_bound=0)
flags.DEFINE_integer("seed", 0, "Seed of when processes are killed.")
flags.DEFINE_list("kinds", list(programs.KINDS), "Ways to save.")
flags.DEFINE_string("output", None, "File for the results, as JSON.")

_FORK = multiprocessing.get_context("fork")  # TensorFlow is imported once, and runs in children
_COPY = "ckpt-900000"
_MAX_TO_KEEP = 3


def _write(kind: str, folder: pathlib.Path, writer: int, barrier: Any, results: Any) -> None:
    """One of two writers: reports the paths that it was given, and the errors."""
    program = programs.make(kind, folder, folder.parent / f"ssd{writer}", 1000)
    paths, errors = [], collections.Counter()
    for number in range(1, FLAGS.saves + 1):
        barrier.wait()
        try:
            paths.append(program.save(number, writer * 1000.0 + number))
        except Exception as error:  # counted: the other process waits for this one
            errors[f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"] += 1
    results.put((writer, paths, dict(errors)))


def _check(kind: str, folder: pathlib.Path, paths: list[str], results: Any) -> None:
    program = programs.make(kind, folder, folder.parent / "ssd", 1000)
    results.put([path for path in paths if not programs.is_whole(program, path)])


def _run_in_child(target: Any, *args: Any) -> Any:
    results = _FORK.SimpleQueue()
    process = _FORK.Process(target=target, args=(*args, results))
    process.start()
    result = results.get()
    process.join()
    return result


def two_writers(kind: str, folder: pathlib.Path) -> dict[str, Any]:
    """What two processes are given that save to the same prefixes."""
    barrier, results = _FORK.Barrier(2), _FORK.SimpleQueue()
    args = [(kind, folder, writer, barrier, results) for writer in (0, 1)]
    writers = [_FORK.Process(target=_write, args=one) for one in args]
    for process in writers:
        process.start()
    written = sorted(results.get() for _ in writers)
    for process in writers:
        process.join()
    paths = sorted({path for _, of_one, _ in written for path in of_one})
    broken = _run_in_child(_check, kind, folder, paths)
    return {
        "saves": FLAGS.saves * 2,
        "paths_returned": sum(len(of_one) for _, of_one, _ in written),
        "checkpoints_not_restorable": len(broken),
        "unfinished_files": _unfinished(folder),
        "errors": [errors for *_, errors in written],
    }


def _files_of_tables(folder: pathlib.Path) -> list[pathlib.Path]:
    paths = folder.glob("*.data-[!0-9]*")
    return sorted(path for path in paths if not path.name.startswith(_COPY))


def _unfinished(folder: pathlib.Path) -> list[str]:
    """Files of tables whose checkpoint has no `.index`, but for the copy."""
    paths = _files_of_tables(folder)
    return [p.name for p in paths if not (folder / f"{programs.prefix_of(p)}.index").exists()]


def _unnamed(folder: pathlib.Path) -> list[str]:
    """Files that no checkpoint names, but for the copy and those of a deletion that was cut off.

    TensorFlow deletes the `.index` first: files of older checkpoints that have none are of those.
    """
    newest = max(int(path.stem.rpartition("-")[2]) for path in folder.glob("ckpt-*.index"))
    tags: dict[str, set[str]] = {}
    unnamed = []
    for path in _files_of_tables(folder):
        prefix = programs.prefix_of(path)
        is_whole = (folder / f"{prefix}.index").exists()
        if not is_whole and int(prefix.rpartition("-")[2]) < newest:
            continue
        if is_whole and prefix not in tags:
            tags[prefix] = programs.tags_of(folder / prefix)
        if programs.tag_of(path) not in tags.get(prefix, set()) or ".data-o" in path.name:
            unnamed.append(path.name)
    return unnamed


def _copy_begins(folder: pathlib.Path, path: str) -> None:
    """Copies a checkpoint into its own folder, all but its `.index`."""
    prefix = pathlib.Path(path)
    for file in prefix.parent.glob(f"{prefix.name}.data-*"):
        shutil.copy(file, folder / file.name.replace(prefix.name, _COPY))
    shutil.copy(f"{path}.index", folder.parent / "index")


def _first(kind: str, folder: pathlib.Path, results: Any) -> None:
    program = programs.make(kind, folder, folder.parent / "ssd", _MAX_TO_KEEP)
    results.put(program.save(1, 1.0))


def _goes_on(kind: str, folder: pathlib.Path, num_saves: int, results: Any) -> None:
    """Restores what the process before has saved, and saves until it is killed."""
    program = programs.make(kind, folder, folder.parent / "ssd", _MAX_TO_KEEP)
    last = tf.train.latest_checkpoint(str(folder))
    is_whole = last is not None and programs.is_whole(program, last)
    number = int(last.rpartition("-")[2]) if last else 0
    for i in range(1, num_saves + 1):
        program.save(number + i, float(number + i))
        if i == 1:
            results.send((is_whole, _unnamed(folder)))


def _killed(kind: str, folder: pathlib.Path, wait: float) -> tuple[bool, list[str]]:
    receiver, sender = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_goes_on, args=(kind, folder, 10**6, sender))
    process.start()
    sender.close()
    result = receiver.recv()
    time.sleep(wait)
    process.kill()
    process.join()
    return result


def kills(kind: str, folder: pathlib.Path, num_kills: int, draw: random.Random) -> dict[str, Any]:
    """What `num_kills` processes restore and leave that are killed while they save."""
    _copy_begins(folder, _run_in_child(_first, kind, folder))
    lost, in_saves, left = 0, 0, set()
    for _ in range(num_kills):
        was_whole, unnamed = _killed(kind, folder, draw.uniform(0.0, 0.2))
        lost += not was_whole
        left.update(unnamed)
        in_saves += bool(_unfinished(folder))
    receiver, sender = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_goes_on, args=(kind, folder, 1, sender))
    process.start()
    was_whole, unnamed = receiver.recv()
    process.join()
    shutil.copy(folder.parent / "index", folder / f"{_COPY}.index")
    copy_is_broken = _run_in_child(_check, kind, folder, [str(folder / _COPY)])
    return {
        "kills": num_kills,
        "kills_that_left_files": in_saves,
        "checkpoints_lost": lost + (not was_whole),
        "files_left_after_the_next_save": sorted(left | set(unnamed)),
        "copy_in_progress_is_whole": not copy_is_broken,
    }


def main(_: list[str]) -> int:
    """Runs both for each kind."""
    logging.set_verbosity(logging.ERROR)
    draw = random.Random(FLAGS.seed)
    ours = [kind for kind in FLAGS.kinds if not kind.startswith("stock")]
    report: dict[str, Any] = {"two_writers": {}, "kills": {}}
    for kind in FLAGS.kinds:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary) / "saves"
            folder.mkdir()
            report["two_writers"][kind] = two_writers(kind, folder)
            print(kind, json.dumps(report["two_writers"][kind]), flush=True)
    for i, kind in enumerate(ours if FLAGS.kills else []):
        num_kills = FLAGS.kills // len(ours) + (i < FLAGS.kills % len(ours))
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary) / "saves"
            folder.mkdir()
            report["kills"][kind] = kills(kind, folder, num_kills, draw)
            print(kind, json.dumps(report["kills"][kind]), flush=True)
    if FLAGS.output:
        pathlib.Path(FLAGS.output).write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(app.run(main))
