"""The lookups of a Keras model, layer by layer: what `fe.explain` says of a model."""

from collections.abc import Iterator
from typing import Any

from fused_embedding.keras.group_layer import GroupLayer
from fused_embedding.keras.table_layer import TableLayer

STOCK_LAYER = "it is a layer of Keras; fe.keras.group(model) has one op look up all"
OUR_LAYER = "one op can do it"


def is_model(value: Any) -> bool:
    """Whether a value is a layer or model of Keras 2 or 3."""
    return callable(getattr(value, "_flatten_layers", None))


def layers_of(model: Any) -> list[Any]:
    """The layers of a model, nested ones and itself too, each once.

    Args:
        model: A layer or model of Keras 2 or 3.

    Returns:
        The layers.
    """
    layers: dict[int, Any] = {}
    for layer in model._flatten_layers():
        inner = layer.sublayers if isinstance(layer, GroupLayer) else ()
        layers.update({id(one): one for one in (layer, *inner)})
    return list(layers.values())


def layer_lookups(model: Any) -> Iterator[tuple[str, str, int, str]]:
    """Name, path, number of columns and reason of each lookup that a layer does.

    Args:
        model: A layer or model of Keras 2 or 3.

    Yields:
        A lookup for each group, and for each embedding layer that is in none.
    """
    layers = layers_of(model)
    groups = [layer for layer in layers if isinstance(layer, GroupLayer)]
    grouped = {id(inner) for group in groups for inner in group.sublayers}
    for layer in layers:
        if isinstance(layer, GroupLayer):
            yield layer.name, "v3", layer.num_features, OUR_LAYER
        elif id(layer) not in grouped and hasattr(layer, "embeddings"):
            is_ours = isinstance(layer, TableLayer)
            path, why = ("v3", OUR_LAYER) if is_ours else ("stock", STOCK_LAYER)
            yield layer.name, path, 1, why
