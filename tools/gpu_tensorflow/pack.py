r"""Packs TensorFlow with CUDA, this package and Python for a GPU machine that has no network.

    tools/gpu_tensorflow/pack.py --output=build/gpu_tensorflow [--megabytes=47] [--keep_all_code]

Run it with the Python of an environment that has TensorFlow with CUDA, after `tools/cuda.sh` built
the kernels. It writes pieces of at most so many megabytes; on the GPU machine, `run.sh` beside this
file puts them together in /tmp/tf and runs tests.

TensorFlow's wheel is three times as large as what is sent: headers and what `import tensorflow`
does not need stay behind, and code for other GPUs than sm_90 becomes zeros, which compress.

The CUDA libraries that TensorFlow loads are larger than itself. In place of those that our ops do
not need (cuBLAS, cuDNN, cuSOLVER ...) there are stubs that have all of their functions and return
an error. So a test that multiplies matrices on the GPU fails. The real cudart and CUPTI are taken
from --cuda_wheels, a folder with the wheels nvidia-cuda-runtime-cu12 and nvidia-cuda-cupti-cu12.
"""

import argparse
import mmap
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SITE = pathlib.Path(sys.prefix) / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
LIBRARIES = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")
# What `import tensorflow`, this package and its tests import.
PACKAGES = [
    "absl",
    "astunparse",
    "flatbuffers",
    "gast",
    "google",
    "pasta",
    "opt_einsum",
    "requests",
    "six.py",
    "termcolor",
    "typing_extensions.py",
    "wrapt",
    "keras",
    "rich",
    "namex",
    "optree",
    "ml_dtypes",
    "numpy",
    "numpy.libs",
    "packaging",
    "urllib3",
    "idna",
    "certifi",
    "charset_normalizer",
    "markdown_it",
    "mdurl",
    "pygments",
    "pytest",
    "_pytest",
    "py.py",
    "pluggy",
    "iniconfig",
    "hypothesis",
    "_hypothesis_pytestplugin.py",
    "_hypothesis_globals.py",
    "sortedcontainers",
    "attr",
    "attrs",
    "xdist",
    "execnet",
    "tf_keras",
    "setuptools",
    "pkg_resources",
]
METADATA = re.compile(
    r"numpy|keras|protobuf|tensorflow|ml_dtypes|absl|wrapt|pytest|hypothesis|optree|execnet"
)
# Imported by name when TensorFlow is, and used by nobody here: an empty module will do.
UNUSED = (
    "python/profiler/internal/_pywrap_profiler_plugin",
    "compiler/mlir/stablehlo/stablehlo_extension",
    "compiler/tf2xla/ops/_xla_ops",
)
STANDARD_LIBRARY_LEFT_OUT = ("test", "idlelib", "lib2to3", "ensurepip", "tkinter", "site-packages")
SYSTEM_LIBRARIES = ["libffi.so.8", "libexpat.so.1", "libbz2.so.1.0", "liblzma.so.5", "libuuid.so.1"]

STUBS = {
    "cublas": "libcublas.so.12",
    "cublasLt": "libcublasLt.so.12",
    "cudnn": "libcudnn.so.9",
    "cufft": "libcufft.so.11",
    "curand": "libcurand.so.10",
    "cusolver": "libcusolver.so.11",
    "cusparse": "libcusparse.so.12",
    "nccl": "libnccl.so.2",
    "nvrtc": "libnvrtc.so.12",
}
FATBIN = struct.pack("<I", 0xBA55ED50)
PTX, ELF, SM_90 = 1, 2, 90


def main() -> None:
    """Packs, and prints the pieces."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--cuda_wheels", type=pathlib.Path, required=True)
    parser.add_argument("--megabytes", type=int, default=47)
    parser.add_argument("--keep_all_code", action="store_true", help="of all GPUs, and PTX")
    arguments = parser.parse_args()
    tree = arguments.output / "tree"
    copy_packages(tree / "site")
    names = function_names(tree / "site/tensorflow")
    for library in LIBRARIES:
        if not arguments.keep_all_code:
            clear_code_of_other_gpus(tree / "site/tensorflow" / library)
        run("strip", "--strip-unneeded", str(tree / "site/tensorflow" / library))
    copy_python(tree / "py")
    write_cuda(tree / "cuda", arguments.cuda_wheels, names)
    copy_own(tree / "own")
    archive = arguments.output / "all.txz"
    run("sh", "-c", f"tar cf - -C {tree} . | xz -5 -T0 > {archive}")
    for piece in split(archive, arguments.megabytes << 20):
        print(piece)


def run(*command: str) -> None:
    """Runs a program that must not fail."""
    subprocess.run(command, check=True)


def copy_packages(site: pathlib.Path) -> None:
    """TensorFlow and what it imports."""
    ignore = shutil.ignore_patterns("include", "*.pyi", "__pycache__")
    wanted = [SITE / name for name in ("tensorflow", *PACKAGES)]
    wanted += [path for path in SITE.glob("*.dist-info") if METADATA.match(path.name)]
    for path in wanted:
        if path.is_dir():
            shutil.copytree(path, site / path.name, ignore=ignore, dirs_exist_ok=True)
        elif path.exists():
            shutil.copy(path, site / path.name)
    for name in UNUSED:
        (site / "tensorflow" / f"{name}.so").unlink(missing_ok=True)
        (site / "tensorflow" / f"{name}.py").touch()


def clear_code_of_other_gpus(path: pathlib.Path) -> None:
    """Zeroes the images of a library's fatbins that are not machine code for sm_90.

    Where there is none, as for TensorFlow's kernels of `tf.add` and the like, PTX for it stays.

    A fatbin is magic, version, header size and size; then entries, each with kind, header size,
    size of the image, and at byte 28 the architecture.
    """
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        found = data.find(FATBIN)
        while found >= 0:
            version, header, size = struct.unpack_from("<HHQ", data, found + 4)
            is_fatbin = version == 1 and header == 16
            entry, end = found + header, found + header + size if is_fatbin else found + 4
            images: dict[tuple[int, int], tuple[int, int]] = {}  # kind, architecture: place, size
            while is_fatbin and entry < end:
                kind, _, entry_header, image = struct.unpack_from("<HHIQ", data, entry)
                (architecture,) = struct.unpack_from("<I", data, entry + 28)
                images[kind, architecture] = entry + entry_header, image
                entry += entry_header + image
            kept = (ELF, SM_90) if (ELF, SM_90) in images else (PTX, SM_90)
            for place, size in (images[key] for key in images if key != kept):
                data[place : place + size] = bytes(size)
            found = data.find(FATBIN, end)


def copy_python(prefix: pathlib.Path) -> None:
    """The interpreter and its standard library."""
    base, version = pathlib.Path(sys.base_prefix), f"python3.{sys.version_info[1]}"
    (prefix / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(base / "bin" / version, prefix / "bin" / version)
    ignore = shutil.ignore_patterns("__pycache__", *STANDARD_LIBRARY_LEFT_OUT, "config-3*")
    shutil.copytree(
        base / "lib" / version, prefix / "lib" / version, ignore=ignore, dirs_exist_ok=True
    )
    (prefix / "lib" / version / "site-packages").mkdir(exist_ok=True)
    shared = [*base.glob(f"lib/lib{version}.so.*")]
    shared += [pathlib.Path("/lib/x86_64-linux-gnu") / name for name in SYSTEM_LIBRARIES]
    for path in shared:
        shutil.copy(path, prefix / "lib" / path.name)


def function_names(tensorflow: pathlib.Path) -> list[str]:
    """The functions of CUDA's libraries that TensorFlow looks up by name."""
    name = re.compile(rb"\0((?:" + "|".join(STUBS).encode() + rb")[A-Z]\w+)(?=\0)")
    found: set[str] = set()
    for library in LIBRARIES:
        with (
            (tensorflow / library).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            found |= {match[1].decode() for match in name.finditer(data)}
    return sorted(found)


def write_cuda(folder: pathlib.Path, wheels: pathlib.Path, names: list[str]) -> None:
    """Stubs, and the libraries in the wheels."""
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, soname in STUBS.items():
        source = folder / f"{prefix}.c"
        own = [name for name in names if re.match(rf"{prefix}[A-Z](?!t[A-Z])", name)]
        source.write_text("\n".join(map(stub, own)) + f"\nint fe_stub_of_{prefix};\n")
        options = ("-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{soname}")
        run("gcc", *options, "-o", str(folder / soname), str(source))
        source.unlink()
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if re.search(r"/lib(?:cudart|cupti)\.so\.12$", name):
                    (folder / pathlib.Path(name).name).write_bytes(archive.read(name))


def stub(name: str) -> str:
    """A function that fails, but for those that tell a version, and text of an error."""
    if name.endswith(("String", "GetErrorName", "GetStatusName", "ncclGetLastError")):
        return f'const char* {name}(void) {{ return "a stub of {name}"; }}'
    if name == "cudnnGetVersion":
        return "unsigned long cudnnGetVersion(void) { return 90300; }"
    if name == "cudnnGetProperty":
        return "int cudnnGetProperty(int t, int* v) { *v = t == 0 ? 9 : t == 1 ? 3 : 0; return 0; }"
    return f"int {name}(void) {{ return 1; }}"


def copy_own(folder: pathlib.Path) -> None:
    """What the build made of this package: its sources are in the repository."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("_ops.so", "_ops_cuda.so", "_ops_cuda.json", "_build_info.py"):
        shutil.copy(ROOT / "python/fused_embedding" / name, folder / name)


def split(archive: pathlib.Path, size: int) -> list[pathlib.Path]:
    """The archive in pieces, which it makes way for."""
    pieces: list[pathlib.Path] = []
    with archive.open("rb") as file:
        while data := file.read(size):
            pieces.append(archive.with_suffix(f".{len(pieces):02}"))
            pieces[-1].write_bytes(data)
    archive.unlink()
    return pieces


if __name__ == "__main__":
    main()
