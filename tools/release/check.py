"""Checks the files of a release, and writes its notes and hashes beside them.

    tools/release/check.py FOLDER "MINOR ..."

Names, tags, metadata, licences and bills of materials are what they must be, `twine check --strict`
passes, and all wheels have the same Python files. Prints a line for each file.
"""

import email.message
import email.parser
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import wheel_build

BIN = pathlib.Path(sys.executable).parent
VERSION = wheel_build.version()
# Each needs nothing newer than glibc 2.17, which TensorFlow 2.15 needs as well.
PLATFORM = "manylinux2014_x86_64.manylinux_2_17_x86_64"
NOT_SHARED = re.compile(r".*\.dist-info/.*|.*/_ops\.so|.*/_build_info\.py")
NOTICES = {"LICENSE", "NOTICE", "TENSORFLOW_THIRD_PARTY_NOTICES.txt"}


class ReleaseError(Exception):
    """A file of the release is not what it must be."""


def require(is_met: bool, message: str) -> None:
    """Raises an error with the message unless a requirement is met."""
    if not is_met:
        raise ReleaseError(message)


def files_of(path: pathlib.Path) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The files of a wheel: those of `.dist-info`, by their path in it, and all."""
    with zipfile.ZipFile(path) as wheel:
        names = [one.filename for one in wheel.infolist() if not one.is_dir()]
        files = {name: wheel.read(name) for name in names}
    found = (re.fullmatch(r"[^/]+\.dist-info/(.+)", name) for name in files)
    return {match[1]: files[match[0]] for match in found if match}, files


def check_metadata(path: pathlib.Path, fields: email.message.Message, name: str) -> None:
    """The fields of METADATA or PKG-INFO that every file has."""
    got = (fields["Name"], fields["Version"])
    require(got == (name, VERSION), f"{path.name}: is {got}, must be {(name, VERSION)}")
    requirements = fields.get_all("Requires-Dist") or []
    for one in requirements:
        is_asked_for = "extra ==" in one or not one.startswith(("tensorflow", "tf", "keras"))
        require(is_asked_for, f"{path.name}: pulls {one} unasked")


def check_boms(path: pathlib.Path, metadata: dict[str, bytes]) -> None:
    """The bills of materials are valid CycloneDX, and there is one."""
    from cyclonedx.schema import SchemaVersion  # of .venv-release: tests of the rest have none
    from cyclonedx.validation.json import JsonStrictValidator

    boms = {name: text.decode() for name, text in metadata.items() if name.endswith(".cdx.json")}
    require(bool(boms), f"{path.name}: has no bill of materials")
    for name, text in boms.items():
        schema = SchemaVersion.from_version(json.loads(text)["specVersion"])
        error = JsonStrictValidator(schema).validate_str(text)
        require(error is None, f"{path.name}: {name} is no CycloneDX: {error}")


def check_wheel(path: pathlib.Path, minor: str) -> dict[str, bytes]:
    """A wheel for one TensorFlow. Returns the files that all wheels share."""
    metadata, files = files_of(path)
    fields = email.parser.Parser().parsestr(metadata["METADATA"].decode())
    check_metadata(path, fields, f"fused-embedding-tf{minor.replace('.', '')}")
    for extra, package in (("cpu", "tensorflow-cpu"), ("cuda", "tensorflow[and-cuda]")):
        wanted = f'{package}=={minor}.*; extra == "{extra}"'
        require(wanted in fields.get_all("Requires-Dist", []), f"{path.name}: needs {wanted}")
    built_for = files["fused_embedding/_build_info.py"].decode()
    require(f'TENSORFLOW_VERSION = "{minor}.' in built_for, f"{path.name}: {built_for}")
    init = files["fused_embedding/__init__.py"].decode()
    require(f'\n__version__ = "{VERSION}"\n' in init, f"{path.name}: fe.__version__ is another")
    notices = {name.removeprefix("licenses/") for name in metadata if name.startswith("licenses/")}
    require(notices == NOTICES, f"{path.name}: has the notices {notices}, must have {NOTICES}")
    check_boms(path, metadata)
    return {name: data for name, data in files.items() if not NOT_SHARED.fullmatch(name)}


def check_ssd(path: pathlib.Path) -> None:
    """The part for SSDs: one library, RocksDB beside it, and their licences."""
    metadata, everything = files_of(path)
    files = [name for name in everything if ".dist-info/" not in name]
    fields = email.parser.Parser().parsestr(metadata["METADATA"].decode())
    check_metadata(path, fields, "fused-embedding-ssd")
    outside = [name for name in files if not name.startswith("fused_embedding_ssd.libs/")]
    require(outside == ["fused_embedding/_cold_store_rocksdb.so"], f"{path.name}: has {outside}")
    for part in ("librocksdb", "libsnappy", "libzstd"):
        for names, kind in ((files, "library"), (metadata, "licence")):
            require(any(part in name for name in names), f"{path.name}: lacks the {kind} of {part}")
    check_boms(path, metadata)


def check_sdist(path: pathlib.Path) -> None:
    """The source distribution: its metadata, and nothing that was built."""
    with tarfile.open(path) as archive:
        names = archive.getnames()
        info = archive.extractfile(f"fused_embedding-{VERSION}/PKG-INFO")
        require(info is not None, f"{path.name}: has no PKG-INFO")
        text = info.read().decode() if info else ""
    check_metadata(path, email.parser.Parser().parsestr(text), "fused-embedding")
    built = [name for name in names if name.endswith((".so", "_build_info.py"))]
    require(not built, f"{path.name}: has what a build has made: {built}")


def check_tag(path: pathlib.Path) -> None:
    """The wheel's tag is what auditwheel finds by the versions of the symbols that it needs.

    Its verdict on the whole wheel is no tag at all where libtensorflow_framework.so.2 is needed,
    which TensorFlow installs.
    """
    command = [str(BIN / "auditwheel"), "show", str(path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r'constrains the platform tag to\s+"(\w+)"', shown)
    tag = found[1] if found else "none"
    print(f"auditwheel: the symbols of {path.name.split('-')[0]} need {tag}")
    require(tag in path.name, f"{path.name}: auditwheel finds {tag}: {shown}")


def write_notes(folder: pathlib.Path) -> None:
    """Takes this version's section of CHANGELOG.md."""
    changes = (wheel_build.ROOT / "CHANGELOG.md").read_text()
    found = re.search(rf"^## {re.escape(VERSION)}\b.*?(?=^## |\Z)", changes, re.M | re.S)
    require(found is not None, f"CHANGELOG.md has no section {VERSION}")
    if found:
        (folder / "RELEASE_NOTES.md").write_text(found[0])


def write_hashes(folder: pathlib.Path) -> None:
    """Writes SHA256SUMS, and prints it with sizes."""
    paths = sorted(p for p in folder.iterdir() if p.suffix in (".whl", ".gz", ".md"))
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in paths]
    (folder / "SHA256SUMS").write_text("\n".join(lines) + "\n")
    for path, line in zip(paths, lines, strict=True):
        print(f"{path.stat().st_size:>9} {line}")


def main() -> None:
    """Checks everything in the folder."""
    folder, minors = pathlib.Path(sys.argv[1]), sys.argv[2].split()
    sdist = folder / f"fused_embedding-{VERSION}.tar.gz"
    stem = f"{VERSION}-py3-none-{PLATFORM}.whl"
    names = {minor: f"fused_embedding_tf{minor.replace('.', '')}-{stem}" for minor in minors}
    wheels = {minor: folder / name for minor, name in names.items()}
    (ssd,) = folder.glob(f"fused_embedding_ssd-{VERSION}-py3-none-manylinux_2_*.whl")
    expected = {sdist, ssd, *wheels.values()}
    got = {path for path in folder.iterdir() if path.suffix in (".whl", ".gz")}
    require(got == expected, f"the release has {sorted(got)}, must have {sorted(expected)}")
    shared = {minor: check_wheel(path, minor) for minor, path in wheels.items()}
    first, *others = shared.values()
    require(all(other == first for other in others), "the wheels' Python files differ")
    check_ssd(ssd)
    check_sdist(sdist)
    for path in sorted(expected):
        command = [str(BIN / "twine"), "--no-color", "check", "--strict", str(path)]
        env = {**os.environ, "COLUMNS": "200"}
        subprocess.run(command, check=True, env=env)
    for path in sorted(expected - {sdist}):
        check_tag(path)
    if "fused-embedding.example" in (wheel_build.ROOT / "pyproject.toml").read_text():
        print("NOT READY: pyproject.toml's URLs are examples; put the project's host there")
    write_notes(folder)
    write_hashes(folder)
    print(f"{len(expected)} files; {len(first)} files are the same in all wheels")


if __name__ == "__main__":
    main()
