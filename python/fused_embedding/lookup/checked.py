"""The graph of `do_fusion="check"`: a fused lookup that is compared with stock's every N steps."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from fused_embedding.lookup import fusion_check
from fused_embedding.lookup.fusion_check import FusionCheck, monitor_of
from fused_embedding.lookup.ids import as_sparse_ids
from fused_embedding.lookup.options import LookupOptions
from fused_embedding.lookup.run import run_lookup
from fused_embedding.lookup.tables import EmbeddingVariableShard, as_shards
from fused_embedding.ops.disabled import is_disabled
from fused_embedding.ops.path_notes import CHECK, noted
from fused_embedding.ops.tf_private import cond_v2
from fused_embedding.variable.inference import is_inference

Lookup = Callable[[list[Any]], tf.Tensor]  # takes the list of a table's shards

# Stock's functions, bound before anything can replace them in tf.nn.
_stock_safe = tf.compat.v1.nn.safe_embedding_lookup_sparse
_stock_unsafe = tf.compat.v1.nn.embedding_lookup_sparse


def checked_lookup(
    check: FusionCheck,
    params: Any,
    sp_ids: Any,
    sp_weights: Any,
    options: LookupOptions,
    name: str | None,
) -> tf.Tensor:
    """Builds a fused lookup that is compared with stock's lookup every N steps.

    Once the two differ, only stock's lookup runs.

    Args:
        check: How often to compare, and the tolerance.
        params: The table.
        sp_ids: The ids.
        sp_weights: The weights of the ids, or None.
        options: The lookup's options: `prune` and `fill_empty_row` both or neither.
        name: Name of the lookup in logs, below the current name scope.

    Returns:
        The combined embeddings of the fused lookup, or of stock's once the two differ.

    Raises:
        ValueError: If stock TensorFlow has no lookup with these options.
    """
    shards = as_shards(params, "params")
    _check_stock_can(shards, options)
    sources: list[Any] = [shard.source for shard in shards]
    ids, weights = _as_sparse_tensors(sp_ids, sp_weights)

    def fused(tables: list[Any]) -> tf.Tensor:
        pairs = as_sparse_ids(ids, weights, "sp_ids")
        return run_lookup(check.version, as_shards(tables, "params"), pairs, options)

    def stock(tables: list[Any]) -> tf.Tensor:
        return _stock_lookup(tables, ids, weights, options)

    with tf.compat.v1.name_scope(name, "checked_embedding_lookup") as scope:
        if is_inference() or is_disabled("lookup"):
            return fused(sources)
        monitor = monitor_of(shards[0].owner, scope.rstrip("/"), check)
        return _Check(monitor, sources, fused, stock).run()


def _check_stock_can(shards: list[Any], options: LookupOptions) -> None:
    if isinstance(shards[0], EmbeddingVariableShard):
        raise ValueError(
            "a check was asked for, but stock TensorFlow has no lookup in an EmbeddingVariable to "
            "compare with; use do_fusion=True"
        )
    if options.partition_strategy not in ("div", "mod") or options.prune != options.fill_empty_row:
        raise ValueError(
            "a check compares with tf.nn.safe_embedding_lookup_sparse, which prunes and divides a "
            f"table by 'div' or 'mod', but prune = {options.prune} and partition_strategy = "
            f"{options.partition_strategy!r} were given; use another fusion_version"
        )


def _as_sparse_tensors(ids: Any, weights: Any) -> tuple[tf.SparseTensor, tf.SparseTensor | None]:
    """Converts ids and weights to SparseTensors, which stock requires."""
    values = weights.flat_values if isinstance(weights, tf.RaggedTensor) else weights
    ids = ids.to_sparse() if isinstance(ids, tf.RaggedTensor) else ids
    if values is None or isinstance(values, tf.SparseTensor):
        return ids, values
    return ids, tf.SparseTensor(ids.indices, values, ids.dense_shape)


def _stock_lookup(tables: list[Any], ids: Any, weights: Any, options: LookupOptions) -> tf.Tensor:
    how: dict[str, Any] = {
        "combiner": options.combiner,
        "max_norm": options.max_norm,
        "partition_strategy": options.partition_strategy,
    }
    if options.prune:
        return _stock_safe(tables, ids, weights, default_id=options.default_id, **how)
    combined = _stock_unsafe(tables, ids, weights, **how)
    # Stock's result ends at the last row that has an id, the fused result at the last row.
    num_missing = tf.cast(ids.dense_shape[0], tf.int32) - tf.shape(combined)[0]
    return tf.pad(combined, [[0, num_missing], [0, 0]])


def _cond(
    pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any], note: str = ""
) -> Any:
    """tf.cond whose gradient keeps IndexedSlices, also after tf.compat.v1.disable_v2_behavior.

    If `note` is set, fe.explain lists this conditional as one lookup. It never lists lookups in the
    branches.
    """
    if tf.executing_eagerly():
        return true_fn() if pred else false_fn()
    with noted(note, CHECK):
        return cond_v2(pred, true_fn, false_fn)


class _Check:
    """Builds the graph of one checked lookup.

    The outputs are compared before the lookup itself runs, so a step that finds a difference
    already uses stock's lookup. Fused and stock lookup read the table in the branches of one
    conditional, each with a gradient of slices, so no tensor of the table's size is made.
    """

    def __init__(
        self, monitor: fusion_check.Monitor, sources: list[Any], fused: Lookup, stock: Lookup
    ):
        self._monitor = monitor
        self._sources = sources
        self._fused = fused
        self._stock = stock
        self._step = _call(monitor.start, [], tf.int64)

    def run(self) -> tf.Tensor:
        """The combined embeddings."""
        uses_stock = _cond(
            self._step > 0, self._compare_outputs, lambda: tf.equal(self._step, fusion_check.STOCK)
        )
        combined = _cond(
            uses_stock,
            lambda: self._stock(self._sources),
            lambda: self._fused(self._sources),
            self._monitor.check.describe(),
        )
        is_checked = tf.logical_and(self._step > 0, tf.logical_not(uses_stock))

        @tf.custom_gradient
        def with_checked_gradient(output: tf.Tensor) -> Any:
            def grad(output_grad: Any) -> tf.Tensor:
                output_grad = tf.convert_to_tensor(output_grad)
                done = _cond(
                    is_checked,
                    lambda: self._compare_gradients(output_grad),
                    lambda: tf.constant(False),
                )
                with tf.control_dependencies([done]):
                    return tf.identity(output_grad)

            return tf.identity(output), grad

        return with_checked_gradient(combined)

    def _compare_outputs(self) -> tf.Tensor:
        results, seconds = _side_by_side(
            lambda: [self._fused(self._sources)], lambda: [self._stock(self._sources)]
        )
        return self._record(self._monitor.record_outputs, results, seconds)

    def _compare_gradients(self, output_grad: tf.Tensor) -> tf.Tensor:
        results, seconds = _side_by_side(
            lambda: _slices(self._fused, self._sources, output_grad),
            lambda: _slices(self._stock, self._sources, output_grad),
        )
        # For each shard, the rows of the three results for the same ids.
        shards = [_aligned(of_shard) for of_shard in zip(*map(_pairs, results), strict=True)]
        rows = [list(of_lookup) for of_lookup in zip(*shards, strict=True)]
        return self._record(self._monitor.record_gradients, rows, seconds)

    def _record(self, record: Any, results: list[list[tf.Tensor]], seconds: tf.Tensor) -> tf.Tensor:
        fused, stock, again = [[tf.cast(t, tf.float64) for t in tensors] for tensors in results]
        finite = [tf.where(tf.math.is_finite(s), s, tf.zeros_like(s)) for s in stock]
        measured = [
            self._step,
            _difference(fused, stock),
            _difference(fused, again),
            _difference(finite, [tf.zeros_like(s) for s in finite]),
            seconds,
        ]
        return _call(record, measured, tf.bool)


def _call(function: Callable[..., Any], inputs: list[tf.Tensor], dtype: tf.DType) -> tf.Tensor:
    """A scalar that Python computes in each run of the graph; without Python it would be zero."""
    with noted("", CHECK):
        result = tf.numpy_function(function, inputs, dtype)
    result.set_shape([])
    return result


def _side_by_side(fused: Callable[[], Any], stock: Callable[[], Any]) -> tuple[Any, tf.Tensor]:
    """Runs fused, stock and fused again; returns the results and the times of the last two.

    The first run loads the rows into the CPU's cache and allocates memory for the other two.
    """
    first, _, end = _timed(fused, [])
    of_stock, stock_seconds, end = _timed(stock, [end])
    again, fused_seconds, _ = _timed(fused, [end])
    return [first, of_stock, again], tf.stack([fused_seconds, stock_seconds])


def _timed(run: Callable[[], list[tf.Tensor]], after: list[tf.Tensor]) -> Any:
    with tf.control_dependencies(after):
        begin = tf.timestamp()
    with tf.control_dependencies([begin]):
        results = run()
    with tf.control_dependencies(results):
        end = tf.timestamp()
    return results, end - begin, end


def _slices(lookup: Lookup, sources: list[Any], output_grad: tf.Tensor) -> list[tf.Tensor]:
    """The ids and rows of each shard's gradient, as a flat list."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        # A tape can only watch the captured copy of an outer graph's tensor.
        tables = [
            tf.identity(s) if tf.is_tensor(s) and not hasattr(s, "handle") else s for s in sources
        ]
        tape.watch(tables)
        combined = lookup(tables)
    flat = []
    for grad in tape.gradient(combined, tables, output_gradients=output_grad):
        if not isinstance(grad, tf.IndexedSlices):
            grad = tf.IndexedSlices(grad, tf.range(tf.shape(grad, out_type=tf.int64)[0]))
        flat += [tf.cast(grad.indices, tf.int64), grad.values]
    return flat


def _pairs(flat: list[tf.Tensor]) -> list[tuple[tf.Tensor, tf.Tensor]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _aligned(slices: Any) -> list[tf.Tensor]:
    """Sums the rows of several gradients of a table, for the same ids in the same order."""
    unique_ids, positions = tf.unique(tf.concat([ids for ids, _ in slices], axis=0))
    num_ids = [tf.size(ids) for ids, _ in slices]
    return [
        tf.math.unsorted_segment_sum(tf.cast(rows, tf.float64), of_one, tf.size(unique_ids))
        for (_, rows), of_one in zip(slices, tf.split(positions, num_ids), strict=True)
    ]


def _difference(got: list[tf.Tensor], want: list[tf.Tensor]) -> tf.Tensor:
    """Largest absolute difference; infinite if only one of two values is NaN."""
    largest = [tf.zeros([1], tf.float64)]
    for g, w in zip(got, want, strict=True):
        is_same = (g == w) | (tf.math.is_nan(g) & tf.math.is_nan(w))
        distance = tf.where(is_same, tf.zeros_like(g), tf.abs(g - w))
        infinite = tf.fill(tf.shape(distance), tf.constant(float("inf"), tf.float64))
        distance = tf.where(tf.math.is_nan(distance), infinite, distance)
        largest.append(tf.reshape(distance, [-1]))
    return tf.reduce_max(tf.concat(largest, axis=0))
