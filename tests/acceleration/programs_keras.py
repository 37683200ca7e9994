"""Programs after TensorFlow's documents, of Keras and of TF2. They know nothing of fused_embedding.

Each gets the Keras that it is for, trains 50 steps and returns what a user would see.
"""

import numpy as np
import tensorflow as tf

fc = tf.feature_column
NUM_STEPS, BATCH = 50, 8
WORDS = ["ash", "birch", "elm", "oak", "yew"]
INDICES = np.array([[0, 0], [0, 1], [1, 0], [3, 0], [3, 1], [4, 0], [6, 0], [7, 1]], np.int64)


def random(keras, seed):
    """An initializer."""
    return keras.initializers.RandomUniform(-0.5, 0.5, seed=seed)


def data(seed=1, num=NUM_STEPS):
    """Columns of raw features and labels. Ids repeat in a batch, and some come rarely."""
    rng = np.random.default_rng(seed)
    rows = num * BATCH
    rare = np.arange(rows) % 90 > 85
    words = np.array([*WORDS, "fig"])[
        np.where(rare, rng.integers(3, 6, rows), rng.integers(0, 3, rows))
    ]
    features = {
        "word": words,
        "item": np.where(rare, rng.integers(4, 12, rows), rng.integers(0, 4, rows)),
        "age": rng.uniform(0, 80, rows).astype(np.float32),
    }
    return features, rng.integers(0, 2, (rows, 1)).astype(np.float32)


def columns(keras):
    """Feature columns of raw strings, integers and numbers."""
    word = fc.categorical_column_with_vocabulary_list("word", WORDS, num_oov_buckets=2)
    age = fc.bucketized_column(fc.numeric_column("age"), [20.0, 40.0, 60.0])
    made = [
        word,
        fc.categorical_column_with_identity("item", 12),
        fc.crossed_column(["word", age], 20),
        age,
    ]
    embeddings = [
        fc.embedding_column(column, 4, initializer=random(keras, i))
        for i, column in enumerate(made)
    ]
    return [*embeddings, fc.indicator_column(word), fc.numeric_column("age", normalizer_fn=_scaled)]


def _scaled(x):
    return x / 80


def _dense(keras, units, activation=None):
    return keras.layers.Dense(units, activation, kernel_initializer=random(keras, 7))


def _inputs(keras):
    return {
        key: keras.Input(
            [1], name=key, dtype=tf.as_dtype(value.dtype) if value.dtype.kind != "U" else "string"
        )
        for key, value in data()[0].items()
    }


def _fit(keras, model, optimizer, folder):
    features, labels = data()
    features = {key: value[:, None] for key, value in features.items()}
    features["word"] = tf.constant(features["word"])
    dataset = tf.data.Dataset.from_tensor_slices((features, labels)).batch(BATCH)
    losses = []
    note = keras.callbacks.LambdaCallback(on_batch_end=lambda _, logs: losses.append(logs["loss"]))
    model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    model.fit(dataset, verbose=0, callbacks=[note], shuffle=False)
    evaluation = model.evaluate(dataset, verbose=0)
    answers = model.predict(dataset.take(1), verbose=0)
    variables = {f"{i}: {w.name}": w.numpy() for i, w in enumerate(model.weights)}
    model.save_weights(f"{folder}/weights")
    tf.saved_model.save(model, f"{folder}/saved")
    return {
        "losses": losses,
        "evaluation": evaluation,
        "answers": answers,
        "variables": variables,
        "checkpoint": f"{folder}/weights",
        "export": f"{folder}/saved",
    }


def sequential(keras, folder, optimizer):
    """DenseFeatures in a Sequential model of Keras 2."""
    layers = [
        keras.layers.DenseFeatures(columns(keras)),
        _dense(keras, 6, "relu"),
        _dense(keras, 1),
    ]
    return _fit(keras, keras.Sequential(layers), optimizer(keras), folder)


def functional(keras, folder, optimizer):
    """DenseFeatures in a functional model of Keras 2."""
    inputs = _inputs(keras)
    x = keras.layers.DenseFeatures(columns(keras))(inputs)
    outputs = _dense(keras, 1)(_dense(keras, 6, "relu")(x))
    return _fit(keras, keras.Model(inputs, outputs), optimizer(keras), folder)


def sparse_batches():
    """Item ids as SparseTensors, weights, dense ids and labels."""
    rng = np.random.default_rng(4)
    for i in range(NUM_STEPS):
        items = rng.integers(0, 12 if i % 10 == 7 else 4, len(INDICES))
        yield {
            "item": tf.SparseTensor(INDICES, items, [BATCH, 2]),
            "weight": tf.SparseTensor(
                INDICES, rng.choice([0.5, 1.0, 2.0], len(INDICES)).astype(np.float32), [BATCH, 2]
            ),
            "age": tf.constant(rng.uniform(0, 1, (BATCH, 1)), tf.float32),
            "label": tf.constant(rng.integers(0, 2, (BATCH, 1)), tf.float32),
        }


def bag_of(keras):
    """A layer that calls tf.nn, as guides to migration have it."""

    class Bag(keras.layers.Layer):
        def __init__(self, dim, combiner="mean"):
            super().__init__()
            self.dim, self.combiner = dim, combiner

        def build(self, _):
            self.table = self.add_weight(
                name="table", shape=[12, self.dim], initializer=random(keras, self.dim)
            )

        def call(self, flat):
            """Of ids whose padding is -1."""
            present = tf.where(flat >= 0)
            ids = tf.SparseTensor(present, tf.gather_nd(flat, present), tf.shape(flat, tf.int64))
            table = (
                getattr(self.table, "value", self.table)
                if hasattr(keras, "Variable")
                else self.table
            )
            return tf.nn.safe_embedding_lookup_sparse(table, ids, combiner=self.combiner)

        def compute_output_shape(self, shape):
            return (shape[0], self.dim)

    return Bag


def _bag_data():
    rng = np.random.default_rng(6)
    rows = NUM_STEPS * BATCH
    items = rng.integers(0, 4, (rows, 3))
    items[np.arange(rows) % 90 > 85] += 6
    items[rng.random((rows, 3)) < 0.4] = -1
    return items.astype(np.int64), rng.integers(0, 2, (rows, 1)).astype(np.float32)


def _fit_bags(keras, model, folder):
    items, labels = _bag_data()
    losses = []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda _, logs: losses.append(float(logs["loss"]))
    )
    model.compile(
        keras.optimizers.Adagrad(0.1),
        keras.losses.BinaryCrossentropy(from_logits=True),
        jit_compile=False,
    )
    model.fit(items, labels, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[note])
    evaluation = model.evaluate(items, labels, batch_size=BATCH, verbose=0)
    answers = model.predict(items[:BATCH], verbose=0)
    variables = {f"{i}: {v.name}": v.numpy() for i, v in enumerate(model.weights)}
    found = {"losses": losses, "evaluation": evaluation, "answers": answers}
    model.save_weights(f"{folder}/model.weights.h5")
    specs = [tf.TensorSpec([None, items.shape[1]], tf.int64)]
    model.export(f"{folder}/saved", verbose=False, input_signature=specs)
    return found | {"variables": variables, "export": f"{folder}/saved"}


def functional_bags(keras, folder):
    """A functional model of Keras 3."""
    inputs = keras.Input([3], dtype="int64")
    bag = bag_of(keras)
    x = keras.layers.Concatenate()([bag(4)(inputs), bag(3, "sqrtn")(inputs)])
    return _fit_bags(keras, keras.Model(inputs, _dense(keras, 1)(x)), folder)


def subclassed_bags(keras, folder):
    """A subclassed model of Keras 3."""
    bag = bag_of(keras)

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.bags = [bag(4), bag(3, "sum")]
            self.top = _dense(keras, 1)

        def call(self, items):
            return self.top(tf.concat([b(items) for b in self.bags], 1))

    return _fit_bags(keras, Model(), folder)


class Module(tf.Module):
    """Two tables and a dense layer."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(2)
        self.table = tf.Variable(rng.uniform(-1, 1, (12, 4)).astype(np.float32), name="table")
        self.kernel = tf.Variable(rng.uniform(-1, 1, (8, 1)).astype(np.float32), name="kernel")

    def __call__(self, item, weight):
        """Logits."""
        look_up = tf.nn.safe_embedding_lookup_sparse
        rows = [look_up(self.table, item, weight), look_up(self.table, item, combiner="sum")]
        return tf.concat(rows, 1) @ self.kernel

    @tf.function(
        input_signature=[tf.TensorSpec([None, 2], tf.int64), tf.TensorSpec([None], tf.int64)]
    )
    def serve(self, indices, values):
        """Answers of a batch of eight rows."""
        item = tf.SparseTensor(indices, values, [BATCH, 2])
        weight = tf.SparseTensor(indices, tf.ones_like(values, tf.float32), [BATCH, 2])
        return {"answers": tf.sigmoid(self(item, weight))}


def custom_loop(optimizer, folder):
    """A loop of tf.function and GradientTape, a checkpoint restored on the way, a SavedModel."""
    losses = []
    for first, last in ((0, NUM_STEPS // 2), (NUM_STEPS // 2, NUM_STEPS)):
        module, update = Module(), optimizer()
        checkpoint = tf.train.Checkpoint(module=module, optimizer=update)
        manager = tf.train.CheckpointManager(checkpoint, folder, 1)
        checkpoint.restore(manager.latest_checkpoint)

        @tf.function
        def step(batch, module=module, update=update):
            with tf.GradientTape() as tape:
                logits = module(batch["item"], batch["weight"])
                loss = tf.reduce_mean(
                    tf.nn.sigmoid_cross_entropy_with_logits(batch["label"], logits)
                )
            variables = module.trainable_variables
            gradients = tape.gradient(loss, variables)
            update.apply_gradients(zip(gradients, variables, strict=True))
            return loss

        losses += [step(batch).numpy() for batch in list(sparse_batches())[first:last]]
        prefix = manager.save()
    tf.saved_model.save(module, f"{folder}/saved", signatures=module.serve)
    answers = module.serve(INDICES, tf.range(8, dtype=tf.int64))["answers"].numpy()
    variables = {v.name: v.numpy() for v in module.trainable_variables}
    return {
        "losses": losses,
        "answers": answers,
        "variables": variables,
        "checkpoint": prefix,
        "export": f"{folder}/saved",
    }
