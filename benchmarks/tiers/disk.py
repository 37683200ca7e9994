"""What fio finds that a disk can do."""

import json
import pathlib
import subprocess

READERS = 32  # threads, as many as a store below a table has


class Fio:
    """Reads of 4 KB at random, past the page cache, by as many threads as a store has."""

    def __init__(self, folder: str, num_bytes: int, seconds: int) -> None:
        """Makes a file of so many bytes, unless `seconds` of a measurement are 0: then none is."""
        self.seconds = seconds
        path = pathlib.Path(folder) / "fio.bin"
        self.command = ["fio", "--name=reads", f"--filename={path}"]
        self.command += [f"--size={num_bytes >> 12 << 12}"]
        self.command += ["--bs=4k", "--rw=randread", "--norandommap", "--direct=1"]
        self.command += ["--ioengine=psync", "--thread", f"--numjobs={READERS}"]
        self.command += ["--group_reporting", "--output-format=json"]
        if seconds:
            create = [*self.command, "--create_only=1"]
            subprocess.run(create, check=True, stdout=subprocess.DEVNULL)

    def reads_a_second(self) -> list[float]:
        """One rate, measured now, or none."""
        if not self.seconds:
            return []
        command = [*self.command, "--time_based", f"--runtime={self.seconds}"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        return [float(json.loads(done.stdout)["jobs"][0]["read"]["iops"])]
