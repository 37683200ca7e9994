"""What fio finds that a disk can do."""

import json
import pathlib
import subprocess

READERS = 32  # threads, as many as a store below a table has


class Fio:
    """Reads of 4 KB at random, past the page cache, by as many threads as a store has."""

    def __init__(self, folder: str, num_bytes: int, seconds: int) -> None:
        self.path = pathlib.Path(folder) / "fio.bin"
        self.command = ["fio", "--name=reads", f"--filename={self.path}"]
        self.command += [f"--size={num_bytes >> 12 << 12}"]
        self.command += ["--bs=4k", "--rw=randread", "--norandommap", "--direct=1"]
        self.command += ["--ioengine=psync", "--thread", f"--numjobs={READERS}"]
        self.command += ["--group_reporting", "--output-format=json"]
        subprocess.run([*self.command, "--create_only=1"], check=True, stdout=subprocess.DEVNULL)
        self.command += ["--time_based", f"--runtime={seconds}"]

    def reads_a_second(self) -> float:
        """Measured now."""
        done = subprocess.run(self.command, check=True, stdout=subprocess.PIPE, text=True)
        return float(json.loads(done.stdout)["jobs"][0]["read"]["iops"])
