"""A training loop of one's own in TF2."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.harness.workloads import zipf_ids
from benchmarks.programs.setting import Batch, Outcome, Setting, Size, each

NUM_LOOKUPS = 2  # of a table


def batches(size: Size, num: int, seed: int = 4) -> list[Batch]:
    """Ids and weights at the indices of the size, labels."""
    nnz = len(size.indices())

    def make(rng: np.random.Generator) -> Batch:
        batch: Batch = {"label": rng.integers(0, 2, (size.batch, 1)).astype(np.float32)}
        for i in size.copies(NUM_LOOKUPS):
            batch[f"item{i}"] = zipf_ids(rng, size.rows, nnz)
            batch[f"weight{i}"] = rng.choice([0.5, 1.0, 2.0], nnz).astype(np.float32)
        return batch

    return list(each(num, seed, make))


class Module(tf.Module):
    """Tables that two lookups read each, and a dense layer."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self._size, rng = size, np.random.default_rng(2)
        num_tables = len(size.copies(NUM_LOOKUPS))

        def variable(name: str, *shape: int) -> tf.Variable:
            return tf.Variable(rng.uniform(-1, 1, shape).astype(np.float32), name=name)

        self.tables = [variable(f"table{i}", size.rows, size.dim) for i in range(num_tables)]
        self.kernel = variable("kernel", NUM_LOOKUPS * num_tables * size.dim, 1)

    def __call__(self, batch: dict[str, Any]) -> Any:
        """Logits."""
        indices, shape = tf.constant(self._size.indices()), [self._size.batch, 2]
        look_up, rows = tf.nn.safe_embedding_lookup_sparse, []
        for i, table in enumerate(self.tables):
            item = tf.SparseTensor(indices, batch[f"item{i}"], shape)
            weight = tf.SparseTensor(indices, batch[f"weight{i}"], shape)
            rows += [look_up(table, item, weight), look_up(table, item, combiner="sum")]
        return tf.concat(rows, 1) @ self.kernel

    @tf.function
    def serve(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Answers of a batch."""
        return {"answers": tf.sigmoid(self(batch))}


def custom_loop(setting: Setting, optimizer: Callable[[], Any]) -> Outcome:
    """A loop of tf.function and GradientTape, a checkpoint restored on the way, a SavedModel."""
    losses: list[Any] = []
    half = setting.num_steps // 2
    for num_steps in (half, setting.num_steps - half):
        module, update = Module(setting.size), optimizer()
        checkpoint = tf.train.Checkpoint(module=module, optimizer=update)
        manager = tf.train.CheckpointManager(checkpoint, setting.folder, 1)
        checkpoint.restore(manager.latest_checkpoint)

        @tf.function
        def step(batch: dict[str, Any], module: Any = module, update: Any = update) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(
                    tf.nn.sigmoid_cross_entropy_with_logits(batch["label"], module(batch))
                )
            variables = module.trainable_variables
            gradients = tape.gradient(loss, variables)
            update.apply_gradients(zip(gradients, variables, strict=True))
            return loss

        def run(batch: Batch, step: Callable[..., Any] = step) -> Any:
            return step(_tensors(batch)).numpy()

        losses += dataclasses.replace(setting, num_steps=num_steps).losses_of(run)
        prefix = manager.save()
    served = _tensors(setting.batches[0])
    specs = {key: tf.TensorSpec(x.shape, x.dtype, key) for key, x in served.items()}
    signature = module.serve.get_concrete_function(specs)
    tf.saved_model.save(module, f"{setting.folder}/saved", signatures=signature)
    return {
        "losses": losses,
        "answers": module.serve(served)["answers"].numpy(),
        "variables": {v.name: v.numpy() for v in module.trainable_variables},
        "checkpoint": prefix,
        "export": f"{setting.folder}/saved",
    }


def _tensors(batch: Batch) -> dict[str, Any]:
    return {key: tf.constant(value) for key, value in batch.items()}
