"""What the programs of both Kerases share. Each gets the Keras that it is for."""

from typing import Any

import tensorflow as tf

from benchmarks.programs.setting import Outcome, Setting


def random(keras: Any, seed: int) -> Any:
    """An initializer."""
    return keras.initializers.RandomUniform(-0.5, 0.5, seed=seed)


def dense(keras: Any, units: int, activation: str | None = None) -> Any:
    """A dense layer."""
    return keras.layers.Dense(units, activation, kernel_initializer=random(keras, 7))


def mlp(keras: Any, x: Any, units: int) -> Any:
    """Logits, by one hidden layer."""
    return dense(keras, 1)(dense(keras, units, "relu")(x))


def fit(keras: Any, model: Any, optimizer: Any, setting: Setting) -> Outcome:
    """Compiles a model, trains, evaluates and predicts."""
    features = setting.stacked()
    labels = features.pop("label")
    dataset = tf.data.Dataset.from_tensor_slices((features, labels)).repeat()
    losses = []

    def note(_: int, logs: dict[str, Any]) -> None:
        losses.append(float(logs["loss"]))
        setting.after_step(losses[-1])

    # XLA, which Keras 3 may choose, has no kernels for sparse tensors.
    how = {"jit_compile": False} if hasattr(keras, "Variable") else {}
    model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True), **how)
    callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=note)]
    model.fit(dataset.take(setting.num_steps), verbose=0, callbacks=callbacks, shuffle=False)
    return {
        "losses": losses,
        "evaluation": model.evaluate(dataset.take(len(setting.batches)), verbose=0),
        "answers": model.predict(dataset.take(1), verbose=0),
        "variables": {f"{i}: {v.name}": v.numpy() for i, v in enumerate(model.weights)},
    }
