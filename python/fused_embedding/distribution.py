"""The distribution that the package was installed from, and the commands that name it.

`fused-embedding` is built for the TensorFlow that pip finds. `fused-embedding-tf215` to `-tf221`
are wheels for one minor version of TensorFlow each. All of them install the same files, so an
environment may have one of them. `docs/decisions/041` says why.

This module imports the standard library alone. `fused_embedding_doctor` executes it by its path,
where the package cannot be imported.
"""

import importlib.metadata

FROM_SOURCE = "fused-embedding"
OF_TENSORFLOW = {f"2.{minor}": f"{FROM_SOURCE}-tf2{minor}" for minor in range(15, 22)}
_TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-rocm")
# How to get what an extra has, where no distribution is installed: the package is used in place.
_IN_PLACE = {
    "demo": "pip install matplotlib scipy tqdm",
    "parquet": "pip install 'pyarrow<26'",
    "ssd": "apt-get install librocksdb-dev, then build again",
}


def installed() -> dict[str, str]:
    """The distributions of this package in this environment.

    Returns:
        The version of each, by name; {}: the package is used in place.
    """
    found = {}
    for name in (FROM_SOURCE, *OF_TENSORFLOW.values()):
        for one in importlib.metadata.distributions(name=name):
            if one.read_text("WHEEL") is not None:  # else a folder that a build has left
                found[name] = one.version
    return found


def refusal() -> str:
    """Why the package must not be imported: the environment has two of its distributions.

    Returns:
        What to say, with their names and the commands that mend it; "": it has one or none.
    """
    found = installed()
    if len(found) < 2:
        return ""
    minor = _tensorflow_minor()
    fitting = OF_TENSORFLOW.get(minor, FROM_SOURCE) if minor else list(found)[-1]
    names = " and ".join(f"{name} {version}" for name, version in found.items())
    return (
        f"{names} are installed in one environment, and each has overwritten files of the other; "
        f"one alone may be there. Run `pip uninstall -y {' '.join(found)}`, then "
        f"`pip install {fitting}`"
    )


def command_for_extra(extra: str) -> str:
    """How to get the packages of an extra.

    Args:
        extra: "demo", "parquet" or "ssd".

    Returns:
        A command, which names the distribution that is installed.
    """
    for name in installed():
        return f"pip install '{name}[{extra}]'"
    return _IN_PLACE[extra]


def command_for_tensorflow(minor: str) -> str:
    """How to get the package for another version of TensorFlow.

    Args:
        minor: The version: "2.21".

    Returns:
        A command, or two.
    """
    for name in installed():
        if name != FROM_SOURCE and minor in OF_TENSORFLOW:
            return f"`pip uninstall -y {name}`, then `pip install {OF_TENSORFLOW[minor]}`"
    # pip keeps the wheel that it has built, and does not know for which TensorFlow.
    return (
        f"`pip install --force-reinstall --no-deps --no-cache-dir {FROM_SOURCE}`, "
        "with `.` for the name in the source folder"
    )


def _tensorflow_minor() -> str:
    """The minor version of the installed TensorFlow; "": there is none."""
    for name in _TENSORFLOWS:
        for one in importlib.metadata.distributions(name=name):
            return ".".join(one.version.split(".")[:2])
    return ""
