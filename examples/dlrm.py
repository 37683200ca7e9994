"""A DLRM on the tables of fe.one_embedding, trained on Criteo rows.

python examples/dlrm.py train.tsv.gz [--steps 100]
"""

import argparse
import itertools
from collections.abc import Sequence

import tensorflow as tf

import fused_embedding as fe
from fused_embedding.demo import criteo
from fused_embedding.demo.reader import Reader

one = fe.one_embedding
NUM_FIELDS = len(criteo.CARDINALITIES)


class Mlp(tf.Module):
    """Dense layers with ReLU between them."""

    def __init__(self, sizes: Sequence[int]) -> None:
        """Makes weights from `sizes[0]` inputs to `sizes[-1]` outputs."""
        super().__init__()
        start = tf.keras.initializers.GlorotUniform(seed=1)
        pairs = list(itertools.pairwise(sizes))
        self.kernels = [tf.Variable(start(pair)) for pair in pairs]
        self.biases = [tf.Variable(tf.zeros([size])) for _, size in pairs]

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """`[batch, sizes[0]]` -> `[batch, sizes[-1]]`."""
        for i, (kernel, bias) in enumerate(zip(self.kernels, self.biases, strict=True)):
            x = x @ kernel + bias
            x = tf.nn.relu(x) if i + 1 < len(self.kernels) else x
        return x


class Dlrm(tf.Module):
    """Dot products of all pairs of 26 embeddings and the bottom's output, and a top."""

    def __init__(self, dim: int, store: str) -> None:
        """Makes a model whose vectors have `dim` numbers."""
        super().__init__()
        tables = [
            one.make_table_options(one.make_uniform_initializer(low=-(n**-0.5), high=n**-0.5))
            for n in criteo.CARDINALITIES
        ]
        store_options = one.make_cached_host_mem_store_options(
            cache_budget_mb=1024, persistent_path=store, capacity=40_000_000, size_factor=2
        )
        self.embedding = one.MultiTableEmbedding(
            "sparse", dim, tf.float32, tf.int64, tables, store_options
        )
        self.bottom = Mlp([criteo.NUM_INTEGERS, 64, dim])
        self.top = Mlp([dim + (NUM_FIELDS + 1) * NUM_FIELDS // 2, 64, 1])

    def __call__(self, integers: tf.Tensor, categoricals: tf.Tensor) -> tf.Tensor:
        """Logits `[batch]` of `[batch, 13]` numbers and `[batch, 26]` ids."""
        dense = self.bottom(integers)
        vectors = tf.concat([dense[:, None], self.embedding(categoricals)], axis=1)
        products = tf.matmul(vectors, vectors, transpose_b=True)
        below = tf.linalg.band_part(tf.ones([NUM_FIELDS + 1] * 2), -1, 0) - tf.eye(NUM_FIELDS + 1)
        pairs = tf.boolean_mask(products, below > 0, axis=1)
        return self.top(tf.concat([dense, pairs], axis=1))[:, 0]


def train(rows: criteo.Rows, steps: int, store: str, batch_size: int = 256) -> list[float]:
    """Trains a model and leaves the snapshot "trained" in `store`; the loss of each step."""
    model = Dlrm(dim=16, store=store)
    optimizer = fe.train.AdagradOptimizer(0.05)
    variables = [*model.bottom.variables, *model.top.variables, *model.embedding.parameters()]

    @tf.function
    def step(labels: tf.Tensor, integers: tf.Tensor, categoricals: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = model(integers, categoricals)
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))
        return loss

    reader = Reader(rows, batch_size, seed=1)
    losses = [float(step(*map(tf.constant, next(reader)))) for _ in range(steps)]
    model.embedding.save_snapshot("trained")
    return losses


def main() -> None:
    """Trains on the rows of a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="labelled Criteo rows, plain or gzip")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--store", default="dlrm_store", help="folder for the snapshot")
    arguments = parser.parse_args()
    rows = criteo.read_rows(arguments.data, max_rows=1_000_000, max_bad_lines=100)
    losses = train(rows, arguments.steps, arguments.store)
    for first in range(0, len(losses), 10):
        part = losses[first : first + 10]
        print(f"steps {first} to {first + len(part) - 1}: loss {sum(part) / len(part):.4f}")


if __name__ == "__main__":
    main()
