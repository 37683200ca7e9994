"""`get_multihash_variable`: embeddings of many ids in two small tables, by quotient and remainder.

Source: Shi et al., "Compositional Embeddings Using Complementary Partitions", arXiv 1909.02107.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding.ops.dtypes import VALUE_DTYPES
from fused_embedding.variable.composed import ComposedTable, full_name

OPERATIONS = ("add", "mul", "concat")
STRATEGIES = ("Q-R",)


class MultiHashVariable(ComposedTable):
    """A table of two parts: id `i` has the rows `i // divisor` and `i % modulus` of them.

    Attributes:
        quotients: `[q_rows, q_dim]` variable, or its partitions.
        remainders: `[r_rows, r_dim]` variable, or its partitions.
        operation: How two rows become one: "add", "mul" or "concat".
        divisor: See above.
        modulus: See above.
        pools_first: Whether each part is combined over the ids of a row before the operation, as
            DeepRec's columns do: with "mul" and several ids in a row this is another number.
    """

    def __init__(
        self,
        name: str,
        parts: tuple[Any, Any],
        operation: str,
        divisor: int,
        modulus: int,
        *,
        pools_first: bool = False,
    ) -> None:
        self.quotients, self.remainders = parts
        dims = [int(_shape(part)[1]) for part in parts]
        dim = sum(dims) if operation == "concat" else dims[0]
        super().__init__(name, dim, tf.as_dtype(self.quotients.dtype).base_dtype)
        self.operation = operation
        self.divisor = divisor
        self.modulus = modulus
        self.pools_first = pools_first
        # Modules and checkpoints track variables in lists, but no partitioned ones.
        self._partitions = [list(part) for part in parts if not tf.is_tensor(part)]

    @property
    def val_list(self) -> list[Any]:
        """The two parts, quotients first, by DeepRec's name."""
        return [self.quotients, self.remainders]


def _shape(part: Any) -> tf.TensorShape:
    """`[rows, dim]` of a variable, or of a partitioned one as a whole."""
    return tf.TensorShape(part.get_shape() if hasattr(part, "get_shape") else part.shape)


def get_multihash_variable(
    name: str,
    dims: Sequence[Sequence[int]],
    complementary_strategy: str = "Q-R",
    operation: str = "add",
    dtype: Any = tf.float32,
    initializer: Any = None,
    trainable: bool = True,
    collections: Sequence[str] | None = None,
    partitioner: Any = None,
    *,
    num_ids: int | None = None,
) -> MultiHashVariable:
    """Makes a table for up to `q_rows * r_rows` ids that has `q_rows + r_rows` rows.

    Id `i` has row `i // r_rows` of the first part and row `i % r_rows` of the second, so no two ids
    share both. (DeepRec divides by `q_rows`; `fe.compat.deeprec` has its function.)

    The parts are the variables `NAME/multhash_Q` and `NAME/multhash_R`, made by
    `tf.compat.v1.get_variable`: scopes, `reuse` and partitioners apply.

    Args:
        name: Name in the variable scope.
        dims: `[[q_rows, q_dim], [r_rows, r_dim]]`, all > 0.
        complementary_strategy: "Q-R".
        operation: How the two rows become an embedding: "add" or "mul" of rows of one length, or
            "concat".
        dtype: tf.float32, tf.float64, tf.float16 or tf.bfloat16.
        initializer: Of both parts; None: the scope's, or a truncated normal of standard deviation
            `1 / sqrt(dim)` of the part.
        trainable: Whether the parts are trained.
        collections: Further graph collections to add the parts to.
        partitioner: Applied to each part; None: the scope's.
        num_ids: Number of ids, which are then known to fit; None: an id that does not fit is an
            error when it is looked up.

    Returns:
        A table for the lookups of `fe.nn`.

    Raises:
        ValueError: For other strategies, operations or `dims`, rows of two lengths with "add" or
            "mul", and more ids than `q_rows * r_rows`.
        TypeError: For other dtypes.

    >>> table = fe.get_multihash_variable("users", [[1000, 16], [1000, 16]], num_ids=1_000_000)
    >>> ids = tf.sparse.from_dense([[999_999, 1]])
    >>> fe.nn.fused_safe_embedding_lookup_sparse(table, ids).shape
    TensorShape([1, 16])
    """
    check_dims(name, complementary_strategy, operation, dims, num_ids)
    r_rows = dims[1][0]
    dtype = tf.as_dtype(dtype)
    if dtype not in VALUE_DTYPES:
        names = ", ".join(known.name for known in VALUE_DTYPES)
        raise TypeError(f"dtype of {name!r} must be one of {names}, got {dtype.name}")
    parts = make_parts(
        [f"{name}/multhash_Q", f"{name}/multhash_R"],
        dims,
        dtype=dtype,
        initializer=initializer,
        trainable=trainable,
        collections=collections,
        partitioner=partitioner,
        use_resource=True,
    )
    return MultiHashVariable(full_name(name), parts, operation, r_rows, r_rows)


def make_parts(
    names: Sequence[str], shapes: Sequence[Sequence[int]], *, initializer: Any, **options: Any
) -> Any:
    """The two variables of a multi-hash table.

    Args:
        names: Of each, in the current variable scope.
        shapes: `[rows, dim]` of each.
        initializer: See `get_multihash_variable`.
        **options: Further arguments of tf.compat.v1.get_variable.

    Returns:
        A pair of variables, each maybe partitioned.
    """
    scoped = tf.compat.v1.get_variable_scope().initializer
    return tuple(
        tf.compat.v1.get_variable(
            name,
            list(shape),
            initializer=initializer
            or scoped
            or tf.compat.v1.truncated_normal_initializer(stddev=1 / math.sqrt(shape[1])),
            **options,
        )
        for name, shape in zip(names, shapes, strict=True)
    )


def check_dims(
    name: str, strategy: str, operation: str, dims: Any, num_ids: int | None = None
) -> None:
    """Checks the arguments of `get_multihash_variable`.

    Args:
        name: See there.
        strategy: Its `complementary_strategy`.
        operation: See there.
        dims: See there.
        num_ids: See there.

    Raises:
        ValueError: See there.
    """
    if strategy not in STRATEGIES:
        raise ValueError(
            f"complementary_strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}"
        )
    if operation not in OPERATIONS:
        raise ValueError(f"operation must be one of {', '.join(OPERATIONS)}, got {operation!r}")
    shape = np.shape(dims)
    if shape != (2, 2) or np.min(dims) < 1:
        raise ValueError(
            "the num_of_partitions must be 2 when using Q-R strategy: dims must be "
            f"[[q_rows, q_dim], [r_rows, r_dim]] of numbers > 0, got {dims}"
        )
    if operation != "concat" and dims[0][1] != dims[1][1]:
        raise ValueError(
            f"operation {operation!r} needs rows of one length, got dims = {dims}; use 'concat'"
        )
    (q_rows, _), (r_rows, _) = dims
    if num_ids is not None and num_ids > q_rows * r_rows:
        raise ValueError(
            f"dims = {dims} have {q_rows} * {r_rows} = {q_rows * r_rows} pairs of rows for the "
            f"{num_ids} ids of {name!r}; make q_rows at least {math.ceil(num_ids / r_rows)}"
        )
