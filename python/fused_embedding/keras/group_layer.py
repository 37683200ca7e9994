"""The Keras layer that does the lookups of several layers in one op."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from fused_embedding.keras.group_examples import (
    check_examples,
    examples_from_config,
    examples_to_config,
    input_specs,
    parse_inputs,
)
from fused_embedding.keras.group_lookups import (
    PendingLookup,
    is_plain_embedding,
    rows_of_ids,
    rule_of_front,
    rule_of_ids,
)
from fused_embedding.keras.table_of import held_table
from fused_embedding.lookup.feature_ids import KeyRule, ParsedIds
from fused_embedding.lookup.names import lookups_of
from fused_embedding.lookup.run import run_group, run_group_side_by_side
from fused_embedding.variable.inference import inference_unless_trained


class FeatureLayers(NamedTuple):
    """The layers of a feature, of which one is called after the other.

    Attributes:
        front: Makes ids of values, or None.
        lookup: Looks ids up.
    """

    front: Any
    lookup: Any


class _ByName:
    """Something of each feature; an object whose attributes Keras does not track."""

    def __init__(self, of_name: dict[str, Any]):
        self.of_name = of_name


def has_pending_lookup(layer: Any) -> bool:
    """Whether `pending_lookup` does what `call` does: no subclass has a `call` of its own."""
    owners = [
        next((cls for cls in type(layer).__mro__ if name in vars(cls)), None)
        for name in ("call", "pending_lookup")
    ]
    is_regularized = getattr(layer, "activity_regularizer", None) is not None
    return owners[0] is owners[1] and not is_regularized


def _as_tensors(given: Any) -> Any:
    """A dictionary of tensors: Keras 3 takes no mixture of them with arrays, lists or None."""
    if not isinstance(given, Mapping):
        return given

    def as_tensor(of: Any) -> Any:
        is_array = isinstance(of, np.ndarray | list | tuple) and not isinstance(of, ParsedIds)
        return tf.convert_to_tensor(of) if is_array else of

    return {name: as_tensor(of) for name, of in given.items() if of is not None}


class GroupLayer:
    """Looks up the ids of several features by layers whose lookups are done in one op.

    The result for a feature is `lookup(values)`, or `lookup(front(values))`, bit by bit. One op
    makes the ids of all features, one looks up all Embeddings, another all EmbeddingBags, and each
    has one op for its gradients. Tables that are EmbeddingVariables, of another dtype or on another
    device have lookup ops of their own.

    These are grouped: `Embedding` and `EmbeddingBag` of this package; keras.layers.Embedding with
    dense int32 or int64 ids; in front of them Hashing without salt and mask_value, StringLookup and
    IntegerLookup with one index for unknown values and no mask_token. Any other layer is called as
    it is, and so are subclasses with a `call` of their own.

    Layers belong to the group: `group.sublayers` has each of them once. A layer that several
    features have is one table, whose gradient is the sum over them.

    Args:
        features: For each feature an embedding layer, or a list `[front, embedding layer]`.
        concat: Whether to return one tensor instead of a dictionary.
        examples: How each feature is parsed, as of `fe.io.parse_example`: by a tf.io.VarLenFeature,
            a FixedLenFeature, or a RaggedFeature without partitions. The layer is then called with
            a vector of serialized tf.train.Examples. One op parses them, and makes the ids of an
            EmbeddingBag over a VarLenFeature of integers, or behind Hashing: no tensor has their
            values. What may be saved has stock's op; see `fe.io.parse_example`.
        **kwargs: Arguments of keras.layers.Layer, such as `name`.

    >>> layers = fe.keras.layers
    >>> group = layers.EmbeddingGroup({
    ...     "user": layers.Embedding(100, 4),
    ...     "ads": [tf.keras.layers.Hashing(50), layers.EmbeddingBag(50, 8)]})
    >>> rows = group({"user": tf.constant([7, 8]), "ads": tf.constant([["a", "b"], ["c", ""]])})
    >>> {name: of_feature.shape.as_list() for name, of_feature in rows.items()}
    {'user': [2, 4], 'ads': [2, 8]}
    """

    name: str
    trainable: bool
    compute_dtype: Any
    _keras: Any  # the module
    _is_keras_3: bool

    def __init__(
        self,
        features: Mapping[str, Any],
        *,
        concat: bool = False,
        examples: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        layers = _checked_features(self._keras, features)
        distinct = {id(layer): layer for of in layers.values() for layer in of if layer is not None}
        masking = [name for name, of in layers.items() if getattr(of.lookup, "mask_zero", False)]
        _check_masks(masking, concat, examples)
        super().__init__(autocast=False, **kwargs)  # type: ignore[call-arg]
        self.supports_jit = False  # XLA knows no ops of ours
        self.supports_masking = bool(masking)
        self.concat = concat
        self._examples = None if examples is None else _ByName(check_examples(layers, examples))
        self.sublayers = list(distinct.values())
        self._features = _ByName(layers)

    @property
    def num_features(self) -> int:
        """How many features the group has."""
        return len(self._features.of_name)

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights of the layers that have none yet.

        Args:
            input_shape: Shapes of the values of each feature.
        """
        shapes = input_shape if isinstance(input_shape, Mapping) else {}
        for name, layers in self._features.of_name.items():
            for layer in layers:
                if layer is not None and not layer.built and not self._is_without_weights(layer):
                    layer.build(shapes.get(name))
        self.built = True

    def _is_without_weights(self, layer: Any) -> bool:
        """Whether it has none to build: `build` of a StringLookup has no argument in Keras 3.3."""
        layers = self._keras.layers
        return isinstance(layer, layers.Hashing | layers.StringLookup | layers.IntegerLookup)

    def build_from_config(self, config: Any) -> None:
        """Makes the weights, without the shapes that Keras has saved.

        Args:
            config: Ignored.
        """
        self.build()

    def __call__(self, inputs: Any, weights: Any = None, **kwargs: Any) -> Any:
        """Calls the layer; see `call`."""
        given = {} if weights is None else {"weights": _as_tensors(weights)}
        if self._examples is not None and isinstance(inputs, np.ndarray | list | tuple):
            inputs = tf.convert_to_tensor(inputs, tf.string)
        return super().__call__(_as_tensors(inputs), **given, **kwargs)  # type: ignore[misc]

    def call(self, inputs: Any, weights: Any = None, training: Any = None) -> Any:
        """Looks up the ids of all features.

        Args:
            inputs: For each feature what its first layer takes. Other keys are ignored. With
                `examples`, `[num_examples]` strings, or what `parse_example` returned for them.
            weights: Weights of the ids of some features, for the layers that take weights.
            training: If False, tables do not change. Layers that are not trainable never change.

        Returns:
            For each feature what its lookup returns. With `concat`, their concatenation in the
            order of the features along the last dimension, of the layer's compute_dtype.

        Raises:
            ValueError: For a feature without values, for weights of an unknown feature, and for
                weights beside `examples`.
            tf.errors.InvalidArgumentError: If an example cannot be parsed.
        """
        inputs, weights = self._checked_inputs(inputs, weights)
        training = training if self.trainable else False
        found: dict[str, Any] = {}
        for name, layers in self._features.of_name.items():
            with self._reading(name, layers.lookup, training):
                found[name] = self._look_up(layers, inputs[name], weights.get(name))
        return self._together(found) if self.concat else self._finished(found)

    @contextlib.contextmanager
    def _reading(self, name: str, lookup: Any, training: Any) -> Iterator[None]:
        reader = lookups_of(f"layer {self.name!r}: feature {name!r}")
        with inference_unless_trained(lookup, training), reader:
            yield

    def parse_example(self, serialized: Any) -> dict[str, Any]:
        """Parses examples ahead of the call, in the function of `tf.data.Dataset.map`.

        Args:
            serialized: `[num_examples]` strings.

        Returns:
            What the layer is called with: of each feature its ids and their rows, where the op that
            parses makes them, else its values.

        Raises:
            ValueError: If the layer has no `examples`, or `serialized` is no tensor of strings.
            tf.errors.InvalidArgumentError: If an example cannot be parsed.
        """
        if self._examples is None:
            raise ValueError(
                f"the layer {self.name!r} has no examples; make it with examples={{...}}, or parse "
                "by fe.io.parse_example"
            )
        return self._parsed(serialized, self._examples.of_name)

    def _parsed(self, serialized: Any, examples: dict[str, Any]) -> dict[str, Any]:
        """The values of each feature of serialized examples."""
        if not tf.is_tensor(serialized) or serialized.dtype != tf.string:
            raise ValueError(
                f"the layer {self.name!r} has examples, and must be called with a vector of "
                f"serialized tf.train.Examples, but it was called with {serialized!r}"
            )
        return parse_inputs(serialized, examples, self._rule_of_parsed)

    def _rule_of_parsed(self, name: str, dtype: tf.DType) -> KeyRule | None:
        """How the op that parses makes ids of a feature; None if it must give its values."""
        front, lookup = self._features.of_name[name]
        if not hasattr(lookup, "pending_parsed") or not has_pending_lookup(lookup):
            return None
        if front is None:
            return KeyRule("identity") if dtype == tf.int64 else None
        rule = rule_of_front(self._keras, front, dtype)
        return rule if rule is not None and rule.kind == "hash" else None

    def _look_up(self, layers: FeatureLayers, values: Any, weights: Any) -> Any:
        """A PendingLookup, or the result of the layers if they must be called."""
        front, lookup = layers
        if isinstance(values, ParsedIds):
            return lookup.pending_parsed(values)
        rule = None
        if front is not None:
            if self._takes_values(lookup, values):
                rule = rule_of_front(self._keras, front, values.dtype)
            if rule is None:
                values = front(values)
        return self._pending(lookup, values, rule, weights)

    def _takes_values(self, lookup: Any, values: Any) -> bool:
        """Whether the op of ids can read the values of a feature in front of a lookup."""
        if not tf.is_tensor(values):
            return False
        if isinstance(values, tf.Tensor):
            return is_plain_embedding(self._keras, lookup) or has_pending_lookup(lookup)
        return has_pending_lookup(lookup) and lookup.takes_values(values)

    def _pending(self, lookup: Any, ids: Any, rule: KeyRule | None, weights: Any) -> Any:
        if weights is not None and not hasattr(lookup, "combiner"):
            return lookup(ids, weights=weights)  # raises, unless it is a layer of the user's
        if tf.is_tensor(ids) and has_pending_lookup(lookup):
            return lookup.pending_lookup(ids, rule or KeyRule("identity"), weights)
        if is_plain_embedding(self._keras, lookup):
            rule = rule or rule_of_ids(self._keras, ids, lookup.input_dim)
            if rule is not None:
                table = held_table(lookup.embeddings)
                return rows_of_ids(table, ids, rule, lookup.compute_dtype)
        return lookup(ids) if weights is None else lookup(ids, weights=weights)

    def _finished(self, found: dict[str, Any]) -> dict[str, Any]:
        pending = {n: found[n] for n in found if isinstance(found[n], PendingLookup)}
        combined = run_group([lookup.column for lookup in pending.values()])
        for (name, lookup), rows in zip(pending.items(), combined, strict=True):
            found[name] = lookup.finish(rows)
        return found

    def _together(self, found: dict[str, Any]) -> Any:
        if self._is_side_by_side(found):
            rows = run_group_side_by_side([lookup.column for lookup in found.values()])
            return tf.cast(rows, self.compute_dtype)
        rows = self._finished(found)
        ranks = {name: of_feature.shape.rank for name, of_feature in rows.items()}
        if len(set(ranks.values())) > 1:
            raise ValueError(
                f"the layer {self.name!r} has concat = True, but its features have results of "
                f"different ranks, {ranks}; give all ids the same rank, or use concat = False"
            )
        return tf.concat([tf.cast(r, self.compute_dtype) for r in rows.values()], axis=-1)

    def _is_side_by_side(self, found: dict[str, Any]) -> bool:
        """Whether an op may write all results into one tensor."""
        lookups = [of.lookup for of in self._features.of_name.values()]
        has_one_dtype = {lookup.compute_dtype for lookup in lookups} == {self.compute_dtype}
        are_matrices = all(isinstance(of, PendingLookup) and of.is_matrix for of in found.values())
        return has_one_dtype and are_matrices

    def _checked_inputs(self, inputs: Any, weights: Any) -> tuple[Any, Any]:
        """The inputs and weights, after a check of their names."""
        if self._examples is not None:
            if weights:
                raise ValueError(
                    f"the layer {self.name!r} has examples and was called with weights of "
                    f"{sorted(weights)}: leave them out, or call a layer without examples with "
                    "what fe.io.parse_example returns"
                )
            if not isinstance(inputs, Mapping):
                return self._parsed(inputs, self._examples.of_name), {}
        names, given = list(self._features.of_name), inputs
        if not isinstance(given, Mapping) or not set(names) <= set(given):
            keys = sorted(given) if isinstance(given, Mapping) else type(given).__name__
            raise ValueError(
                f"the layer {self.name!r} was called with {keys}, but a dictionary with a value "
                f"for each of {names} is required"
            )
        weights = {} if weights is None else weights
        unknown = sorted(set(weights) - set(names))
        if unknown:
            raise ValueError(
                f"the layer {self.name!r} was called with weights of {unknown}, but its features "
                f"are {names}; name the weights by the features whose ids they belong to"
            )
        return inputs, weights

    # --- What Keras asks ---

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """The mask of each feature, as its embedding layer makes it.

        Args:
            inputs: For each feature what its first layer takes.
            mask: Ignored, as by embedding layers.

        Returns:
            A dictionary with a mask or None for each feature; None if no layer makes masks.
        """
        if not self.supports_masking:
            return None
        masks: dict[str, Any] = dict.fromkeys(self._features.of_name)
        for name, (front, lookup) in self._features.of_name.items():
            if getattr(lookup, "mask_zero", False):
                values = inputs[name]
                masks[name] = lookup.compute_mask(values if front is None else front(values))
        return masks

    def compute_output_spec(
        self, inputs: Any, weights: Any = None, training: Any = None, **kwargs: Any
    ) -> Any:
        """The symbolic results of `call`, in Keras 3.

        Args:
            inputs: Symbolic values of each feature.
            weights: Symbolic weights of some features.
            training: Ignored.
            **kwargs: Ignored.

        Returns:
            For each feature a KerasTensor; with `concat`, one.
        """
        if self._examples is not None:
            inputs = input_specs(self._keras, inputs, self._examples.of_name)
        else:
            inputs, _ = self._checked_inputs(inputs, weights)
        specs = {}
        for name, (front, lookup) in self._features.of_name.items():
            ids = inputs[name] if front is None else front.compute_output_spec(inputs[name])
            specs[name] = lookup.compute_output_spec(ids)
        if not self.concat:
            return specs
        shapes = [spec.shape for spec in specs.values()]
        shape = (*shapes[0][:-1], sum(shape[-1] for shape in shapes))
        return self._keras.KerasTensor(shape, dtype=self.compute_dtype)

    def _trackable_children(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """What tf.train.Checkpoint saves: lists of layers of Keras 3 are nothing that it knows."""
        children = super()._trackable_children(*args, **kwargs)  # type: ignore[misc]
        layers = {f"sublayer_{i}": layer for i, layer in enumerate(self.sublayers)}
        return {**children, **layers} if self._is_keras_3 else children

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, for serialization.

        Returns:
            A dictionary, in which `features` has the numbers of `sublayers`: a layer that several
            features have is written once.
        """
        serialize = self._keras.saving.serialize_keras_object
        number = {id(layer): i for i, layer in enumerate(self.sublayers)}
        return {
            **super().get_config(),  # type: ignore[misc]
            "sublayers": [serialize(layer) for layer in self.sublayers],
            "features": {
                name: [number[id(layer)] for layer in layers if layer is not None]
                for name, layers in self._features.of_name.items()
            },
            "concat": self.concat,
            "examples": examples_to_config(self._examples.of_name if self._examples else None),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """The layer of `get_config`.

        Args:
            config: What that returned.

        Returns:
            A layer whose sublayers are not built.
        """
        config = dict(config)
        deserialize = cls._keras.saving.deserialize_keras_object
        sublayers = [deserialize(layer) for layer in config.pop("sublayers")]
        features = {
            name: [sublayers[i] for i in numbers]
            for name, numbers in config.pop("features").items()
        }
        examples = examples_from_config(config.pop("examples", None))
        return cls(features, examples=examples, **config)


def _check_masks(masking: list[str], concat: bool, examples: Any) -> None:
    """Refuses layers that make masks where a group has none."""
    if concat and masking:
        raise ValueError(
            f"concat = True returns one tensor, which cannot have the masks that the layers of "
            f"{masking} make; use concat = False, or layers without mask_zero"
        )
    if examples is not None and masking:
        raise ValueError(
            f"a layer with examples has no ids to make the masks of {masking} of; use layers "
            "without mask_zero, or call the layer with what fe.io.parse_example returns"
        )


def _checked_features(keras: Any, features: Any) -> dict[str, FeatureLayers]:
    """The layers of each feature, after a check of the constructor's argument."""
    if not isinstance(features, Mapping) or not features:
        raise ValueError(
            f"features must be a dictionary with a layer for each feature, got {features!r}"
        )
    checked = {}
    for name, given in features.items():
        layers = list(given) if isinstance(given, list | tuple) else [given]
        are_layers = all(isinstance(layer, keras.layers.Layer) for layer in layers)
        if len(layers) not in (1, 2) or not are_layers or not isinstance(name, str):
            raise ValueError(
                f"features[{name!r}] must be an embedding layer of {keras.__name__}, or a list of "
                f"a layer that makes ids and an embedding layer, got {given!r}"
            )
        checked[name] = FeatureLayers(layers[0] if len(layers) == 2 else None, layers[-1])
    return checked
