"""Prints the first Python block of README.md, for those who run it."""

import pathlib
import re
import sys

README = pathlib.Path(__file__).resolve().parent.parent / "README.md"


def readme_example() -> str:
    """The code of the first ```python block."""
    block = re.search(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    if block is None:
        raise ValueError(f"{README} must have a block that starts with ```python, and has none")
    return block[1]


if __name__ == "__main__":
    sys.stdout.write(readme_example())
