"""A Keras model whose lookups are done in one op: a clone with an EmbeddingGroup in it."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.keras.group_layer import FeatureLayers, has_pending_lookup
from fused_embedding.keras.group_lookups import is_plain_embedding, rule_of_front
from fused_embedding.keras.layers import fused_layers
from fused_embedding.keras.table_training import keras_of


class _Lookup(NamedTuple):
    """A call of an embedding layer.

    Attributes:
        layers: The layer, and the one in front of it.
        source: The tensor that the first of them is called with.
        weights: Weights of the ids, or None.
    """

    layers: FeatureLayers
    source: Any
    weights: Any

    @property
    def has_weights(self) -> bool:
        """Whether ids have weights."""
        return self.weights is not None

    @property
    def name(self) -> str:
        """The name of the feature: of the model's input if it is one."""
        history = self.source._keras_history
        named = history.operation if _producer(self.source).is_input else self.layers.lookup
        return str(named.name)


def group(model: Any) -> Any:
    """Clones a model, with all embedding layers that can share an op in one EmbeddingGroup.

    The clone has the layers and variables of `model`, so training it trains `model`, and computes
    the same outputs, bit by bit. The layers Embedding (stock's and ours) and EmbeddingBag are
    grouped, with the Hashing, StringLookup or IntegerLookup in front of them; which of them can be
    is said at `fe.keras.layers.EmbeddingGroup`. A layer whose ids depend on the rows of another one
    is in a group of its own. Where a Concatenate has all rows of a group side by side, the group
    writes them so. Nested models are called as they are, and so are embedding layers
    whose result is an output of the model. Names and structures of inputs and outputs are the same.

    The clone is not compiled. Its files hold an EmbeddingGroup: weights files of `model` do not fit
    it, nor its own files `model`.

    Args:
        model: A Functional or Sequential model of Keras 3, with known inputs.

    Returns:
        A Functional model.

    Raises:
        TypeError: For a model of another class or Keras.
        ValueError: If there are not two lookups that can share an op, or inputs are unknown.

    >>> inputs = {name: tf.keras.Input((), dtype="int64", name=name) for name in ("user", "ad")}
    >>> rows = [tf.keras.layers.Embedding(100, 4)(ids) for ids in inputs.values()]
    >>> model = tf.keras.Model(inputs, tf.keras.layers.Add()(rows))
    >>> clone = fe.keras.group(model)
    >>> [type(layer).__name__ for layer in clone.layers if layer.count_params()]
    ['EmbeddingGroup']
    """
    keras = _checked_keras(model)
    clone = _Clone(keras, model)
    if not clone.num_groups:
        raise ValueError(
            f"the model {model.name!r} has no two embedding layers that can share an op, so there "
            "is nothing to group; see fe.keras.layers.EmbeddingGroup"
        )
    cloned = tf.nest.map_structure(lambda tensor: clone.values[id(tensor)], model.output)
    return keras.Model(model.input, cloned, name=model.name)


def _checked_keras(model: Any) -> Any:
    """The Keras of a model, after a check of the model."""
    cls = type(model)
    keras = keras_of(cls)
    # Classes of the user may have a `call` or `train_step` of their own, which a clone would lose.
    is_known = cls.__name__ in ("Functional", "Sequential") and hasattr(keras, "Variable")
    if not is_known:
        raise TypeError(
            f"model must be a Functional or Sequential model of Keras 3, got {cls.__module__}."
            f"{cls.__name__}; in a model of another class, call a layer "
            "fe.keras.layers.EmbeddingGroup for all features"
        )
    if cls.__name__ == "Sequential" and not model.built:
        raise ValueError(
            f"the model {model.name!r} has no inputs yet; give it a keras.Input as first layer"
        )
    return keras


def _nodes_of(keras: Any, model: Any) -> list[Any]:
    """Calls of layers and ops, each after those whose results it takes."""
    by_depth = keras.Function(model.inputs, model.outputs)._nodes_by_depth
    return [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]


def _lookup_of(keras: Any, node: Any) -> _Lookup | None:
    """The lookup that a call is; None if it is none that an op of a group does."""
    layer = node.operation
    tensors = _ids_and_weights(keras, node.arguments)
    if tensors is None or not (has_pending_lookup(layer) or is_plain_embedding(keras, layer)):
        return None
    ids, weights = tensors
    front = _front_of(keras, ids)
    if front is None:
        lookup = _Lookup(FeatureLayers(None, layer), ids, weights)
    else:
        lookup = _Lookup(FeatureLayers(front.operation, layer), front.arguments.args[0], weights)
    return lookup if _is_grouped(lookup) else None


def _ids_and_weights(keras: Any, arguments: Any) -> tuple[Any, Any] | None:
    """The symbolic ids and weights of a call; None if it has other arguments."""
    given = {name: of for name, of in arguments.kwargs.items() if of is not None}
    weights = given.pop("weights", None)
    if given or len(arguments.args) != 1:
        return None
    (ids,) = arguments.args
    has_weights = isinstance(weights, keras.KerasTensor) or weights is None
    return (ids, weights) if has_weights and isinstance(ids, keras.KerasTensor) else None


def _producer(tensor: Any) -> Any:
    """The call that a symbolic tensor is a result of."""
    history = tensor._keras_history
    return history.operation._inbound_nodes[history.node_index]


def _front_of(keras: Any, ids: Any) -> Any:
    """The call in front of a lookup that makes ids by a rule; None if there is none."""
    node = _producer(ids)
    arguments = node.arguments
    if len(arguments.args) != 1 or arguments.kwargs:
        return None
    (values,) = arguments.args
    if not isinstance(values, keras.KerasTensor):
        return None
    return node if rule_of_front(keras, node.operation, tf.as_dtype(values.dtype)) else None


def _is_grouped(lookup: _Lookup) -> bool:
    """Whether an op of a group takes what a lookup is called with."""
    front, layer = lookup.layers
    source = lookup.source
    is_dense = not getattr(source, "sparse", False) and not getattr(source, "ragged", False)
    has_ids = front is not None or source.dtype in ("int32", "int64")
    is_optional = getattr(source._keras_history.operation, "optional", False)
    return has_ids and not is_optional and (is_dense or has_pending_lookup(layer))


def _in_order(nodes: list[Any], lookups: dict[int, _Lookup]) -> Iterator[list[Any]]:
    """Runs of calls that can be made one after the other; lookups of a run do not need each other.

    A call is behind `depth` lookups: those of its own ids are behind fewer.
    """
    depths: dict[int, int] = {}

    def place(node: Any) -> tuple[int, bool]:
        depth = max((depths[id(tensor)] for tensor in node.input_tensors), default=0)
        is_lookup = id(node) in lookups
        depths.update(dict.fromkeys(map(id, node.outputs), depth + is_lookup))
        return depth, is_lookup

    places = {id(node): place(node) for node in nodes}
    in_order = sorted(nodes, key=lambda node: places[id(node)])
    for _, members in itertools.groupby(in_order, key=lambda node: places[id(node)]):
        yield list(members)


class _Clone:
    """The calls of a model, made anew with groups in place of lookups.

    Attributes:
        values: For the id of each tensor of the model that of the clone.
        num_groups: Number of groups that were made.
    """

    def __init__(self, keras: Any, model: Any):
        self._keras = keras
        self._outputs = {id(tensor) for tensor in model.outputs}
        self._merged: dict[int, set[int]] = {}  # of a Concatenate: tensors that it has no more
        self.values = {id(tensor): tensor for tensor in model.inputs}
        self.num_groups = 0
        nodes = _nodes_of(keras, model)
        self._users = _users_of(nodes)
        lookups = {id(node): lookup for node in nodes if (lookup := self._lookup_of(node))}
        for members in _in_order(nodes, lookups):
            if id(members[0]) in lookups and len(members) > 1:
                self._call_group({id(n.outputs[0]): lookups[id(n)] for n in members})
            else:
                self._call_each(members)

    def _lookup_of(self, node: Any) -> _Lookup | None:
        is_output = any(id(tensor) in self._outputs for tensor in node.outputs)
        return None if is_output else _lookup_of(self._keras, node)

    def _call_each(self, nodes: list[Any]) -> None:
        """Calls layers and ops as the model does."""
        for node in nodes:
            if node.is_input:
                continue
            if id(node) in self._merged:
                results = self._concatenated(node)
            else:
                args, kwargs = node.arguments.fill_in(self.values)
                results = node.operation(*args, **kwargs)
            tensors = map(id, node.outputs)
            self.values.update(zip(tensors, tf.nest.flatten(results), strict=True))

    def _call_group(self, lookups: dict[int, _Lookup]) -> None:
        """Calls an EmbeddingGroup for lookups, by the ids of their results."""
        self.num_groups += 1
        concat = self._concat_of(lookups)
        if concat is None:
            rows = self._rows(list(lookups.values()))
            self.values.update(zip(lookups, rows.values(), strict=True))
            return
        first, *others = (id(t) for t in concat.arguments.args[0] if id(t) in lookups)
        in_order = [lookups[of] for of in (first, *others)]
        policy = concat.operation.dtype_policy
        self.values[first] = self._rows(in_order, concat=True, dtype=policy)
        self._merged[id(concat)] = set(others)

    def _rows(self, lookups: list[_Lookup], **options: Any) -> Any:
        """The result of an EmbeddingGroup."""
        of_name = _by_name(lookups)
        features = {n: [of for of in lookup.layers if of] for n, lookup in of_name.items()}
        layer = fused_layers(self._keras).EmbeddingGroup(features, **options)
        weights = {n: self.values[id(of.weights)] for n, of in of_name.items() if of.has_weights}
        inputs = {name: self.values[id(lookup.source)] for name, lookup in of_name.items()}
        return layer(inputs, weights=weights or None)

    def _concat_of(self, lookups: dict[int, _Lookup]) -> Any:
        """The call that puts the rows of all lookups side by side, or None."""
        users = [node for of in lookups for node in self._users.get(of, [])]
        is_one = len(users) == len(lookups) and len(set(map(id, users))) == 1
        if not is_one or type(users[0].operation) is not self._keras.layers.Concatenate:
            return None
        # The result of a whole Concatenate would be that of the group, and so would its name.
        is_whole = len(users[0].input_tensors) == len(lookups)
        if is_whole and id(users[0].outputs[0]) in self._outputs:
            return None
        return users[0] if _is_side_by_side(users[0], lookups) else None

    def _concatenated(self, node: Any) -> Any:
        """The result of a Concatenate, some of whose tensors are side by side already."""
        tensors = [t for t in node.arguments.args[0] if id(t) not in self._merged[id(node)]]
        parts = [self.values[id(tensor)] for tensor in tensors]
        return parts[0] if len(parts) == 1 else node.operation(parts)


def _users_of(nodes: list[Any]) -> dict[int, list[Any]]:
    """For the id of each tensor the calls that take it, once for each time."""
    users: dict[int, list[Any]] = {}
    for node in nodes:
        for tensor in node.input_tensors:
            users.setdefault(id(tensor), []).append(node)
    return users


def _is_side_by_side(concat: Any, lookups: dict[int, _Lookup]) -> bool:
    """Whether the call of a Concatenate does with lookups what a group with `concat` does."""
    tensors, layer = concat.arguments.args[0], concat.operation
    places = [i for i, tensor in enumerate(tensors) if id(tensor) in lookups]
    is_run = places == list(range(places[0], places[0] + len(lookups)))
    is_last_axis = layer.axis in (-1, len(tensors[0].shape) - 1)
    embeddings = [lookup.layers.lookup for lookup in lookups.values()]
    has_masks = any(getattr(embedding, "mask_zero", False) for embedding in embeddings)
    dtypes = {embedding.compute_dtype for embedding in embeddings}
    return is_run and is_last_axis and not has_masks and dtypes == {layer.compute_dtype}


def _by_name(lookups: Iterable[_Lookup]) -> dict[str, _Lookup]:
    """Lookups by their names, with a number behind those that are not the first of their kind."""
    of_name: dict[str, _Lookup] = {}
    for lookup in lookups:
        numbered = (f"{lookup.name}_{i}" for i in itertools.count(1))
        name = next(n for n in itertools.chain([lookup.name], numbered) if n not in of_name)
        of_name[name] = lookup
    return of_name
