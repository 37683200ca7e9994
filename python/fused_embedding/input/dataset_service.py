"""Datasets that go to a tf.data service, whose workers may lack this package, get stock's ops.

The op that parses has the inputs, outputs and attrs of stock's: another name is all that changes in
the dataset's graph.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from fused_embedding.ops.tf_private import VariantDataset, data_service_ops

OURS, STOCK = "FusedEmbeddingParseExample", "ParseExampleV2"
_lock = threading.Lock()
_given: list[Callable[..., Any]] = []


def give_it_stock_ops() -> None:
    """From now on; a second call does nothing. It is called when the op gets into a dataset."""
    with _lock:
        if _given:
            return
        stock = data_service_ops._register_dataset

        @functools.wraps(stock)
        def register(service: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
            return stock(service, with_stock_ops(dataset), *args, **kwargs)

        data_service_ops._register_dataset = register
        _given.append(register)


def with_stock_ops(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset with stock's op in the place of ours.

    Args:
        dataset: Any dataset.

    Returns:
        The same object, if it has none of our ops or is one of a TF1 graph.
    """
    if not tf.executing_eagerly():
        return dataset
    ignore = tf.data.experimental.ExternalStatePolicy.IGNORE
    serialized = dataset._as_serialized_graph(external_state_policy=ignore)
    graph = tf.compat.v1.GraphDef.FromString(serialized.numpy())
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    ours = [node for node in nodes if node.op == OURS]
    if not ours:
        return dataset
    for node in ours:
        node.op = STOCK
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    return VariantDataset(variant, dataset.element_spec).with_options(dataset.options())
