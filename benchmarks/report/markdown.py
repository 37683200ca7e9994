"""How tables of results are written, whatever they are about."""

from collections.abc import Sequence

PHASES = {
    "forward": "forward",
    "gradient": "forward + gradient",
    "sgd": "forward + backward + SGD",
    "adagrad": "forward + backward + Adagrad",
}


def head(names: Sequence[str]) -> list[str]:
    """Returns the two lines that a table begins with."""
    return [row(names), row(["---"] * len(names))]


def row(cells: Sequence[str]) -> str:
    """Returns a line of a table."""
    return "| " + " | ".join(cells) + " |"


def milliseconds(entry: dict) -> str:
    """Returns the median of a measured system and its quartiles: "2 (1.9-2.1)"."""
    low, high = entry["p25_us"] / 1e3, entry["p75_us"] / 1e3
    return f"{entry['median_us'] / 1e3:.3g} ({low:.3g}-{high:.3g})"


def speedup(of: dict[str, float]) -> str:
    """Returns a median speedup. A loss is printed in bold: it must not be overlooked."""
    text = f"{of['median']:.2f}"
    return f"**{text}**" if of["median"] < 1.0 else text
