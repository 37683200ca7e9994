"""The kinds of tables that systems look up in, all with the same rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from benchmarks.harness import workloads

# The variables' scope: where input_layer looks for its own, so that all systems share them.
SCOPE = "benchmark"
_MAX_INITIAL = 0.05


class Tables(NamedTuple):
    """One table for each column, and how its rows are read and written.

    Attributes:
        tables: tables of one kind.
        fill: operations that put the rows there, to be run one after the other; empty eagerly, and
            for variables, whose initializers do.
        read: of a table and `[n]` ids, `[n, dim]` rows.
        write: of a table, `[n]` ids and `[n, dim]` rows, the operation that sets the rows.
    """

    tables: list[Any]
    fill: list[tf.Operation]
    read: Callable[[Any, Any], tf.Tensor]
    write: Callable[[Any, Any, Any], Any]


def _initial(workload: workloads.Workload, column: int) -> tf.Tensor:
    """Returns `[rows, dim]` of the workload's dtype, uniform in [-0.05, 0.05)."""
    shape = [workload.columns[column].rows, workload.columns[column].dim]
    limits = (-_MAX_INITIAL, _MAX_INITIAL)
    return tf.random.stateless_uniform(shape, [0, column], *limits, workload.dtype)


def _dense(workload: workloads.Workload) -> Tables:
    """Variables, resident as TensorFlow has them."""
    tables = []
    for column in range(workload.num_columns):
        name = f"{SCOPE}/input_layer/{column_name(column)}_embedding/embedding_weights"
        initial = lambda column=column: _initial(workload, column)  # noqa: E731
        if tf.executing_eagerly():
            tables.append(tf.Variable(initial(), name=name))
        else:
            tables.append(tf.compat.v1.get_variable(name, initializer=initial, use_resource=True))
    return Tables(
        tables,
        fill=[],
        read=lambda table, ids: table.sparse_read(ids),
        write=lambda table, ids, rows: table.scatter_update(tf.IndexedSlices(rows, ids)),
    )


def _embedding_variables(workload: workloads.Workload) -> Tables:
    """EmbeddingVariables that hold every id of the workload as a key."""
    import fused_embedding as fe  # stock alone can be measured where ours is not installed

    def read(table: Any, ids: Any) -> tf.Tensor:
        with fe.inference():
            return table.lookup(tf.convert_to_tensor(ids))

    def write(table: Any, ids: Any, rows: Any) -> Any:
        # An erased row loses its slots: the next system starts with fresh ones.
        with tf.control_dependencies([table.erase(tf.constant(ids))]):
            return table.upsert(tf.constant(ids), rows)

    tables, fill = [], []
    for column, of_table in enumerate(workload.columns):
        table = fe.get_embedding_variable(f"{SCOPE}/{column_name(column)}_keyed", of_table.dim)
        keys = tf.range(of_table.rows, dtype=tf.int64)
        fill.append(table.upsert(keys, _initial(workload, column)))
        tables.append(table)
    fill = [] if tf.executing_eagerly() else fill
    return Tables(tables, fill, read, write)


def _tfra(workload: workloads.Workload) -> Tables:
    """The dynamic variables of tensorflow-recommenders-addons, holding the same keys."""
    import tensorflow_recommenders_addons as addons

    tables, fill = [], []
    for column, of_table in enumerate(workload.columns):
        table = addons.dynamic_embedding.get_variable(
            f"{SCOPE}/{column_name(column)}_tfra",
            key_dtype=tf.int64,
            value_dtype=tf.float32,
            dim=of_table.dim,
            devices=["/CPU:0"],
            init_size=of_table.rows,
            initializer=tf.compat.v1.random_uniform_initializer(-_MAX_INITIAL, _MAX_INITIAL),
        )
        keys = tf.range(of_table.rows, dtype=tf.int64)
        fill.append(table.upsert(keys, _initial(workload, column)))
        tables.append(table)
    return Tables(
        tables,
        fill,
        read=lambda table, ids: table.lookup(tf.constant(ids)),
        write=lambda table, ids, rows: table.upsert(tf.constant(ids), rows),
    )


KINDS: dict[str, Callable[[workloads.Workload], Tables]] = {
    "dense": _dense,
    "embedding_variable": _embedding_variables,
    "tfra": _tfra,
}


def column_name(column: int) -> str:
    """Names feature columns so that input_layer's sorting keeps their order."""
    return f"f{column:03d}"
