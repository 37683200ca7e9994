"""Programs after TensorFlow's documents, of TF1. They know nothing of fused_embedding.

Each trains 50 steps in a folder and returns what a user would see. Initializers have a seed of
their own: TensorFlow derives others from the number of ops in a graph.
"""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
fc = tf.feature_column
NUM_STEPS, BATCH = 50, 8
WORDS = ["ash", "birch", "elm", "oak", "yew"]
INDICES = np.array([[0, 0], [0, 1], [1, 0], [3, 0], [3, 1], [4, 0], [6, 0], [7, 1]], np.int64)


def batches(num=NUM_STEPS, seed=1):
    """Raw features: strings and integers, dense and sparse. Ids repeat, and some come rarely."""
    rng = np.random.default_rng(seed)
    for i in range(num):
        words = np.array([*WORDS, "fig", ""])[rng.integers(0, 7 if i % 9 == 4 else 3, BATCH)]
        yield {
            "word": words[:, None],
            "tags": np.array(WORDS)[rng.integers(0, 5, len(INDICES))],
            "item": rng.integers(0, 12 if i % 10 == 7 else 4, len(INDICES)),
            "weight": rng.choice([0.5, 1.0, 2.0], len(INDICES)).astype(np.float32),
            "other": rng.integers(0, 12, (BATCH, 1)),
            "age": rng.uniform(0, 80, (BATCH, 1)).astype(np.float32),
            "label": rng.integers(0, 2, (BATCH, 1)).astype(np.float32),
        }


def random(seed):
    """An initializer."""
    return v1.random_uniform_initializer(-0.5, 0.5, seed=seed)


def categorical_columns():
    """One of each kind."""
    word = fc.categorical_column_with_vocabulary_list("word", WORDS, num_oov_buckets=2)
    item = fc.categorical_column_with_identity("item", 12)
    age = fc.bucketized_column(fc.numeric_column("age"), [20.0, 40.0, 60.0])
    return {
        "word": word,
        "tags": fc.categorical_column_with_hash_bucket("tags", 7),
        "weighted": fc.weighted_categorical_column(item, "weight"),
        "item": item,
        "age": age,
        "crossed": fc.crossed_column(["word", age], 20),
    }


def deep_columns():
    """Embedding, indicator and numeric columns."""
    columns = categorical_columns()
    names = ("word", "tags", "weighted", "age", "crossed")
    deep = [
        fc.embedding_column(columns[name], 4, initializer=random(i), combiner="sqrtn")
        for i, name in enumerate(names)
    ]
    # Ages as they are would let training amplify one rounding a thousand times.
    age = fc.numeric_column("age", normalizer_fn=lambda x: x / 80)
    return [*deep, fc.indicator_column(columns["word"]), age]


def wide_columns():
    """Categorical columns."""
    columns = categorical_columns()
    return [columns[name] for name in ("word", "tags", "age", "crossed")]


def shared_columns():
    """Two columns of one table."""
    keys = [fc.categorical_column_with_identity(key, 12) for key in ("item", "other")]
    return v1.feature_column.shared_embedding_columns(keys, 4, initializer=random(9))


def placeholders():
    """The features of a batch, fed as arrays, and the arrays' names."""
    fed = {
        key: v1.placeholder(
            tf.as_dtype(value.dtype) if value.dtype.kind != "U" else tf.string,
            [None, *value.shape[1:]],
        )
        for key, value in next(batches()).items()
    }
    return fed, as_features(fed)


def as_features(fed):
    """SparseTensors of what is sparse."""
    sparse = {
        key: tf.SparseTensor(tf.constant(INDICES), fed[key], [BATCH, 2])
        for key in ("tags", "item", "weight")
    }
    return {**fed, **sparse}


def dense(x, units, name, activation=None):
    """A dense layer."""
    with v1.variable_scope(name, partitioner=None):
        scope = v1.get_variable_scope()
        scope.set_partitioner(None)
        kernel = v1.get_variable("kernel", [x.shape[1], units], initializer=random(5))
        bias = v1.get_variable("bias", [units], initializer=v1.zeros_initializer())
    y = tf.matmul(x, kernel) + bias
    return y if activation is None else activation(y)


def loss_of(logits, labels):
    """The mean of the batch."""
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


def result(session, losses, **more):
    """What a user sees at the end."""
    variables = v1.global_variables()
    values = dict(zip([v.name for v in variables], session.run(variables), strict=True))
    return {"losses": losses, "variables": values, **more}


def feed(fed, batch):
    """A feed_dict."""
    return {fed[key]: value for key, value in batch.items()}


def wide_and_deep(folder):
    """input_layer and linear_model, an optimizer each, a Saver."""
    with tf.Graph().as_default(), v1.Session() as session:
        fed, features = placeholders()
        with v1.variable_scope("deep"):
            x = v1.feature_column.input_layer(features, [*deep_columns(), *shared_columns()])
            logits = dense(dense(x, 6, "hidden", tf.nn.relu), 1, "out")
        with v1.variable_scope("wide"):
            logits += v1.feature_column.linear_model(features, wide_columns())
        loss = loss_of(logits, fed["label"])
        deep, wide = (v1.get_collection("trainable_variables", s) for s in ("deep", "wide"))
        global_step = v1.train.get_or_create_global_step()
        train = tf.group(
            v1.train.AdagradOptimizer(0.1).minimize(loss, global_step, var_list=deep),
            v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01).minimize(
                loss, var_list=wide
            ),
        )
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        losses = [session.run([loss, train], feed(fed, batch))[0] for batch in batches()]
        prefix = v1.train.Saver().save(session, f"{folder}/model", write_meta_graph=False)
        return result(session, losses, checkpoint=prefix)


def partitioned(folder):
    """The same with variables in two partitions."""
    partitioner = v1.fixed_size_partitioner(2)
    with tf.Graph().as_default(), v1.Session() as session:
        fed, features = placeholders()
        with v1.variable_scope("model", partitioner=partitioner):
            x = v1.feature_column.input_layer(features, [*deep_columns(), *shared_columns()])
            wide = v1.feature_column.linear_model(features, wide_columns())
        loss = loss_of(dense(x, 1, "out") + wide, fed["label"])
        train = v1.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        losses = [session.run([loss, train], feed(fed, batch))[0] for batch in batches()]
        prefix = v1.train.Saver().save(session, f"{folder}/model", write_meta_graph=False)
        return result(session, losses, checkpoint=prefix)


def _dataset():
    def generate():
        for batch in batches():
            yield {
                key: value.astype("S") if value.dtype.kind == "U" else value
                for key, value in batch.items()
            }

    first = next(batches())
    types = {k: tf.string if v.dtype.kind == "U" else v.dtype for k, v in first.items()}
    return tf.data.Dataset.from_generator(generate, types, {k: v.shape for k, v in first.items()})


def monitored(folder):
    """A MonitoredTrainingSession over tf.data, which stops and goes on from its checkpoint."""
    losses = []
    for last_step in (NUM_STEPS // 2, NUM_STEPS):
        with tf.Graph().as_default():
            iterator = v1.data.make_initializable_iterator(_dataset())
            v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
            fed = iterator.get_next()
            x = v1.feature_column.input_layer(as_features(fed), deep_columns())
            loss = loss_of(dense(x, 1, "out"), fed["label"])
            global_step = v1.train.get_or_create_global_step()
            rate = v1.train.exponential_decay(0.1, global_step, 10, 0.9)
            train = v1.train.RMSPropOptimizer(rate, momentum=0.5).minimize(loss, global_step)
            hooks = [v1.train.StopAtStepHook(last_step=last_step)]
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=folder, hooks=hooks, log_step_count_steps=None
            ) as session:
                while not session.should_stop():
                    losses.append(session.run([loss, train])[0])
    prefix = tf.train.latest_checkpoint(folder)
    reader = tf.train.load_checkpoint(prefix)
    values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    return {"losses": losses, "variables": values, "checkpoint": prefix}


def layer_object(folder):
    """An InputLayer that training and evaluation call, tf.nn beside it."""
    from tensorflow.python.feature_column.feature_column import InputLayer

    with tf.Graph().as_default(), v1.Session() as session:
        fed, features = placeholders()
        layer = InputLayer(deep_columns())
        table = v1.get_variable("table", [12, 4], initializer=random(2))
        bias = v1.get_variable("rows", [12, 1], initializer=random(3))

        def model(features):
            rows = tf.nn.safe_embedding_lookup_sparse(table, features["item"], features["weight"])
            x = tf.concat([layer(features), rows], 1)
            x = dense(x, 1, "out")
            return x + tf.nn.embedding_lookup(bias, features["other"][:, 0])

        with v1.variable_scope("top"):
            loss = loss_of(model(features), fed["label"])
        with v1.variable_scope("top", reuse=True):
            evaluation = tf.sigmoid(model(features))
        optimizer = v1.train.GradientDescentOptimizer(0.2)
        gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
        clipped, norm = tf.clip_by_global_norm(gradients, 0.5)
        train = optimizer.apply_gradients(zip(clipped, variables, strict=True))
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        losses = [session.run([loss, norm, train], feed(fed, batch))[:2] for batch in batches()]
        [batch] = batches(1, seed=3)
        answers = session.run(evaluation, feed(fed, batch))
        prefix = v1.train.Saver().save(session, f"{folder}/model", write_meta_graph=False)
        return result(session, losses, checkpoint=prefix, answers=answers)


def served(folder):
    """A graph for serving, made anew from a checkpoint and exported, as TF1's documents do."""
    with tf.Graph().as_default(), v1.Session() as session:
        fed, features = placeholders()
        x = v1.feature_column.input_layer(features, deep_columns())
        answers = tf.sigmoid(dense(x, 1, "out"))
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        [batch] = batches(1, seed=3)
        inputs = {key: value for key, value in fed.items() if key != "label"}
        v1.saved_model.simple_save(
            session, folder, inputs, {"answers": answers}, v1.tables_initializer()
        )
        return {"export": folder, "answers": session.run(answers, feed(fed, batch))}
