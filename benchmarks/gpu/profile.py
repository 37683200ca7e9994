"""Which kernels a lookup spends its time in, by PyTorch's profiler (CUPTI), where it is there.

The profiler sees all kernels of the process, whoever launches them.
"""

import re

from benchmarks.gpu import peers
from benchmarks.gpu.core import Array, Lookup, Machine

NUM_STEPS = 8
# The last of its names, before the arguments of its template and of the function.
_NAME = re.compile(r"^(?:void )?(?:\w+::)*(\w+)")


def kernels(machine: Machine, asked: list[Lookup], outputs: list[Array]) -> dict[str, list[float]]:
    """Of each kernel, copy and fill: how many a plan with its run has, and microseconds of all.

    Empty in the emulation, and without PyTorch.
    """
    if machine.is_emulated or not peers.is_present("torch"):
        return {}
    import torch

    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, acc_events=True) as profiled:
        for i in range(NUM_STEPS):
            machine.plan(asked[i % len(asked)]).run(outputs)
        machine.wait()
    found: dict[str, list[float]] = {}
    for event in profiled.key_averages():
        if event.self_device_time_total == 0:
            continue
        counts = found.setdefault(name_of(event.key), [0, 0])
        counts[0] += event.count / NUM_STEPS
        counts[1] += event.self_device_time_total / NUM_STEPS
    return {
        name: [round(number, 2) for number in counts]
        for name, counts in sorted(found.items(), key=lambda item: -item[1][1])
    }


def name_of(key: str) -> str:
    """What a reader calls a kernel.

    >>> name_of("void fe::(anonymous namespace)::SumKernel<4, float>(fe::Pairs<float>, long)")
    'SumKernel'
    >>> name_of("fe::(anonymous namespace)::FindKernel(fe::Batch, long*)")
    'FindKernel'
    >>> name_of("Memset (Device)")
    'Memset (Device)'
    """
    if key.startswith(("Mem", "mem")):
        return key
    found = _NAME.match(key.replace("(anonymous namespace)::", ""))
    return found.group(1) if found else key
