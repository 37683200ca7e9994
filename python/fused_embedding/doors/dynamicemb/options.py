"""DynamicEmb's options of a table, with its names, fields and defaults."""

import dataclasses
import enum
import functools
import math
from typing import Any

import tensorflow as tf
from absl import logging

from fused_embedding.variable.initializers import DebugInitializer
from fused_embedding.variable.options import EmbeddingVariableOption, InitializerOption

_INDEX_TYPES = (tf.int64, tf.int32)
_EMBEDDING_DTYPES = (tf.float32, tf.float16, tf.bfloat16)


class DynamicEmbCheckMode(enum.IntEnum):
    """What a lookup does with keys that a full table refuses.

    ERROR: it raises an error with their number, and does not change the table. WARNING: they read
    zeros, which is logged. IGNORE: they read zeros.
    """

    ERROR = 0
    WARNING = 1
    IGNORE = 2


class DynamicEmbEvictStrategy(enum.Enum):
    """Which row a full table evicts: the one used longest ago, or least often."""

    LRU = "lru"
    LFU = "lfu"


class DynamicEmbInitializerMode(enum.Enum):
    """The distribution of first values. DEBUG: every value is the key modulo 100,000."""

    NORMAL = "normal"
    UNIFORM = "uniform"
    CONSTANT = "constant"
    DEBUG = "debug"


def _check_instance(name: str, value: Any, cls: type) -> None:
    if not isinstance(value, cls):
        raise TypeError(f"{name} must be a fe.dynamicemb.{cls.__name__}, got {value!r}")


def _check_dtype(name: str, value: Any, dtypes: tuple[tf.DType, ...]) -> None:
    if value is not None and tf.as_dtype(value) not in dtypes:
        names = ", ".join(dtype.name for dtype in dtypes)
        raise TypeError(f"{name} must be one of {names}, got {tf.as_dtype(value).name}")


@dataclasses.dataclass(frozen=True)
class DynamicEmbInitializerArgs:
    """The first values of rows.

    Attributes:
        mode: The distribution, which determines which of the other attributes are used.
        mean: Mean for NORMAL.
        std_dev: Standard deviation for NORMAL, >= 0.
        lower: Lower bound for UNIFORM; None: `-sqrt(1 / num_embeddings)`.
        upper: Upper bound for UNIFORM; None: `sqrt(1 / num_embeddings)`.
        value: The constant for CONSTANT.
    """

    mode: DynamicEmbInitializerMode = DynamicEmbInitializerMode.UNIFORM
    mean: float = 0.0
    std_dev: float = 1.0
    lower: float | None = None
    upper: float | None = None
    value: float = 0.0

    def __post_init__(self) -> None:
        _check_instance("mode", self.mode, DynamicEmbInitializerMode)
        if not self.std_dev >= 0:
            raise ValueError(f"std_dev must be >= 0, got {self.std_dev}")
        lower, upper = self.lower, self.upper
        if lower is not None and upper is not None and not lower <= upper:
            raise ValueError(f"lower = {lower} must be <= upper = {upper}; swap them")

    def initializer(self, num_embeddings: int | None) -> Any:
        """The initializer for an EmbeddingVariable.

        Args:
            num_embeddings: Number of rows that the table is made for; required if a bound is None.

        Raises:
            ValueError: If `num_embeddings` is required and None.
        """
        if self.mode == DynamicEmbInitializerMode.NORMAL:
            return tf.random_normal_initializer(self.mean, self.std_dev)
        if self.mode == DynamicEmbInitializerMode.CONSTANT:
            return float(self.value)
        if self.mode == DynamicEmbInitializerMode.DEBUG:
            return DebugInitializer()
        lower, upper = self.lower, self.upper
        if lower is None or upper is None:
            if num_embeddings is None:
                raise ValueError(
                    "initializer_args are UNIFORM without lower and upper, which are then "
                    "+-sqrt(1 / num_embeddings), but neither num_embeddings nor max_capacity is "
                    "given; pass one of them, or both bounds"
                )
            bound = math.sqrt(1 / num_embeddings)
            lower, upper = -bound if lower is None else lower, bound if upper is None else upper
        return tf.random_uniform_initializer(lower, upper)


_IN_DRAM = "all rows are in DRAM"
_OWN_LAYOUT = "the table has a layout of its own"
_ON_CPU = "tables are on the CPU"
# Fields that are accepted without effect, and why.
_WITHOUT_EFFECT = {
    "score_type": "frequencies and versions have one type",
    "device_id": _ON_CPU,
    "init_capacity": "a table starts empty and grows",
    "max_load_factor": "a table grows when it must",
    "global_hbm_for_values": _IN_DRAM,
    "local_hbm_for_values": _IN_DRAM,
    "bucket_capacity": _OWN_LAYOUT,
    "block_size": _ON_CPU,
    "io_block_size": _ON_CPU,
    "io_by_cpu": _ON_CPU,
    "use_constant_memory": _ON_CPU,
    "reserved_key_start_bit": "no key is reserved",
    "num_of_buckets_per_alloc": _OWN_LAYOUT,
}

# Least values of fields that are numbers.
_LEAST = {
    ("dim", "max_capacity", "init_capacity"): 1,
    ("bucket_capacity", "block_size", "io_block_size", "num_of_buckets_per_alloc"): 1,
    ("global_hbm_for_values", "local_hbm_for_values", "reserved_key_start_bit"): 0,
}


@functools.cache
def _warn_once(field: str) -> None:
    logging.warning(
        "DynamicEmbTableOptions.%s was given and has no effect: %s. See "
        "docs/migration/dynamicemb.md",
        field,
        _WITHOUT_EFFECT[field],
    )


@dataclasses.dataclass(frozen=True)
class DynamicEmbTableOptions:
    """Options of a table. Ignored options are accepted; a given one is warned about once.

    Attributes:
        index_type: dtype of keys, tf.int64 or tf.int32; None: tf.int64.
        embedding_dtype: dtype of values, tf.float32, tf.float16, tf.bfloat16; None: tf.float32.
        score_type: Ignored: frequencies and versions are 32-bit counters.
        device_id: Ignored: tables are on the CPU.
        dim: Length of a row; required to make a table.
        max_capacity: Maximum number of rows; None: `num_embeddings` of `make_table`, and if that is
            None too, no bound, so that nothing is evicted.
        init_capacity: Ignored: a table starts empty and grows.
        max_load_factor: Ignored: a table grows when necessary.
        global_hbm_for_values: Ignored: there is no HBM tier.
        local_hbm_for_values: Ignored: there is no HBM tier.
        evict_strategy: Which row a full table evicts for a new one.
        bucket_capacity: Ignored: the index has buckets of a fixed size.
        block_size: Ignored: an option of GPU kernels.
        io_block_size: Ignored: an option of GPU kernels.
        io_by_cpu: Ignored: an option of GPU kernels.
        use_constant_memory: Ignored: an option of GPU kernels.
        reserved_key_start_bit: Ignored: no key is reserved.
        num_of_buckets_per_alloc: Ignored: memory is allocated in slabs.
        initializer_args: The first values of rows.
        safe_check_mode: What a lookup does with keys that a full table refuses.
    """

    index_type: Any = None
    embedding_dtype: Any = None
    score_type: Any = tf.uint64
    device_id: int | None = None
    dim: int | None = None
    max_capacity: int | None = None
    init_capacity: int | None = None
    max_load_factor: float = 0.5
    global_hbm_for_values: int = 0
    local_hbm_for_values: int = 0
    evict_strategy: DynamicEmbEvictStrategy = DynamicEmbEvictStrategy.LRU
    bucket_capacity: int = 128
    block_size: int = 128
    io_block_size: int = 1024
    io_by_cpu: bool = False
    use_constant_memory: bool = False
    reserved_key_start_bit: int = 0
    num_of_buckets_per_alloc: int = 1
    initializer_args: DynamicEmbInitializerArgs = DynamicEmbInitializerArgs()
    safe_check_mode: DynamicEmbCheckMode = DynamicEmbCheckMode.IGNORE

    def __post_init__(self) -> None:
        _check_dtype("index_type", self.index_type, _INDEX_TYPES)
        _check_dtype("embedding_dtype", self.embedding_dtype, _EMBEDDING_DTYPES)
        _check_instance("evict_strategy", self.evict_strategy, DynamicEmbEvictStrategy)
        _check_instance("initializer_args", self.initializer_args, DynamicEmbInitializerArgs)
        _check_instance("safe_check_mode", self.safe_check_mode, DynamicEmbCheckMode)
        self._check_numbers()
        for field in dataclasses.fields(self):
            if field.name in _WITHOUT_EFFECT and getattr(self, field.name) != field.default:
                _warn_once(field.name)

    def _check_numbers(self) -> None:
        for names, least in _LEAST.items():
            for name in names:
                value = getattr(self, name)
                if value is not None and value < least:
                    raise ValueError(f"{name} must be >= {least}, got {value}")
        if not 0 < self.max_load_factor <= 1:
            raise ValueError(f"max_load_factor must be in (0, 1], got {self.max_load_factor}")
        if self.init_capacity and self.max_capacity and self.init_capacity > self.max_capacity:
            raise ValueError(
                f"init_capacity = {self.init_capacity} is above max_capacity = "
                f"{self.max_capacity}; lower it"
            )

    def ev_option(self, num_embeddings: int | None = None) -> EmbeddingVariableOption:
        """Converts the options to those of an EmbeddingVariable.

        Args:
            num_embeddings: Number of rows that the table is made for. It replaces a `max_capacity`
                of None, and determines the bounds of UNIFORM. None: `max_capacity`.

        Returns:
            Options with the initializer, bound, eviction and check mode.

        Raises:
            ValueError: If the initializer needs a number of rows and there is none.
        """
        capacity = self.max_capacity or num_embeddings
        initializer = self.initializer_args.initializer(num_embeddings or capacity)
        return EmbeddingVariableOption(
            init_option=InitializerOption(initializer=initializer),
            max_capacity=capacity,
            eviction=self.evict_strategy.value if capacity else None,
            check_mode=self.safe_check_mode.name.lower(),
        )
