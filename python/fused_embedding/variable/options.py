"""Options of an EmbeddingVariable, with DeepRec's names, fields and defaults.

`EmbeddingVariableOption` holds one of each of the others. All are immutable and can be compared and
hashed, so that they can be fields of feature columns. `max_capacity`, `eviction` and `check_mode`,
which bound a table, are not DeepRec's.
"""

import dataclasses
import enum
import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from fused_embedding.variable.initializers import table_initializer
from fused_embedding.variable.storage_options import (
    CacheStrategy,
    StorageOption,
    StorageType,
    storage_attributes,
)

__all__ = [
    "CBFFilter",
    "CacheStrategy",
    "CheckpointOption",
    "CounterFilter",
    "EmbeddingVariableOption",
    "GlobalStepEvict",
    "InitializerOption",
    "L2WeightEvict",
    "StorageOption",
    "StorageType",
]

_CHECK_MODES = ("error", "warning", "ignore")
_MAX_HASHES = 16


def as_integer(name: str, value: Any, least: int = 1) -> int:
    """Checks a count that the table stores as an int64.

    Args:
        name: Name of the argument or field, for errors.
        value: An integer, or a float with an integral value such as 1e6.
        least: The least allowed value.

    Returns:
        The integer.

    Raises:
        TypeError: If `value` is not an integer.
        ValueError: If it is less than `least`, or 2^63 or more.
    """
    is_integer = isinstance(value, numbers.Integral) or hasattr(value, "__index__")
    if not is_integer and not (isinstance(value, numbers.Real) and float(value).is_integer()):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if int(value) < least:
        bound = "> 0" if least else ">= 0"
        hint = "" if least else "; 0 turns it off"
        raise ValueError(f"{name} must be {bound}, got {value}{hint}")
    if int(value) >= 2**63:
        raise ValueError(f"{name} must be less than 2^63, got {value}")
    return int(value)


def as_number(name: str, value: Any) -> float:
    """Checks a number. NaN is refused, because every comparison with it is false.

    Args:
        name: Name of the argument or field, for errors.
        value: The number.

    Returns:
        The number as a float.

    Raises:
        TypeError: If `value` is not a number.
        ValueError: If it is NaN.
    """
    if not isinstance(value, numbers.Real | np.generic):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if math.isnan(value):
        raise ValueError(f"{name} must be a number, got {value}")
    return float(value)


def _make_integer(option: Any, name: str, least: int = 1) -> None:
    object.__setattr__(option, name, as_integer(name, getattr(option, name), least))


def _check_type(name: str, value: Any, *kinds: type | None) -> None:
    allowed = tuple(type(None) if kind is None else kind for kind in kinds)
    if not isinstance(value, allowed):
        names = ", ".join("None" if kind is None else f"fe.{kind.__name__}" for kind in kinds)
        raise TypeError(f"{name} must be one of {names}, got {value!r}")


@dataclasses.dataclass(frozen=True)
class InitializerOption:
    """The first values of rows.

    Attributes:
        initializer: Takes precedence over the argument `initializer` of
            `fe.get_embedding_variable`, and takes the same values; None: that argument is used.
        default_value_dim: Number of rows of the matrix of first values, which is used for
            initializers that a table does not compute itself. Key k starts as row
            `k % default_value_dim`.
        default_value_no_permission: The value of each element that a lookup returns for a key that
            a filter has not admitted.
    """

    initializer: Any = None
    default_value_dim: int = 4096
    default_value_no_permission: float = 0.0

    def __post_init__(self) -> None:
        _make_integer(self, "default_value_dim")
        if isinstance(self.initializer, np.ndarray | list):
            rows = np.asarray(self.initializer).tolist()
            hashable = tuple(tuple(row) if isinstance(row, list) else row for row in rows)
            object.__setattr__(self, "initializer", hashable)


@dataclasses.dataclass(frozen=True)
class CounterFilter:
    """Admits a key once it has occurred `filter_freq` times, counted exactly.

    Attributes:
        filter_freq: Occurrences; 0: every key is admitted at once.
    """

    filter_freq: int = 0

    def __post_init__(self) -> None:
        _make_integer(self, "filter_freq", least=0)


@dataclasses.dataclass(frozen=True)
class CBFFilter:
    """Admits a key once it has occurred `filter_freq` times, counted in a counting Bloom filter.

    The filter's memory is fixed, and a key may be admitted too early.

    Attributes:
        filter_freq: Occurrences; 0: every key is admitted at once.
        max_element_size: Number of keys that the filter is sized for.
        false_positive_probability: Fraction of those keys that may be counted too high, in (0, 1).
            Pass it together with `max_element_size`, or pass -1 and 0: keys are then counted
            exactly, as by CounterFilter.
        counter_type: Accepted and ignored; counters are as small as `filter_freq` allows.
    """

    filter_freq: int = 0
    max_element_size: int = 0
    false_positive_probability: float = -1.0
    counter_type: tf.DType = tf.uint64

    def __post_init__(self) -> None:
        _make_integer(self, "filter_freq", least=0)
        _make_integer(self, "max_element_size", least=0)
        probability = as_number("false_positive_probability", self.false_positive_probability)
        if probability != -1 and not 0 < probability < 1:
            raise ValueError(
                f"false_positive_probability must be in (0, 1), or -1 for exact counters, got "
                f"{probability}; 0.01 is usual"
            )
        if (probability == -1) != (self.max_element_size == 0):
            raise ValueError(
                f"max_element_size = {self.max_element_size} and false_positive_probability = "
                f"{probability} were given, but a Bloom filter needs both; pass both or neither"
            )
        # Options with different spellings of the type must compare equal.
        object.__setattr__(self, "counter_type", tf.as_dtype(self.counter_type))

    @property
    def num_counters(self) -> int:
        """Number of counters for the probability: `-n ln(p) / ln(2)^2`."""
        bits = -self.max_element_size * math.log(self.false_positive_probability)
        return math.ceil(bits / math.log(2) ** 2)

    @property
    def num_hashes(self) -> int:
        """Number of counters per key: `-log2(p)`, 1 to 16."""
        return min(max(round(-math.log2(self.false_positive_probability)), 1), _MAX_HASHES)


@dataclasses.dataclass(frozen=True)
class GlobalStepEvict:
    """Removes keys that were not used for many steps, when a checkpoint is saved.

    Attributes:
        steps_to_live: A key not used for more than this many steps is removed; None or 0: off.
    """

    steps_to_live: int | None = None

    def __post_init__(self) -> None:
        if self.steps_to_live is not None:
            _make_integer(self, "steps_to_live", least=0)


@dataclasses.dataclass(frozen=True)
class L2WeightEvict:
    """Removes keys whose embedding has a small norm, when a checkpoint is saved.

    Attributes:
        l2_weight_threshold: L2 norm below which a row is removed; <= 0: off.
    """

    l2_weight_threshold: float = -1.0

    def __post_init__(self) -> None:
        as_number("l2_weight_threshold", self.l2_weight_threshold)


@dataclasses.dataclass(frozen=True)
class CheckpointOption:
    """The checkpoint that a variable's initial content is loaded from.

    The checkpoint must be of tf.compat.v1.train.Saver or fe.train.Saver. Eagerly, a variable is
    loaded when it is made. In a TF1 graph, tf.compat.v1.global_variables_initializer() loads it,
    after `fe.compat.install()`.

    Attributes:
        ckpt_to_load_from: Prefix of the checkpoint, or a folder, which means its latest
            checkpoint; None: nothing is loaded.
        tensor_name_in_ckpt: Name of the table in the checkpoint; None: the variable's name.
        always_load_from_specific_ckpt: Whether a Saver that restores the variable also loads it
            from this checkpoint instead of the Saver's own.
        init_data_source: Must be None.
    """

    ckpt_to_load_from: str | None = None
    tensor_name_in_ckpt: str | None = None
    always_load_from_specific_ckpt: bool = False
    init_data_source: str | None = None

    def __post_init__(self) -> None:
        if self.init_data_source is not None:
            raise NotImplementedError(
                f"init_data_source = {self.init_data_source!r} was given, but this release reads "
                "no such sources; read the keys and rows, and pass them to the variable's upsert()"
            )
        needed = {
            "tensor_name_in_ckpt": self.tensor_name_in_ckpt,
            "always_load_from_specific_ckpt": self.always_load_from_specific_ckpt,
        }
        given = [name for name, value in needed.items() if value]
        if given and self.ckpt_to_load_from is None:
            raise ValueError(
                f"{', '.join(given)} was given without ckpt_to_load_from, the checkpoint; pass both"
            )


@dataclasses.dataclass(frozen=True)
class EmbeddingVariableOption:
    """Options of an EmbeddingVariable: filters, expiry, bounds, storage, first values.

    Attributes:
        ht_type: Accepted and ignored: there is one kind of table.
        ht_partition_num: Accepted and ignored: the table chooses its number of shards.
        evict_option: Which keys expire, GlobalStepEvict or L2WeightEvict; None: no key.
        ckpt: The checkpoint to load the initial content from, a CheckpointOption; None: none.
        filter_option: Which keys are admitted, CounterFilter or CBFFilter; None: all keys.
        storage_option: Where rows are stored: in memory, in memory and on an SSD, or on a GPU.
        init_option: The first values of rows.
        max_capacity: Maximum number of rows in the table; None: no bound. Not with an SSD, nor in
            HBM.
        eviction: Which row a full table evicts for a new one: "lru" (used longest ago), "lfu"
            (used least often), or a CacheStrategy; None: no row, and the new key is refused. A
            table in HBM evicts from the key's bucket of 64 rows.
        check_mode: What a lookup does with keys that a full table refuses. "error": it raises
            ResourceExhaustedError; "warning": they read zeros, which is logged; "ignore": they
            read zeros. Must be "error" with HBM.

    Raises:
        TypeError: If an option is not of its class, or max_capacity is not an integer.
        ValueError: For max_capacity < 1 or together with an SSD or HBM, eviction without
            max_capacity in DRAM, or an unknown eviction or check_mode.
        NotImplementedError: For a Bloom filter or another check_mode than "error" with HBM.

    >>> option = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(filter_freq=3))
    >>> option.filter_option.filter_freq
    3
    """

    ht_type: str = ""
    ht_partition_num: int = 1000
    evict_option: GlobalStepEvict | L2WeightEvict | None = None
    ckpt: CheckpointOption | None = None
    filter_option: CounterFilter | CBFFilter | None = None
    storage_option: StorageOption = dataclasses.field(default_factory=StorageOption)
    init_option: InitializerOption = InitializerOption()
    max_capacity: int | None = dataclasses.field(default=None, kw_only=True)
    eviction: str | CacheStrategy | None = dataclasses.field(default=None, kw_only=True)
    check_mode: str = dataclasses.field(default="error", kw_only=True)

    def __post_init__(self) -> None:
        _check_type("evict_option", self.evict_option, GlobalStepEvict, L2WeightEvict, None)
        _check_type("ckpt", self.ckpt, CheckpointOption, None)
        _check_type("filter_option", self.filter_option, CounterFilter, CBFFilter, None)
        _check_type("storage_option", self.storage_option, StorageOption)
        _check_type("init_option", self.init_option, InitializerOption)
        if self.max_capacity is not None:
            _make_integer(self, "max_capacity")
            if self.storage_option.is_on_ssd:
                raise ValueError(
                    f"max_capacity = {self.max_capacity} was given with a tier on an SSD, but such "
                    "a table is bounded in bytes of memory, by storage_size, and keeps all rows; "
                    "leave one of them out"
                )
            if self.storage_option.is_in_hbm:
                raise ValueError(
                    f"max_capacity = {self.max_capacity} was given with storage_type = HBM, but "
                    "such a table is bounded in bytes of the GPU's memory, by storage_size; leave "
                    "max_capacity out"
                )
        if self.eviction is not None:
            self._check_eviction()
        if self.check_mode not in _CHECK_MODES:
            raise ValueError(
                f"check_mode must be one of {', '.join(_CHECK_MODES)}, got {self.check_mode!r}"
            )
        if self.storage_option.is_in_hbm:
            self._check_hbm()

    def _check_hbm(self) -> None:
        if self.check_mode != "error":
            raise NotImplementedError(
                f"check_mode = {self.check_mode!r} was given with storage_type = HBM, but a lookup "
                'in a full table on a GPU is an error; pass "error", or an eviction'
            )
        if _admission_attributes(self.filter_option)["admission"] == "bloom":
            raise NotImplementedError(
                "a CBFFilter with max_element_size was given with storage_type = HBM, but a table "
                "on a GPU has no Bloom filter; pass CounterFilter, which counts exactly"
            )

    def _check_eviction(self) -> None:
        try:
            eviction = CacheStrategy(self.eviction)
        except ValueError:
            raise ValueError(
                f"eviction must be 'lru', 'lfu', a CacheStrategy, or None, got {self.eviction!r}"
            ) from None
        if self.max_capacity is None and not self.storage_option.is_in_hbm:
            raise ValueError(
                f"eviction = {eviction.value!r} was given without max_capacity, but a table "
                "without a bound never evicts; pass max_capacity, or no eviction"
            )
        object.__setattr__(self, "eviction", eviction.value)

    @property
    def steps_to_live(self) -> int:
        """Steps after which an unused key expires; 0: never."""
        evict = self.evict_option
        return (evict.steps_to_live or 0) if isinstance(evict, GlobalStepEvict) else 0

    @property
    def l2_weight_threshold(self) -> float:
        """L2 norm below which a key expires; <= 0: none does."""
        evict = self.evict_option
        return evict.l2_weight_threshold if isinstance(evict, L2WeightEvict) else -1.0


def table_attributes(
    option: EmbeddingVariableOption,
    initializer: Any,
    name: str,
    graph_seed: int | None,
    dim: int,
    dtype: Any,
) -> dict[str, Any]:
    """The attrs of the op EmbeddingVariableHandle, except `container` and `shared_name`.

    Args:
        option: The variable's options.
        initializer: The argument of `fe.get_embedding_variable`.
        name: Full name of the variable without a partition's suffix, so that its content does not
            depend on the number of partitions.
        graph_seed: `tf.compat.v1.set_random_seed` or `tf.random.set_seed`; None: neither.
        dim: Length of an embedding.
        dtype: Type of the values.

    Returns:
        Attrs by name; `initializer_matrix` is a numpy array.

    Raises:
        ValueError: If the shape of the initializer's array or result does not fit.
        TypeError: If the initializer cannot be used as one.
    """
    init = option.init_option
    if init.initializer is not None and initializer is not None:
        logging.warning(
            "%s has an initializer and an InitializerOption with another; the option's is used.",
            name,
        )
    chosen = initializer if init.initializer is None else init.initializer
    shape = (init.default_value_dim, dim)
    values = table_initializer(chosen, shape, tf.as_dtype(dtype), name, graph_seed)
    return {
        "dtype": tf.as_dtype(dtype),
        "dim": dim,
        "initializer": values.kind,
        "initializer_a": float(values.a),
        "initializer_b": float(values.b),
        "initializer_matrix": values.matrix,
        "seed": values.seed,
        **_admission_attributes(option.filter_option),
        "no_permission_value": float(init.default_value_no_permission),
        "max_capacity": option.max_capacity or 0,
        "eviction": option.eviction or "none",
        "check_mode": option.check_mode,
        **storage_attributes(option.storage_option),
    }


def to_config(option: Any, serialize: Callable[[Any], Any]) -> Any:
    """An option as JSON.

    Args:
        option: An option of this module, or the value of one of its fields.
        serialize: Turns an initializer into JSON.

    Returns:
        What `from_config` takes.
    """
    if dataclasses.is_dataclass(option):
        fields = {field.name: getattr(option, field.name) for field in dataclasses.fields(option)}
        config = {name: to_config(value, serialize) for name, value in fields.items()}
        return {"option": type(option).__name__, **config}
    if isinstance(option, enum.Enum):
        return {"enum": type(option).__name__, "value": option.value}
    if isinstance(option, tf.DType):
        return option.name
    if option is None or isinstance(option, str | int | float | tuple):
        return option
    return {"initializer": serialize(option)}


def from_config(config: Any, deserialize: Callable[[Any], Any]) -> Any:
    """The option of `to_config`; `deserialize` undoes `serialize`."""
    if isinstance(config, list):  # JSON has no tuples
        return tuple(from_config(value, deserialize) for value in config)
    if not isinstance(config, dict):
        return config
    if "initializer" in config and "option" not in config:
        return deserialize(config["initializer"])
    if "enum" in config:
        return globals()[config["enum"]](config["value"])
    fields = {name: from_config(value, deserialize) for name, value in config.items()}
    return globals()[fields.pop("option")](**fields)


def _admission_attributes(filter_option: CounterFilter | CBFFilter | None) -> dict[str, Any]:
    attributes = {"admission": "all", "min_frequency": 0, "bloom_counters": 0, "bloom_hashes": 0}
    if filter_option is None or filter_option.filter_freq == 0:
        return attributes
    attributes.update(admission="counter", min_frequency=filter_option.filter_freq)
    if isinstance(filter_option, CBFFilter) and filter_option.max_element_size:
        attributes.update(
            admission="bloom",
            bloom_counters=filter_option.num_counters,
            bloom_hashes=filter_option.num_hashes,
        )
    return attributes
