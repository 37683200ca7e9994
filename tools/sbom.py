"""The software bill of materials of a wheel: what `_ops.so` contains that others have written.

CycloneDX 1.6, as PEP 770 puts it into a wheel. It has no time and no random number: two builds of
one source write the same file.
"""

import re
from typing import Any

_GCC = re.compile(rb"GCC: \([^)]*\) ([\d.]+)")
# Whose headers TensorFlow's wheel has and the ops include, with their licences. They have no
# versions of their own: TensorFlow takes revisions.
HEADERS = {
    "abseil-cpp": "Apache-2.0",
    "eigen": "MPL-2.0",
    "ml_dtypes": "Apache-2.0",
    "protobuf": "BSD-3-Clause",
}
_RUNTIME_LICENCE = "GPL-3.0-or-later WITH GCC-exception-3.1"


def _component(name: str, licence: str, description: str, **more: str) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": name,
        "name": name,
        **more,
        "description": description,
        "licenses": [{"expression": licence}],
    }


def compiler_of(library: bytes) -> str:
    """The version of GCC that a library names in its section `.comment`; "": it names none."""
    found = _GCC.search(library)
    return found[1].decode() if found else ""


def of_wheel(name: str, version: str, tensorflow: str, library: bytes) -> dict[str, Any]:
    """The bill of materials of a wheel.

    Args:
        name: The distribution: "fused-embedding-tf221".
        version: Its version.
        tensorflow: The TensorFlow of the build: "2.21.0".
        library: The bytes of `_ops.so`.

    Returns:
        A CycloneDX document.
    """
    from_headers = f"compiled in from the headers in TensorFlow {tensorflow}"
    parts = [_component(one, licence, from_headers) for one, licence in HEADERS.items()]
    purl = f"pkg:pypi/tensorflow@{tensorflow}"
    parts.append(
        _component("tensorflow", "Apache-2.0", from_headers, version=tensorflow, purl=purl)
    )
    gcc = compiler_of(library)
    if gcc:
        linked = "the C++ runtime of GCC, linked statically"
        parts.append(_component("libstdc++", _RUNTIME_LICENCE, linked, version=gcc))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": "wheel",
                "name": name,
                "version": version,
                "purl": f"pkg:pypi/{name}@{version}",
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": parts,
        "dependencies": [{"ref": "wheel", "dependsOn": [one["bom-ref"] for one in parts]}],
    }
