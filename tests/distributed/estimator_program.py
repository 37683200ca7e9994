"""A task of an Estimator's cluster, which TF_CONFIG describes: `estimator_program.py FOLDER STEPS`.

From distributed.test_estimator_cluster. The evaluator writes FOLDER/evaluated.json.
"""

import json
import os
import sys
from typing import Any

import numpy as np
import tensorflow as tf

import fused_embedding as fe

tf1 = tf.compat.v1
NUM_IDS, DIM, ROWS = 40, 4, 64


def examples() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Ids of three columns, and labels that they decide."""
    rng = np.random.default_rng(0)
    features = {name: rng.integers(0, NUM_IDS, ROWS) for name in ("users", "items", "shops")}
    return features, (features["users"] % 2).astype(np.float32)[:, None]


def input_fn() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(examples()).repeat().batch(ROWS // 2)


def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """Columns over EmbeddingVariables and an ordinary table, in parts on the servers."""
    identity = tf.feature_column.categorical_column_with_identity
    columns = [
        fe.feature_column.embedding_column(
            fe.feature_column.categorical_column_with_embedding("users", dtype=tf.int64),
            DIM,
            do_fusion=True,
        ),
        fe.feature_column.embedding_column(
            fe.feature_column.categorical_column_with_embedding("items", dtype=tf.int64),
            DIM,
            do_fusion=True,
        ),
        fe.feature_column.embedding_column(identity("shops", NUM_IDS), DIM, do_fusion=True),
    ]
    partitioner = tf1.fixed_size_partitioner(2)
    with tf1.variable_scope("model", partitioner=partitioner):
        embedded = fe.feature_column.input_layer(features, columns)
    logits = tf1.layers.dense(embedded, 1)
    loss = tf1.losses.sigmoid_cross_entropy(labels, logits)
    spec = tf.estimator.EstimatorSpec
    if mode == tf.estimator.ModeKeys.EVAL:
        return spec(mode, loss=loss)
    op_types = [op.type for op in tf1.get_default_graph().get_operations()]
    rows = [op_type for op_type in op_types if op_type.endswith("RemoteRows")]
    with open(os.path.join(params["folder"], f"ops-{os.getpid()}.json"), "w") as file:
        json.dump(rows, file)
    step = tf1.train.get_or_create_global_step()
    train = fe.train.AdagradOptimizer(0.5).minimize(loss, step)
    return spec(mode, loss=loss, train_op=train)


class _Results(tf.estimator.Exporter):
    """Keeps what the evaluator finds."""

    name = "results"

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: dict[str, Any],
        is_the_final_export: bool,
    ) -> None:
        folder = os.path.dirname(estimator.model_dir)
        with open(os.path.join(folder, "evaluated.json"), "w") as file:
            json.dump({name: float(value) for name, value in eval_result.items()}, file)


def main(folder: str, num_steps: int) -> None:
    config = tf.estimator.RunConfig(
        os.path.join(folder, "model"),
        save_checkpoints_steps=20,
        tf_random_seed=1,
        experimental_max_worker_delay_secs=0,
    )
    estimator = tf.estimator.Estimator(model_fn, config=config, params={"folder": folder})
    evaluation = tf.estimator.EvalSpec(
        input_fn, steps=2, exporters=[_Results()], start_delay_secs=0, throttle_secs=0
    )
    training = tf.estimator.TrainSpec(input_fn, max_steps=num_steps)
    tf.estimator.train_and_evaluate(estimator, training, evaluation)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
