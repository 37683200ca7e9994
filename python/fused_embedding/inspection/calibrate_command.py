"""`fused-embedding calibrate FILE.json`: measures the costs that plans are made with."""

import os
import platform
from collections.abc import Sequence

import tensorflow as tf
from absl import flags, logging

from fused_embedding.inspection.calibration import calibrate

_SECONDS = flags.DEFINE_float(
    "seconds", 1.5, "Time for each of the 8 measurements.", lower_bound=0.01
)


def main(argv: Sequence[str]) -> int:
    """Writes a JSON file for fe.planner.Costs.load; the exit status is 2 if it cannot be."""
    if len(argv) != 2:
        logging.error("one file to write is required; usage: fused-embedding calibrate FILE.json")
        return 2
    path = argv[1]
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        logging.error("%s cannot be written: its folder must exist and be writable", path)
        return 2
    costs = calibrate(_SECONDS.value, print)
    costs.save(
        path, processor=platform.processor(), cores=os.cpu_count(), tensorflow=tf.__version__
    )
    print(
        f"key {1e9 * costs.key_seconds:.0f} ns, value {1e9 * costs.value_seconds:.2f} ns, shard "
        f"{1e6 * costs.shard_seconds:.1f} us, message {1e6 * costs.message_seconds:.0f} us, byte "
        f"{1e9 * costs.byte_seconds:.2f} ns, step {1e6 * costs.step_seconds:.0f} us: {path}"
    )
    return 0
