"""One lookup of an EmbeddingVariable that holds the rows of a dense table, in every mode."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from cases.nn import session_feed, top_grad_for
from checking import as_indexed_slices, like, sparse


class TableOutcome(NamedTuple):
    """A lookup's result and gradients, and what it did to the table, as numpy.

    Attributes:
        out: The result.
        grads: Key -> gradient row, of all partitions.
        weights_grad: Of the weights, or None.
        frequencies: Key -> occurrences, of all rows.
    """

    out: np.ndarray
    grads: dict[int, np.ndarray]
    weights_grad: np.ndarray | None
    frequencies: dict[int, int]


def make_variable(rows, num_partitions=None, **arguments):
    """An EmbeddingVariable with `rows` as keys 0, 1, ...; and the op that puts them there."""
    if num_partitions is not None:
        arguments["partitioner"] = tf.compat.v1.fixed_size_partitioner(num_partitions)
    name = arguments.pop("name", "table")
    variable = fe.get_embedding_variable(
        name, rows.shape[1], value_dtype=tf.as_dtype(rows.dtype), **arguments
    )
    return variable, variable.upsert(np.arange(len(rows)), rows)


def parts_of(variable):
    return list(variable) if isinstance(variable, fe.PartitionedEmbeddingVariable) else [variable]


def merge(grads):
    """Gradients of all partitions by key; no key may be there twice."""
    merged = {}
    for grad in grads:
        keys, rows = as_indexed_slices(grad)
        assert not set(keys.tolist()) & set(merged)
        assert len(set(keys.tolist())) == len(keys)
        merged |= dict(zip(keys.tolist(), rows, strict=True))
    return merged


def dense_weights_grad(grad, num_weights):
    dense = np.zeros(num_weights)
    ids, values = as_indexed_slices(grad)
    np.add.at(dense, ids, values.astype(np.float64))
    return dense


def run_table(mode, lookup, rows, batch, weights=None, id_dtype=np.int64, num_partitions=None):
    """Outcome of `lookup(variable, sp_ids, sp_weights)`."""
    arguments = (lookup, rows, batch, weights, id_dtype, num_partitions)
    if mode == "session":
        return _run_in_session(*arguments)
    return _run_eagerly(*arguments, wrap=tf.function if mode == "function" else lambda f: f)


def _loss(lookup, variable, sp_ids, weights, top_grad):
    out = lookup(variable, sp_ids, None if weights is None else like(sp_ids, weights))
    return out, tf.reduce_sum(out * tf.cast(top_grad[: tf.shape(out)[0]], out.dtype))


def _sources(variable, weights):
    return [*parts_of(variable), *([] if weights is None else [weights])]


def _forward_and_gradients(lookup, variable, sp_ids, weights, top_grad):
    with tf.GradientTape() as tape:
        tape.watch([] if weights is None else weights)
        out, loss = _loss(lookup, variable, sp_ids, weights, top_grad)
    return out, tape.gradient(loss, _sources(variable, weights))


def _run_eagerly(lookup, rows, batch, weights, id_dtype, num_partitions, wrap):
    variable, _ = make_variable(rows, num_partitions)
    sp_ids = sparse(batch.ids, batch.row_ids, batch.num_rows, id_dtype)
    values = None if weights is None else tf.convert_to_tensor(weights)
    top_grad = tf.constant(top_grad_for([batch.num_rows, rows.shape[1]]))
    step = wrap(lambda ids, w: _forward_and_gradients(lookup, variable, ids, w, top_grad))
    out, grads = step(sp_ids, values)
    num_parts = len(parts_of(variable))
    content = variable.export()
    return TableOutcome(
        out.numpy(),
        merge(grads[:num_parts]),
        None if weights is None else dense_weights_grad(grads[num_parts], len(weights)),
        dict(zip(content.keys.numpy().tolist(), content.freqs.numpy().tolist(), strict=True)),
    )


def _run_in_session(lookup, rows, batch, weights, id_dtype, num_partitions):
    with tf.Graph().as_default():
        variable, upsert = make_variable(rows, num_partitions)
        sp_ids = tf.compat.v1.sparse_placeholder(id_dtype)
        values = None if weights is None else tf.compat.v1.placeholder(weights.dtype, [None])
        top_grad = tf.constant(top_grad_for([batch.num_rows, rows.shape[1]]))
        out, loss = _loss(lookup, variable, sp_ids, values, top_grad)
        fetches = out, tf.gradients(loss, _sources(variable, values))
        content = variable.export()
        feeds = {sp_ids: session_feed(batch, id_dtype)}
        if values is not None:
            feeds[values] = weights
        with tf.compat.v1.Session() as session:
            session.run(upsert)
            out, grads = session.run(fetches, feeds)
            keys, freqs = session.run([content.keys, content.freqs])
    num_parts = len(parts_of(variable))
    grads = [tf.IndexedSlices(*g[:2]) if hasattr(g, "indices") else g for g in grads]
    return TableOutcome(
        out,
        merge(grads[:num_parts]),
        None if weights is None else dense_weights_grad(grads[num_parts], len(weights)),
        dict(zip(keys.tolist(), freqs.tolist(), strict=True)),
    )


def make_debug(num_partitions=None, name="table", dim=2, initializer=None, **arguments):
    """An EmbeddingVariable whose rows start as their key."""
    if num_partitions is not None:
        arguments["partitioner"] = tf.compat.v1.fixed_size_partitioner(num_partitions)
    initializer = fe.DebugInitializer() if initializer is None else initializer
    return fe.get_embedding_variable(name, dim, initializer=initializer, **arguments)


def look_up(variable, keys, counts=None):
    """A training lookup, each key `counts` times."""
    ids = np.repeat(np.array(keys, np.int64), 1 if counts is None else counts)
    rows = np.arange(len(ids))
    sp_ids = tf.SparseTensor(np.stack([rows, rows], axis=1), ids, [len(ids), max(len(ids), 1)])
    return fe.nn.fused_safe_embedding_lookup_sparse(variable, sp_ids, combiner="sum", prune=False)


def read(variable, keys):
    """Rows as an evaluation reads them, as numpy."""
    with fe.inference():
        return look_up(variable, keys).numpy()


def column_of(*ids):
    """Ids, each in a row of its own."""
    return sparse(ids, range(len(ids)), len(ids))


def slices_of(grad):
    """The rows of an IndexedSlices by id, as lists."""
    return dict(zip(grad.indices.numpy().tolist(), grad.values.numpy().tolist(), strict=True))
