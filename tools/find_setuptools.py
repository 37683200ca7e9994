"""Finds a setuptools that packs wheels, for builds without pip.

    tools/find_setuptools.py FOLDER

Prints what to put on PYTHONPATH: nothing if this Python has one, else FOLDER, after pip has put one
there. `pip install .` asks for the same one, in pyproject.toml.
"""

import pathlib
import subprocess
import sys

REQUIRED = "setuptools>=77"  # the first that knows pyproject.toml's licence; as there
_TRIAL = "import setuptools as s; exit(int(s.__version__.split('.')[0]) < 77)"


class NotFoundError(Exception):
    """There is no such setuptools, and pip could not get one."""


def packs_wheels(python: str) -> bool:
    """Whether the setuptools of `python` is new enough; many environments have none, or 65.5."""
    command = [python, "-E", "-c", _TRIAL]
    return subprocess.run(command, capture_output=True).returncode == 0


def find_setuptools(folder: str, python: str = sys.executable) -> str:
    """Returns the folder to put on PYTHONPATH, or an empty string.

    Raises:
        NotFoundError: If there is none to be had; it says what is missing, and what to do.
    """
    if packs_wheels(python):
        return ""
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    done = subprocess.run([*pip, "--target", folder, REQUIRED], capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise NotFoundError(
            f"{python} has no {REQUIRED}, and pip could not get one for the build: {reason}. "
            f"Run `{python} -m pip install '{REQUIRED}'`"
        )
    return str(pathlib.Path(folder).resolve())


def main() -> int:
    """Prints what `find_setuptools` returns."""
    try:
        print(find_setuptools(sys.argv[1]))
    except NotFoundError as error:
        print(f"fused_embedding cannot be built: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
