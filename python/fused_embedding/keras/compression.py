"""Tables of several parts in Keras layers: what their argument `compression` may be."""

import abc
import dataclasses
import math
from typing import Any, ClassVar

from fused_embedding.keras.table_of import held_table
from fused_embedding.variable.adaptive import AdaptiveEmbeddingVariable
from fused_embedding.variable.composed import ComposedTable
from fused_embedding.variable.dynamic_dimension import (
    FREQUENCY,
    DynamicEmbeddingVariable,
    check_policy,
    first_bounds,
    make_blocks,
)
from fused_embedding.variable.multihash import MultiHashVariable, check_dims
from fused_embedding.variable.options import EmbeddingVariableOption, as_integer
from fused_embedding.variable.scope import get_embedding_variable


class Compression(abc.ABC):
    """How a layer keeps its table in parts, which are attributes of the layer.

    Attributes:
        has_keys: Whether some of them are EmbeddingVariables, for which any int64 is an id.
    """

    has_keys: ClassVar[bool] = True

    @abc.abstractmethod
    def check(self, layer: Any) -> None:
        """Checks the arguments of a layer.

        Args:
            layer: The layer, which has no weights yet.

        Raises:
            ValueError: If the table cannot be kept so.
        """

    @abc.abstractmethod
    def make_parts(self, layer: Any) -> dict[str, Any]:
        """Makes the parts.

        Args:
            layer: The layer.

        Returns:
            Weights that Keras tracks, by the attributes of the layer that they are to be.
        """

    @abc.abstractmethod
    def part_names(self) -> list[str]:
        """The attributes of the layer that are the parts."""

    @abc.abstractmethod
    def table(self, layer: Any) -> ComposedTable:
        """The table for fe.nn.

        Args:
            layer: A layer with parts.
        """


@dataclasses.dataclass(frozen=True)
class MultiHash(Compression):
    """Up to `q_rows * r_rows` ids in `q_rows + r_rows` rows: see `fe.get_multihash_variable`.

    The layer's `input_dim` is the number of ids, which are then known to fit. Its attributes
    `quotients` and `remainders` are the weights.

    Args:
        q_rows: Rows of the first part, > 0. Id `i` has row `i // r_rows` of it.
        r_rows: Rows of the second part, > 0. Id `i` has row `i % r_rows` of it.
        operation: How two rows become an embedding: "add" or "mul" of rows of length `output_dim`,
            or "concat" of halves, of which the first is the longer one.

    >>> layers = fe.keras.layers
    >>> layer = layers.Embedding(1_000_000, 16, compression=fe.keras.MultiHash(1000, 1000))
    >>> layer(tf.constant([999_999, 1])).shape
    TensorShape([2, 16])
    >>> layer.count_params()
    32000
    """

    q_rows: int
    r_rows: int
    operation: str = "add"

    has_keys: ClassVar[bool] = False

    def check(self, layer: Any) -> None:
        """Checks that the ids fit, and that there is no ev_option."""
        check_dims(layer.name, "Q-R", self.operation, self._dims(layer), layer.input_dim)
        if layer.ev_option is not None:
            raise ValueError(
                f"the layer {layer.name!r} has an ev_option, but the parts of MultiHash are no "
                "EmbeddingVariables; leave it out"
            )

    def _dims(self, layer: Any) -> list[list[int]]:
        first = second = layer.output_dim
        if self.operation == "concat":
            first, second = math.ceil(first / 2), second // 2
        return [[self.q_rows, first], [self.r_rows, second]]

    def make_parts(self, layer: Any) -> dict[str, Any]:
        """Two ordinary weights."""
        pairs = zip(self.part_names(), self._dims(layer), strict=True)
        return {name: layer.new_dense_part(name, shape) for name, shape in pairs}

    def part_names(self) -> list[str]:
        """Quotients and remainders."""
        return ["quotients", "remainders"]

    def table(self, layer: Any) -> ComposedTable:
        """A MultiHashVariable."""
        parts = (held_table(layer.quotients), held_table(layer.remainders))
        return MultiHashVariable(layer.name, parts, self.operation, self.r_rows, self.r_rows)


@dataclasses.dataclass(frozen=True)
class DynamicDimension(Compression):
    """Frequent ids have longer rows: see `fe.get_dynamic_dimension_embedding_variable`.

    An id reads as many blocks of `output_dim / num_blocks` numbers as there are bounds that its
    number of occurrences reaches; the others are zero. Call `layer.table.update_bounds()` every
    some thousand steps. The layer's attributes `block_0`, ... are EmbeddingVariables, and `bounds`
    an integer weight that is not trained.

    Args:
        num_blocks: Number of blocks, > 0; divides `output_dim`.
        compression_ratio: Share of the blocks that ids have on average after `update_bounds`, in
            (0, 0.5]; None: 0.5.

    >>> layers = fe.keras.layers
    >>> layer = layers.EmbeddingBag(output_dim=16, compression=fe.keras.DynamicDimension(4))
    >>> layer(tf.constant([[7, 1 << 60]])).shape
    TensorShape([1, 16])
    """

    num_blocks: int
    compression_ratio: float | None = None

    def check(self, layer: Any) -> None:
        """Checks that blocks fill a row, and that the counts decide."""
        num_blocks = as_integer(f"num_blocks of {layer.name!r}", self.num_blocks)
        if layer.output_dim % num_blocks:
            raise ValueError(
                f"output_dim = {layer.output_dim} of {layer.name!r} is no multiple of num_blocks = "
                f"{num_blocks}; blocks have one length"
            )
        check_policy(layer.name, FREQUENCY, self.compression_ratio, self._option(layer))

    def _option(self, layer: Any) -> EmbeddingVariableOption:
        return layer.ev_option or EmbeddingVariableOption()

    def make_parts(self, layer: Any) -> dict[str, Any]:
        """EmbeddingVariables, and the bounds."""
        blocks = make_blocks(
            f"{layer.name}/embeddings",
            layer.output_dim // self.num_blocks,
            self.num_blocks,
            self._option(layer),
            is_counted=True,
            **layer.table_arguments(),
        )
        parts = [layer.as_weight(block) for block in blocks]
        bounds = layer.new_integers("bounds", first_bounds(self.num_blocks))
        return dict(zip(self.part_names(), [*parts, bounds], strict=True))

    def part_names(self) -> list[str]:
        """The blocks, then the bounds."""
        return [f"block_{i}" for i in range(self.num_blocks)] + ["bounds"]

    def table(self, layer: Any) -> ComposedTable:
        """A DynamicEmbeddingVariable that decides by its counts."""
        *blocks, bounds = (held_table(getattr(layer, name)) for name in self.part_names())
        return DynamicEmbeddingVariable(layer.name, blocks, bounds, self.compression_ratio)


@dataclasses.dataclass(frozen=True)
class Adaptive(Compression):
    """Ids share hashed rows until the filter of the layer's `ev_option` admits them to their own.

    See `fe.get_adaptive_embedding_variable`. The layer's attribute `hash_weights` is an ordinary
    weight, and `ev_weights` an EmbeddingVariable.

    Args:
        hash_bucket_size: Number of shared rows, > 0.

    >>> layers = fe.keras.layers
    >>> option = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(filter_freq=100))
    >>> layer = layers.EmbeddingBag(
    ...     output_dim=16, ev_option=option, compression=fe.keras.Adaptive(10_000))
    >>> layer(tf.constant([[7, 1 << 60]])).shape
    TensorShape([1, 16])
    """

    hash_bucket_size: int

    def check(self, layer: Any) -> None:
        """Checks the number of shared rows."""
        as_integer(f"hash_bucket_size of {layer.name!r}", self.hash_bucket_size)

    def make_parts(self, layer: Any) -> dict[str, Any]:
        """An ordinary weight and an EmbeddingVariable."""
        own = get_embedding_variable(
            f"{layer.name}/embeddings/ev_weights",
            layer.output_dim,
            ev_option=layer.ev_option,
            **layer.table_arguments(),
        )
        shape = [self.hash_bucket_size, layer.output_dim]
        shared = layer.new_dense_part("hash_weights", shape)
        return dict(zip(self.part_names(), [shared, layer.as_weight(own)], strict=True))

    def part_names(self) -> list[str]:
        """Shared rows, then those of their own."""
        return ["hash_weights", "ev_weights"]

    def table(self, layer: Any) -> ComposedTable:
        """An AdaptiveEmbeddingVariable."""
        shared, own = (held_table(getattr(layer, name)) for name in self.part_names())
        return AdaptiveEmbeddingVariable(layer.name, shared, own, self.hash_bucket_size)


_KINDS = {kind.__name__: kind for kind in (MultiHash, DynamicDimension, Adaptive)}


def to_config(compression: Any) -> dict[str, Any] | None:
    """A compression as JSON; None for None."""
    if compression is None:
        return None
    return {"kind": type(compression).__name__, **dataclasses.asdict(compression)}


def from_config(config: dict[str, Any] | None) -> Any:
    """The compression of `to_config`; one that is none already stays what it is."""
    if not isinstance(config, dict):
        return config
    fields = dict(config)
    return _KINDS[fields.pop("kind")](**fields)
