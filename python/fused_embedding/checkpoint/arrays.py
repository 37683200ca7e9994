"""The content of an EmbeddingVariable as numpy arrays, for formats that numpy reads.

It is read and replaced eagerly, or in the default session of a TF1 graph.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding.variable.content import content_dtypes, export_whole, import_whole
from fused_embedding.variable.embedding_variable import EmbeddingVariable


def read_arrays(parts: Sequence[EmbeddingVariable]) -> dict[str, np.ndarray]:
    """Removes expired rows, then returns the content of a variable with any number of partitions.

    Args:
        parts: All partitions.

    Returns:
        An array for each of CONTENT_NAMES; strings are bytes.

    Raises:
        ValueError: In a graph without a default session.
    """
    content = evaluated(lambda: export_whole(parts))
    return {name: _as_array(value) for name, value in content.items()}


def evaluated(make: Callable[[], Any]) -> Any:
    """The result of `make` with arrays for its tensors: eagerly, or in the default session.

    Raises:
        ValueError: In a graph without a default session.
    """
    if tf.executing_eagerly():
        return tf.nest.map_structure(lambda tensor: tensor.numpy(), make())
    session = _default_session()
    with session.graph.as_default():
        made = make()
    return session.run(made)


def replace_arrays(parts: Sequence[EmbeddingVariable], arrays: Mapping[str, np.ndarray]) -> None:
    """Replaces the content of a variable; each partition gets the keys that belong to it.

    Args:
        parts: All partitions.
        arrays: Arrays by their names in CONTENT_NAMES, including `keys` `[n]` and `values`
            `[n, dim]`. Omitted arrays are those of a table whose `n` rows were never looked up: no
            slots, no counts, the variable's own first values.

    Raises:
        ValueError: In a graph without a default session.
    """
    dtypes = content_dtypes(parts[0])
    content = {**_never_looked_up(parts[0], len(arrays["keys"])), **arrays}
    if tf.executing_eagerly():
        import_whole(parts, {name: _as_tensor(content[name], dtypes[name]) for name in dtypes})
        return
    session = _default_session()
    with session.graph.as_default():
        inputs = {name: tf.compat.v1.placeholder(dtype) for name, dtype in dtypes.items()}
        operation = import_whole(parts, inputs)
    session.run(operation, {inputs[name]: content[name] for name in dtypes})


def check_fits(part: EmbeddingVariable, num_rows: int, source: str) -> None:
    """Raises ValueError if a bounded table has no room for the rows of the file `source`."""
    capacity = part.table_attributes["max_capacity"]
    if capacity and num_rows > capacity:
        raise ValueError(
            f"{source} has {num_rows} rows, but the capacity of {part.partition.whole_name!r} is "
            f"{capacity}; make the table larger"
        )


def _default_session() -> Any:
    session = tf.compat.v1.get_default_session()
    if session is None:
        raise ValueError(
            "tables of a TF1 graph have their content in a session, and there is no default one; "
            "call this inside `with session.as_default():`"
        )
    return session


def _as_array(value: Any) -> np.ndarray:
    """Converts to an array without Python objects, which numpy would pickle into files."""
    array = np.asarray(value)
    return array.astype(np.bytes_) if array.dtype == object or array.dtype.kind == "S" else array


def _as_tensor(array: np.ndarray, dtype: tf.DType) -> tf.Tensor:
    is_string = dtype == tf.string
    return tf.constant(array.astype(object) if is_string else array, dtype, shape=array.shape)


def _never_looked_up(part: EmbeddingVariable, num_rows: int) -> dict[str, np.ndarray]:
    """The content of `num_rows` rows that were never looked up, without keys and values."""
    attributes, no_keys = part.table_attributes, np.zeros([0], np.int64)
    parameters = [attributes["initializer_a"], attributes["initializer_b"]]
    return {
        "slots": np.zeros([num_rows, 0], part.slot_dtype.as_numpy_dtype),
        "frequencies": np.zeros([num_rows], np.int64),
        "versions": np.zeros([num_rows], np.int64),
        "filtered_keys": no_keys,
        "filtered_frequencies": no_keys,
        "filtered_versions": no_keys,
        "slot_names": np.zeros([0], np.bytes_),
        "slot_widths": no_keys,
        "slot_initials": np.zeros([0]),
        "initializer": np.array(attributes["initializer"].encode()),
        "initializer_parameters": np.array(parameters, np.float64),
        "seed": np.array(attributes["seed"], np.int64),
        "initializer_matrix": attributes["initializer_matrix"].reshape(-1, part.embedding_dim),
        "step": np.array(0, np.int64),
        "bloom": np.zeros([part.partition.count, 0], np.uint8),
        "bloom_layout": np.array(b""),
    }
