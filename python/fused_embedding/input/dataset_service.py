"""Datasets that go to a tf.data service, whose workers may lack this package, get stock's ops.

The op that parses has the inputs, outputs and attrs of stock's, and attrs of keys. Where it makes
none, another name and no such attrs are all that changes in the dataset's graph.
"""

import tensorflow as tf

from fused_embedding.ops.tf_private import VariantDataset

OURS, STOCK = "FusedEmbeddingParseExample", "ParseExampleV2"
_KEY_ATTRS = ("Tkeys", "key_names", "key_types", "key_kinds", "key_num_buckets", "key_defaults")


def with_stock_ops(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset with `tf.io`'s op in the place of `fe.io`'s.

    A dataset that goes to a tf.data service whose workers lack this package needs it, ahead of
    `tf.data.experimental.service.distribute` or `register_dataset`; `fe.accelerate()` does it by
    itself.

    Args:
        dataset: Any dataset.

    Returns:
        The same object, if it has none of our ops or is one of a TF1 graph.

    Raises:
        ValueError: If the op makes ids, for `fe.feature_column.input_layer`.

    >>> rows = tf.data.Dataset.from_tensors([tf.train.Example().SerializeToString()])
    >>> features = {"ids": tf.io.VarLenFeature(tf.int64)}
    >>> parsed = rows.map(lambda row: fe.io.parse_example(row, features))
    >>> fe.io.with_stock_ops(parsed).element_spec == parsed.element_spec
    True
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
        _make_stocks(node)
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    return VariantDataset(variant, dataset.element_spec).with_options(dataset.options())


def _make_stocks(node: tf.compat.v1.NodeDef) -> None:
    if node.attr["key_names"].list.s:
        raise ValueError(
            "the dataset makes ids while it parses, by fe.feature_column.parse_example or a group "
            "of layers, and no op of stock's does; a dataset for workers without this package must "
            "parse by fe.io.parse_example and give input_layer the features"
        )
    node.op = STOCK
    for name in _KEY_ATTRS:
        node.attr.pop(name, None)
