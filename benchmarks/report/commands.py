"""Commands of results, with the names that the programs have today."""

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


def today(command: str) -> str:
    """Returns the command that does the same now.

    >>> today("python -m benchmarks.run --op=gather")
    'python -m benchmarks.harness.run --op=gather'
    """
    return _PROGRAM.sub(lambda program: _ROOMS.get(program[0], program[0]), command)
