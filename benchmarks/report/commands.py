"""Commands of results, as they are repeated today."""

import re

# Results keep the command that made them: these programs had no room then.
_ROOMS = {
    "cold_reads": "tiers.cold_reads",
    "exports": "serving.exports",
    "growth": "tables.growth",
    "one_table": "tables.one_table",
    "raw_table": "tables.raw_table",
    "run": "harness.run",
    "serving": "serving.small_batches",
    "soak": "tiers.soak",
    "sweep": "harness.sweep",
    "tier_clicks": "tiers.clicks",
    "tier_memory": "tiers.memory",
    "tier_peers": "tiers.peers",
    "tiers": "tiers.steps",
}
_PROGRAM = re.compile(r"(?<= -m benchmarks\.)\w+(?= |$)")
# Paths of the machine that measured, and what benchmarks/README.md has in their place.
_PATHS = {
    r" --(?:output|await)=\S+": "",
    r"(?<= --folder=)\S+": "/mnt/ssd/bench",
    r"(?<= --peer_python=)\S+": "peer/bin/python",
}
_CORE_SPEED = re.compile(
    r"^python -m benchmarks\.gpu\.core_speed .*--old_commit=(\S+)"
    r".*?( --other_bits)?(?: --\w+=\S+)*$"
)


def today(command: str) -> str:
    """Returns the command that does the same now, on any machine.

    >>> today("python -m benchmarks.tiers --folder=/tmp/v/t --output=/tmp/v/out")
    'python -m benchmarks.tiers.steps --folder=/mnt/ssd/bench'
    """
    command = _PROGRAM.sub(lambda program: _ROOMS.get(program[0], program[0]), command)
    for path, instead in _PATHS.items():
        command = re.sub(path, instead, command)
    return _CORE_SPEED.sub(r"tools/core_speed.sh .venv/bin 2 \1\2", command)
