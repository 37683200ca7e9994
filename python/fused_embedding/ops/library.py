"""Loads `_ops.so`, after checking that it fits the TensorFlow that is running, and GPU kernels."""

import importlib
import pathlib
import types

import tensorflow as tf

from fused_embedding import distribution
from fused_embedding.ops import cuda

_LIBRARY = pathlib.Path(__file__).parent.with_name("_ops.so")  # beside the package's rooms


def _minor(version: str) -> str:
    """The part of a TensorFlow version that fixes its C++ interface: "2.21.0" gives "2.21"."""
    return ".".join(version.split(".")[:2])


def _load() -> types.ModuleType:
    """Returns the generated wrappers of the ops, one function an op.

    Raises:
        ImportError: If the library is missing, or was built for another TensorFlow.
    """
    try:
        built_for = importlib.import_module("fused_embedding._build_info").TENSORFLOW_VERSION
    except ModuleNotFoundError:
        built_for = None
    if built_for is None or not _LIBRARY.exists():
        raise ImportError(
            f"{_LIBRARY} has not been built; install the package with `pip install .` in its "
            "source folder, or build in place as docs/building.md says"
        )
    if _minor(built_for) != _minor(tf.__version__):
        raise ImportError(
            f"this fused_embedding was built for TensorFlow {_minor(built_for)}, but TensorFlow "
            f"{tf.__version__} is running, and their C++ interfaces differ. For this TensorFlow: "
            f"{distribution.command_for_tensorflow(_minor(tf.__version__))}. For this "
            f'fused_embedding: `pip install "tensorflow-cpu=={_minor(built_for)}.*"`'
        )
    loaded = tf.load_op_library(str(_LIBRARY))
    cuda.load_kernels(_LIBRARY.with_name("_ops_cuda.so"))
    return loaded


ops = _load()
