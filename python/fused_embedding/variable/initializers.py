"""First values of an EmbeddingVariable's rows: converts TensorFlow initializers for the table.

The table computes these itself from a seed and the key: zeros, ones, a scalar constant,
random_uniform, random_normal and truncated_normal, of tf, tf.compat.v1, Keras 2 and Keras 3. Any
other initializer is run once, for a matrix of `default_value_dim` rows; key k starts as row
k % default_value_dim.
"""

import hashlib
import inspect
import math
import numbers
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

_SEEDS = 2**31 - 1  # all initializers accept seeds below it


class DebugInitializer:
    """Sets every value of a new row to its key modulo 100,000, for readable tests.

    >>> fe.get_embedding_variable("debug", 4, initializer=fe.DebugInitializer()).embedding_dim
    4
    """

    def __call__(self, shape: Any, dtype: Any = tf.float32, **kwargs: Any) -> tf.Tensor:
        """Refuses to fill a dense variable."""
        raise NotImplementedError(
            "DebugInitializer was given to a dense variable, but only an EmbeddingVariable has "
            "keys; pass it to fe.get_embedding_variable"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DebugInitializer)

    def __hash__(self) -> int:
        return hash(DebugInitializer)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, for serialization."""
        return {}


class TableInitializer(NamedTuple):
    """The initializer attrs of the op EmbeddingVariableHandle.

    Attributes:
        kind: "constant", "uniform", "normal", "truncated_normal", "debug" or "matrix".
        a: The constant, the lower bound or the mean.
        b: The upper bound or the standard deviation.
        matrix: `[rows, dim]` of the kind "matrix", else `[0]`.
        seed: 63 bits.
    """

    kind: str
    a: float = 0.0
    b: float = 0.0
    matrix: np.ndarray = np.zeros([0], np.float32)
    seed: int = 0


def stable_seed(*parts: Any) -> int:
    """63 bits that depend on nothing but `parts`, the same in every process."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seeded(initializer: Any, seed: int) -> Any:
    """Gives an initializer a seed if it has none of its own.

    Args:
        initializer: Any initializer, or its class.
        seed: Not negative.

    Returns:
        A copy with the seed; the initializer itself if it has a seed, or takes none.
    """
    if inspect.isclass(initializer):
        initializer = initializer()
    config = _config(initializer)
    if config.get("seed", 0) is not None:
        return initializer
    config = {key: value for key, value in config.items() if key != "dtype"}  # deprecated
    return type(initializer).from_config({**config, "seed": seed % _SEEDS})


def table_initializer(
    initializer: Any, shape: tuple[int, int], dtype: tf.DType, name: str, graph_seed: int | None
) -> TableInitializer:
    """Converts a user's initializer to one that a table computes.

    Args:
        initializer: A TensorFlow or Keras initializer or its class, any `f(shape, dtype)`, a
            number, an array `[dim]` or `[rows, dim]`; None: a truncated normal of standard
            deviation `1 / sqrt(dim)`, like `tf.feature_column.embedding_column` (DeepRec: 1).
        shape: `default_value_dim` and `dim`.
        dtype: Type of the values.
        name: Full name of the variable, without a partition's suffix.
        graph_seed: The graph's or global seed.

    Returns:
        The table's initializer. Its seed is derived from `graph_seed` and the initializer's own
        seed, or from `graph_seed` and `name` if the initializer has none.

    Raises:
        ValueError: If an array's shape does not fit, or the initializer returns another shape.
        TypeError: If `initializer` cannot be used as one.
    """
    if initializer is None:
        seed = stable_seed(name, graph_seed)
        return TableInitializer("truncated_normal", 0.0, 1.0 / math.sqrt(shape[1]), seed=seed)
    if inspect.isclass(initializer):
        initializer = initializer()
    config = _config(initializer)
    own_seed = config.get("seed")
    seed = stable_seed(name if own_seed is None else own_seed, graph_seed)
    if isinstance(initializer, DebugInitializer):
        return TableInitializer("debug")
    kind = _known_kind(initializer, config)
    if kind is not None:
        return kind._replace(seed=seed)
    value = config["value"] if _stock_name(initializer) == "Constant" else initializer
    if not callable(value):
        return _constant(value, shape[1], dtype)
    return TableInitializer("matrix", matrix=_run(value, shape, dtype, seed))


def _config(initializer: Any) -> dict[str, Any]:
    get_config = getattr(initializer, "get_config", None)
    return get_config() if get_config is not None else {}


def _stock_name(initializer: Any) -> str | None:
    """Class name of TensorFlow's and Keras's initializers, without Keras's "V2"; else None."""
    kind = type(initializer)
    if kind.__module__.split(".")[0] not in ("tensorflow", "keras", "tf_keras"):
        return None  # also for users' subclasses, whose __call__ may do anything
    return kind.__name__.removesuffix("V2").removesuffix("V1")


def _known_kind(initializer: Any, config: dict[str, Any]) -> TableInitializer | None:
    """The kind that the table computes for a stock initializer, without a seed, or None."""
    name = _stock_name(initializer)
    if name == "Zeros":
        return TableInitializer("constant", 0.0)
    if name == "Ones":
        return TableInitializer("constant", 1.0)
    if name == "RandomUniform":
        upper = config["maxval"]  # tf.compat.v1 has None for 1
        return TableInitializer("uniform", config["minval"], 1.0 if upper is None else upper)
    if name == "RandomNormal":
        return TableInitializer("normal", config["mean"], config["stddev"])
    if name == "TruncatedNormal":
        return TableInitializer("truncated_normal", config["mean"], config["stddev"])
    return None


def _constant(value: Any, dim: int, dtype: tf.DType) -> TableInitializer:
    """The initializer for a number, a row or rows."""
    if isinstance(value, tf.Tensor):
        value = tf.get_static_value(value)
    array = np.asarray(value)
    if value is None or not np.issubdtype(array.dtype, np.number):
        raise TypeError(
            f"initializer must be an initializer, a number or an array of numbers, got {value!r}; "
            "pass tf.zeros_initializer(), for example"
        )
    if isinstance(value, numbers.Number) or array.ndim == 0:
        return TableInitializer("constant", float(array))
    if array.ndim > 2 or array.shape[-1] != dim or array.size == 0:
        raise ValueError(
            f"initializer is an array of shape {list(array.shape)}, but first values must be "
            f"[{dim}], or [rows, {dim}] of which key k gets row k % rows; pass one of those"
        )
    matrix = array.reshape(-1, dim).astype(dtype.as_numpy_dtype)
    return TableInitializer("matrix", matrix=matrix)


def _run(initializer: Any, shape: tuple[int, int], dtype: tf.DType, seed: int) -> np.ndarray:
    """Calls an initializer once, away from the user's graph and devices."""
    small_seed = seed % _SEEDS
    initializer = seeded(initializer, seed)  # some would draw a different seed in every process
    # Not all initializers have 16-bit types; rounding here gives the same values.
    run_dtype = dtype if dtype in (tf.float32, tf.float64) else tf.float32
    with tf.Graph().as_default(), tf.device("/CPU:0"):
        tf.compat.v1.set_random_seed(small_seed)
        values = initializer(list(shape), dtype=run_dtype)
        config_proto = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
        with tf.compat.v1.Session(config=config_proto) as session:
            matrix = session.run(tf.convert_to_tensor(values))
    if matrix.shape != tuple(shape):
        raise ValueError(
            f"the initializer was asked for first values of shape {list(shape)} and returned "
            f"{list(matrix.shape)}; it must return the shape that it is given"
        )
    return matrix.astype(dtype.as_numpy_dtype)
