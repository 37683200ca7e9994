"""What a process holds, and whether that grows."""

import os
import pathlib
import time

import numpy as np


def drift(series: list[dict[str, float]], name: str) -> float:
    """Returns what a line through the second half gains over its time, in percent of its mean."""
    late = [point for point in series if point["second"] >= series[-1]["second"] / 2]
    seconds = np.array([point["second"] for point in late])
    values = np.array([point[name] for point in late], np.float64)
    slope = np.polyfit(seconds - seconds.mean(), values, 1)[0]
    return round(float(100 * slope * np.ptp(seconds) / values.mean()), 4)


def resident_bytes(what: str = "VmRSS", process: int | str = "self") -> int:
    """Returns the memory of a process: VmRSS now, VmHWM at most."""
    for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) << 10
    raise KeyError(what)


def await_huge_pages() -> None:
    """Returns when no variable moves onto huge pages: a thread of the ops does it beside steps."""
    before, now = -1, huge_page_bytes()
    while now != before:
        time.sleep(0.2)
        before, now = now, huge_page_bytes()


def huge_page_bytes() -> int:
    """Returns the memory of this process that is on huge pages without a file.

    0 where the system does not say: a sandbox without Linux's whole /proc.
    """
    of_process = pathlib.Path("/proc/self/smaps_rollup")
    for line in of_process.read_text().splitlines() if of_process.exists() else []:
        if line.startswith("AnonHugePages"):
            return int(line.split()[1]) << 10
    return 0


def descriptors_below(folder: pathlib.Path) -> int:
    """Returns how many files of a folder the process has open, removed ones too."""
    num_open = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # closed meanwhile
            continue
        num_open += path.startswith(f"{folder.resolve()}/")
    return num_open


def bytes_below(folder: pathlib.Path) -> int:
    """Returns what the files of a folder take on the disk, each once however many names it has."""
    sizes: dict[int, int] = {}
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(path, name))
            except FileNotFoundError:  # merged away, or an old checkpoint
                continue
            sizes[status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())
