"""The command: `python -m parsing --examples=1000000 --seed=1`."""

import argparse
import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from parsing import comparison


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    start, cpu = time.perf_counter(), time.process_time()
    counts, differences = comparison.run(args.seed, args.first, args.examples)
    for spec, text, got, want in differences:
        print(f"{spec}: {text!r}\n  ours  {got}\n  stock {want}", file=sys.stderr)
    result = {
        "command": " ".join(["python -m parsing", *sys.argv[1:]]),
        "tensorflow": tf.__version__,
        "examples": counts["accepted"] + counts["rejected"],
        **counts,
        "differences": len(differences),
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }
    print(json.dumps(result, indent=1))
    return bool(differences)


if __name__ == "__main__":
    sys.exit(main())
