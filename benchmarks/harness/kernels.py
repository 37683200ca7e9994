"""Which kernels a traced step ran, and for how long."""

import collections
import re
from collections.abc import Sequence

import numpy as np

NUM_TRACES = 5
# Present in every step whatever it computes; not counted as work.
BOOKKEEPING = {"_Arg", "_Retval", "Placeholder", "Const", "NoOp", "VarHandleOp", "_SOURCE", "_SINK"}
_LABEL = re.compile(r" = (?P<op_type>[^(]+)\(")


def summarize(traces: Sequence) -> list[dict]:
    """Returns executed op types by falling total time: op type, number of kernels, time in us.

    Args:
        traces: StepStats protos of several runs of one step; the median time is returned.
    """
    kernels: collections.Counter[str] = collections.Counter()
    times: dict[str, list[int]] = collections.defaultdict(list)
    for trace in traces:
        kernels.clear()
        micros: collections.Counter[str] = collections.Counter()
        for device in trace.dev_stats:
            for node in device.node_stats:
                match = _LABEL.search(node.timeline_label)
                if match and match["op_type"] not in BOOKKEEPING:
                    kernels[match["op_type"]] += 1
                    micros[match["op_type"]] += node.op_end_rel_micros - node.op_start_rel_micros
        for op_type, micro in micros.items():
            times[op_type].append(micro)
    rows = [
        {"op": op_type, "kernels": kernels[op_type], "us": float(np.median(times[op_type]))}
        for op_type in kernels
    ]
    return sorted(rows, key=lambda row: -row["us"])
