"""Fails unless two wheels hold the same files; only `_ops.so` and its hash may differ.

Bazel's has no `_cold_store_rocksdb.so`, which pip's has where librocksdb is.
"""

import sys
import zipfile

_PIPS_ALONE = ("fused_embedding/_cold_store_rocksdb.so",)


def contents(path: str) -> dict[str, bytes]:
    """Every file of the wheel, without the content of the library and the list of hashes."""
    with zipfile.ZipFile(path) as wheel:
        files = {name: wheel.read(name) for name in wheel.namelist() if name not in _PIPS_ALONE}
    return {name: b"" if name.endswith(("_ops.so", "RECORD")) else files[name] for name in files}


def main() -> int:
    """Prints the files that differ."""
    first, second = map(contents, sys.argv[1:])
    different = {name for name in first | second if first.get(name) != second.get(name)}
    for name in sorted(different):
        print(f"{name}: not the same in {sys.argv[1]} and {sys.argv[2]}")
    if not different:
        print(f"{len(first)} files are the same in both wheels")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
