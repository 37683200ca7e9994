"""One lookup, run eagerly, in a tf.function or in a TF1 session, with its gradients."""

import itertools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import oracle.lookup
from checking import as_indexed_slices, like, sparse

MODES = ("eager", "function", "session")
NUM_IDS, DIM = 8, 3


class Batch(NamedTuple):
    """Ids of a SparseTensor in canonical order, and a weight for each."""

    ids: list[int]
    row_ids: list[int]
    num_rows: int
    weights: list[float]


# First, inner and last rows empty, an invalid id, an id twice in a row and in two rows, and weights
# that prune.
BATCH = Batch(
    [3, -1, 3, 0, 6, 2, -5, 3],
    [1, 1, 1, 2, 4, 4, 5, 6],
    8,
    [0.5, 2.0, 1.5, -1.0, 0.0, 3.0, 1.0, 2.5],
)


class Outcome(NamedTuple):
    """Result of a lookup and its gradients, as numpy."""

    out: np.ndarray
    grad_ids: list[np.ndarray]
    grad_rows: list[np.ndarray]
    weights_grad: np.ndarray | None


def make_table(dtype=np.float64):
    """Rows of different lengths; row 3 has norm 5, exactly: the tie of max_norm 5."""
    table = np.random.default_rng(0).standard_normal((NUM_IDS, DIM))
    table[3] = [0.0, 3.0, -4.0]
    table[6] *= 10
    return table.astype(dtype)


def top_grad_for(shape):
    """What the result is multiplied with before it is summed to a loss."""
    return np.random.default_rng(1).standard_normal(shape)


def run(mode, lookup, params, batch, weights=None, id_dtype=np.int64):
    """Outcome of `lookup(params, sp_ids, sp_weights)`; `params` is a list of numpy arrays."""
    runner = {"eager": run_eagerly, "function": run_in_function, "session": run_in_session}[mode]
    return runner(lookup, params, batch, weights, id_dtype)


def one_or_list(variables):
    return variables[0] if len(variables) == 1 else list(variables)


def forward_and_gradients(lookup, variables, sp_ids, values, top_grad):
    """Result and gradients under a tape; `top_grad` has rows enough for any result."""
    with tf.GradientTape() as tape:
        tape.watch([] if values is None else values)
        sp_weights = None if values is None else like(sp_ids, values)
        out = lookup(one_or_list(variables), sp_ids, sp_weights)
        loss = tf.reduce_sum(out * tf.cast(top_grad[: tf.shape(out)[0]], out.dtype))
    sources = [*variables, *([] if values is None else [values])]
    zero = tf.UnconnectedGradients.ZERO
    return out, tape.gradient(loss, sources, unconnected_gradients=zero)


def outcome(out, grads, num_params, num_weights):
    slices = [as_indexed_slices(g) for g in grads[:num_params]]
    weights_grad = None
    if len(grads) > num_params:
        weights_grad = np.zeros(num_weights)
        ids, values = as_indexed_slices(grads[num_params])
        np.add.at(weights_grad, ids, values.astype(np.float64))
    return Outcome(
        np.asarray(out), [ids for ids, _ in slices], [rows for _, rows in slices], weights_grad
    )


def run_eagerly(lookup, params, batch, weights, id_dtype, wrap=lambda f: f):
    variables = [tf.Variable(p) for p in params]
    sp_ids = sparse(batch.ids, batch.row_ids, batch.num_rows, id_dtype)
    values = None if weights is None else tf.convert_to_tensor(weights)
    top_grad = tf.constant(top_grad_for([batch.num_rows, *params[0].shape[1:]]))
    step = wrap(lambda ids, w: forward_and_gradients(lookup, variables, ids, w, top_grad))
    return outcome(*step(sp_ids, values), len(params), len(batch.ids))


def run_in_function(*args):
    return run_eagerly(*args, wrap=tf.function)


def run_in_session(lookup, params, batch, weights, id_dtype, use_resource=True):
    """In a graph of placeholders, with resource or reference variables."""
    with tf.Graph().as_default():
        variables = [tf.compat.v1.Variable(p, use_resource=use_resource) for p in params]
        sp_ids = tf.compat.v1.sparse_placeholder(id_dtype)
        values = None if weights is None else tf.compat.v1.placeholder(weights.dtype)
        sp_weights = None if values is None else like(sp_ids, values)
        out = lookup(one_or_list(variables), sp_ids, sp_weights)
        out_feeds = {sp_ids: session_feed(batch, id_dtype)}
        if values is not None:
            out_feeds[values] = weights
        top_grad = tf.compat.v1.placeholder(out.dtype)
        loss = tf.reduce_sum(out * top_grad)
        sources = [*variables, *([] if values is None else [values])]
        zero = tf.UnconnectedGradients.ZERO
        grads = tf.gradients(loss, sources, unconnected_gradients=zero)
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            result = session.run(out, out_feeds)
            out_feeds[top_grad] = top_grad_for(result.shape).astype(result.dtype)
            fetched = session.run(grads, out_feeds)
    # A session returns slices as a tuple of its own.
    grads = [tf.IndexedSlices(*g[:2]) if hasattr(g, "indices") else g for g in fetched]
    return outcome(result, grads, len(params), len(batch.ids))


def session_feed(batch, id_dtype):
    indices = oracle.lookup.as_indices(batch.row_ids)
    width = int(indices[:, 1].max(initial=0)) + 1
    ids = np.array(batch.ids, id_dtype)
    return tf.compat.v1.SparseTensorValue(indices, ids, [batch.num_rows, width])


def assert_unique(outcome):
    """Keras 3 optimizers do not sum duplicate ids: a gradient must have none."""
    for ids in outcome.grad_ids:
        assert len(set(ids.tolist())) == len(ids), f"duplicate ids in {ids}"


def assert_same_outcome(got, want, tol=1e-12):
    """Same result, same ids in the gradients, same rows and weight gradients."""
    np.testing.assert_allclose(got.out, want.out, rtol=tol, atol=tol, err_msg="result")
    assert_unique(got)
    shards = zip(got.grad_ids, got.grad_rows, want.grad_ids, want.grad_rows, strict=True)
    for p, (ids, rows, want_ids, want_rows) in enumerate(shards):
        assert sorted(ids) == sorted(set(want_ids)), f"gradient ids of shard {p}"
        summed = {i: want_rows[want_ids == i].astype(np.float64).sum(axis=0) for i in set(want_ids)}
        for i, row in zip(ids, rows, strict=True):
            message = f"gradient of id {i} in shard {p}"
            np.testing.assert_allclose(row, summed[i], rtol=tol, atol=tol, err_msg=message)
    if want.weights_grad is not None:
        np.testing.assert_allclose(
            got.weights_grad, want.weights_grad, rtol=tol, atol=tol, err_msg="weights"
        )


def grid(**axes):
    """Every combination, as dicts."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def name_of(case):
    """A dict as the id of a parametrised test."""
    return "-".join(str(v) for v in case.values()) if isinstance(case, dict) else str(case)
