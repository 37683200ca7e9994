"""Models whose files later versions must load: graphs of all lookups, a tf.Module, Keras models.

The writer runs this file with the package of any commit since 6743d72: public names only.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

import fused_embedding as fe

v1 = tf.compat.v1
DIM = 3
NUM_IDS = 12
# Rows with an id that is invalid, repeated or missing.
IDS = np.array([[1, 5, -1], [-1, -1, -1], [7, 7, 2], [11, 0, 3]], np.int64)
LARGE_KEYS = IDS * np.where(IDS > 0, 10**11 + 1, 1)
WEIGHTS = np.linspace(0.5, 2.0, IDS.size).astype(np.float32).reshape(IDS.shape)
NUM_STEPS = 2  # before a save, and again after it


# --- Graphs of sessions: inputs "ids" and "weights", outputs "rows" and "loss", op "train" ---


class Graph(NamedTuple):
    """One kind of graph.

    Attributes:
        version: Fused lookup, or "group".
        table: "variable", "reference" variable or "embedding" variable.
        num_shards: Of each table.
        optimizer: Makes what trains.
        is_streamed: Whether fe.train.Saver saves it.
    """

    version: str
    table: str
    num_shards: int
    optimizer: object
    is_streamed: bool = False


GRAPHS = {
    "v1": Graph("v1", "variable", 2, lambda: v1.train.AdagradOptimizer(0.5)),
    "v2": Graph("v2", "variable", 2, lambda: fe.train.MomentumOptimizer(0.5, 0.9)),
    "v3": Graph("v3", "variable", 1, lambda: fe.train.AdagradOptimizer(0.5)),
    "group": Graph("group", "variable", 1, lambda: v1.train.AdamOptimizer(0.1)),
    "reference_v2": Graph("v2", "reference", 1, lambda: fe.train.AdagradOptimizer(0.5)),
    "reference_group": Graph("group", "reference", 1, lambda: fe.train.AdamOptimizer(0.1)),
    "table_v1": Graph("v1", "embedding", 1, lambda: v1.train.AdagradOptimizer(0.5)),
    "table_v2": Graph("v2", "embedding", 2, lambda: v1.train.AdamOptimizer(0.1)),
    "table_v3": Graph("v3", "embedding", 1, lambda: fe.train.AdamAsyncOptimizer(0.1)),
    "table_group": Graph("group", "embedding", 1, lambda: v1.train.FtrlOptimizer(0.5)),
    "streamed": Graph("v2", "embedding", 2, lambda: v1.train.AdagradOptimizer(0.5), True),
}


def build(kind):
    """Puts a graph of a kind into the current one; its Saver."""
    ids = v1.placeholder(tf.int64, [None, IDS.shape[1]], name="ids")
    weights = v1.placeholder(tf.float32, [None, IDS.shape[1]], name="weights")
    present = tf.where(ids >= 0)
    sparse, sparse_weights = (
        tf.SparseTensor(present, tf.gather_nd(values, present), tf.shape(ids, tf.int64))
        for values in (ids, weights)
    )
    tables = [_table(kind, name) for name in ("users", "items")]
    rows = _lookups(kind.version, tables, sparse, sparse_weights)
    kernel = v1.get_variable("kernel", [2 * DIM, 1], initializer=v1.ones_initializer())
    rows = tf.identity(tf.concat(rows, axis=1), name="rows")
    loss = tf.reduce_mean((tf.matmul(rows, kernel) - 1.0) ** 2, name="loss")
    step = v1.train.get_or_create_global_step()
    kind.optimizer().minimize(loss, step, name="train")
    if kind.is_streamed:
        return fe.train.Saver(incremental=True, max_to_keep=1)
    return v1.train.Saver()


def _table(kind, name):
    partitioner = v1.fixed_size_partitioner(kind.num_shards) if kind.num_shards > 1 else None
    if kind.table == "embedding":
        option = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(2))
        return fe.get_embedding_variable(name, DIM, partitioner=partitioner, ev_option=option)
    return v1.get_variable(
        name,
        [NUM_IDS, DIM],
        initializer=v1.random_uniform_initializer(-1, 1, seed=3),
        partitioner=partitioner,
        use_resource=kind.table == "variable",
    )


def _lookups(version, tables, ids, weights):
    if version == "group":
        return fe.nn.group_embedding_lookup_sparse(
            tables, [ids, ids], ["sum", "mean"], sp_weights=[weights, None]
        )
    return [
        fe.nn.fused_safe_embedding_lookup_sparse(
            table, ids, weights, combiner=combiner, fusion_version=version, max_norm=0.9
        )
        for table, combiner in zip(tables, ("sum", "mean"), strict=True)
    ]


def run(session, fetch):
    """Runs something of a graph by name, on the batch."""
    return session.run(fetch, {"ids:0": IDS, "weights:0": WEIGHTS})


def follow(session):
    """What the next steps compute: `rows` and `loss` of each."""
    computed = {"rows": [], "loss": []}
    for _ in range(NUM_STEPS):
        for name, values in computed.items():
            values.append(run(session, f"{name}:0"))
        run(session, "train")
    return {name: np.stack(values) for name, values in computed.items()}


# --- A model of TensorFlow 2 ---


class Model(tf.Module):
    """Two tables of one dim, one of them in partitions, and a matrix."""

    def __init__(self, **storage):
        super().__init__()
        filtered = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(2), **storage)
        uniform = tf.keras.initializers.RandomUniform(-1.0, 1.0)
        self.users = fe.get_embedding_variable("users", DIM, ev_option=filtered)
        self.items = fe.get_embedding_variable(
            "items",
            DIM,
            initializer=uniform,
            partitioner=v1.fixed_size_partitioner(2),
            ev_option=fe.EmbeddingVariableOption(**storage),
        )
        self.kernel = tf.Variable(tf.ones([2 * DIM, 1]))

    @tf.function(input_signature=[tf.TensorSpec([None, IDS.shape[1]], tf.int64)])
    def serve(self, ids):
        return self.scores(ids)

    def scores(self, ids):
        """Rows, and what the matrix makes of them."""
        present = tf.where(ids >= 0)
        sparse = tf.SparseTensor(present, tf.gather_nd(ids, present), tf.shape(ids, tf.int64))
        tables = (self.users, self.items)
        rows = [fe.nn.safe_embedding_lookup_sparse(t, sparse, combiner="sum") for t in tables]
        rows = tf.concat(rows, axis=1)
        return {"rows": rows, "scores": tf.matmul(rows, self.kernel)}


class Training(tf.Module):
    """A Model and its optimizer: what checkpoints hold."""

    def __init__(self, **storage):
        super().__init__()
        self.model = Model(**storage)
        self.optimizer = v1.train.AdagradOptimizer(0.5)

    def step(self):
        """Trains on the batch."""
        parts = [self.model.users, *self.model.items, self.model.kernel]
        with tf.GradientTape() as tape:
            scores = self.model.scores(tf.constant(LARGE_KEYS))["scores"]
            loss = tf.reduce_mean((scores - 1.0) ** 2)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, parts), parts, strict=True))

    def scores(self):
        """What inference computes for the batch."""
        with fe.inference():
            computed = self.model.scores(tf.constant(LARGE_KEYS))
        return {name: value.numpy() for name, value in computed.items()}

    def follow(self):
        """What the next steps compute: `rows` and `scores` of each."""
        computed = []
        for _ in range(NUM_STEPS):
            computed.append(self.scores())
            self.step()
        return {name: np.stack([one[name] for one in computed]) for name in computed[0]}


# --- Keras ---

LABELS = np.linspace(0, 1, len(IDS)).astype(np.float32)[:, None]


def keras_model(keras):
    """A table and ordinary weights under a dense layer, for keras or tf_keras."""
    bag = fe.keras.fused_layers(keras).EmbeddingBag
    ids = keras.Input((IDS.shape[1],), dtype="int64", name="ids")
    tables = [
        bag(output_dim=DIM, combiner="sum", name="table")(ids),
        bag(NUM_IDS, DIM, combiner="mean", name="rows")(ids),
    ]
    hidden = keras.layers.concatenate(tables)
    dense = keras.layers.Dense(1, kernel_initializer="ones", name="dense")
    model = keras.Model(ids, dense(hidden))
    model.compile(fe.keras.wrap(keras.optimizers.Adagrad(0.5)), "mse")
    return model


def keras_follow(model):
    """What the next steps predict."""
    predictions = []
    for _ in range(NUM_STEPS):
        predictions.append(np.asarray(model(IDS, training=False)))
        model.fit(IDS, LABELS, batch_size=len(IDS), shuffle=False, verbose=0)
    return {"scores": np.stack(predictions)}
