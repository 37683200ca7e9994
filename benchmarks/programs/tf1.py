"""Programs of TF1: sessions over graphs of feature columns."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.harness.workloads import zipf_ids
from benchmarks.programs.setting import Batch, Outcome, Setting, Size, each, zipf_words

v1 = tf.compat.v1
fc = tf.feature_column
KINDS = ("word", "tags", "weighted", "age", "crossed")
_SPARSE = ("tags", "item", "weight")


def batches(size: Size, num: int, seed: int = 1) -> list[Batch]:
    """Raw features: strings and integers, dense and sparse. Ids repeat, and some come rarely."""
    nnz = len(size.indices())

    def make(rng: np.random.Generator) -> Batch:
        batch: Batch = {"label": rng.integers(0, 2, (size.batch, 1)).astype(np.float32)}
        for i in size.copies(len(KINDS)):
            batch[f"word{i}"] = zipf_words(rng, size, size.batch)[:, None]
            batch[f"tags{i}"] = zipf_words(rng, size, nnz)
            batch[f"item{i}"] = zipf_ids(rng, size.rows, nnz)
            batch[f"weight{i}"] = rng.choice([0.5, 1.0, 2.0], nnz).astype(np.float32)
            batch[f"other{i}"] = zipf_ids(rng, size.rows, size.batch)[:, None]
            batch[f"age{i}"] = rng.uniform(0, 80, (size.batch, 1)).astype(np.float32)
        return batch

    return list(each(num, seed, make))


def random(seed: int) -> Any:
    """An initializer."""
    return v1.random_uniform_initializer(-0.5, 0.5, seed=seed)


def categorical_columns(size: Size, i: int) -> dict[str, Any]:
    """One of each kind."""
    word = fc.categorical_column_with_vocabulary_list(
        f"word{i}", size.vocabulary(), num_oov_buckets=2
    )
    item = fc.categorical_column_with_identity(f"item{i}", size.rows)
    age = fc.bucketized_column(fc.numeric_column(f"age{i}"), [20.0, 40.0, 60.0])
    return {
        "word": word,
        "tags": fc.categorical_column_with_hash_bucket(f"tags{i}", size.rows),
        "weighted": fc.weighted_categorical_column(item, f"weight{i}"),
        "age": age,
        "crossed": fc.crossed_column([f"word{i}", age], size.rows),
    }


def deep_columns(size: Size) -> list[Any]:
    """Embedding, indicator and numeric columns."""
    deep = []
    for i in size.copies(len(KINDS)):
        columns = categorical_columns(size, i)
        deep += [
            fc.embedding_column(
                columns[name], size.dim, initializer=random(10 * i + k), combiner="sqrtn"
            )
            for k, name in enumerate(KINDS)
        ]
        # Ages as they are would let training amplify one rounding a thousand times.
        age = fc.numeric_column(f"age{i}", normalizer_fn=lambda x: x / 80)
        deep += [fc.indicator_column(columns["age"]), age]
    return deep


def wide_columns(size: Size) -> list[Any]:
    """Categorical columns."""
    return [
        column
        for i in size.copies(len(KINDS))
        for name, column in categorical_columns(size, i).items()
        if name != "weighted"
    ]


def shared_columns(size: Size) -> list[Any]:
    """Of each two columns one table."""
    shared = []
    for i in size.copies(len(KINDS)):
        keys = [
            fc.categorical_column_with_identity(f"{k}{i}", size.rows) for k in ("item", "other")
        ]
        shared += v1.feature_column.shared_embedding_columns(
            keys, size.dim, initializer=random(10 * i + 9)
        )
    return shared


def placeholders(setting: Setting) -> tuple[dict[str, Any], dict[str, Any]]:
    """The features of a batch: fed as arrays, and as tensors."""
    fed = {
        key: v1.placeholder(tf.as_dtype(value.dtype), [None, *value.shape[1:]])
        for key, value in setting.batches[0].items()
    }
    return fed, as_features(fed, setting.size)


def as_features(fed: dict[str, Any], size: Size) -> dict[str, Any]:
    """SparseTensors of what is sparse."""
    indices = tf.constant(size.indices())
    sparse = {
        key: tf.SparseTensor(indices, value, [size.batch, 2])
        for key, value in fed.items()
        if key.startswith(_SPARSE)
    }
    return {**fed, **sparse}


def dense(x: Any, units: int, name: str, activation: Callable[..., Any] | None = None) -> Any:
    """A dense layer."""
    with v1.variable_scope(name, partitioner=None):
        scope = v1.get_variable_scope()
        scope.set_partitioner(None)
        kernel = v1.get_variable("kernel", [x.shape[1], units], initializer=random(5))
        bias = v1.get_variable("bias", [units], initializer=v1.zeros_initializer())
    y = tf.matmul(x, kernel) + bias
    return y if activation is None else activation(y)


def mlp(x: Any, size: Size) -> Any:
    """Logits, by one hidden layer."""
    return dense(dense(x, size.units, "hidden", tf.nn.relu), 1, "out")


def loss_of(logits: Any, labels: Any) -> Any:
    """The mean of the batch."""
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


def feed(fed: dict[str, Any], batch: Batch) -> dict[Any, np.ndarray]:
    """What a session feeds."""
    return {fed[key]: value for key, value in batch.items()}


def initialize(session: Any) -> None:
    """Runs the initializers of variables and vocabularies."""
    session.run([v1.global_variables_initializer(), v1.tables_initializer()])


def trained(setting: Setting, session: Any, fetches: Any, fed: dict[str, Any]) -> Outcome:
    """Trains in a session and saves a checkpoint; the first fetched is the loss."""
    initialize(session)
    losses = setting.losses_of(lambda batch: session.run(fetches, feed(fed, batch))[0])
    saver = v1.train.Saver()
    prefix = saver.save(session, f"{setting.folder}/model", write_meta_graph=False)
    variables = v1.global_variables()
    values = dict(zip([v.name for v in variables], session.run(variables), strict=True))
    return {"losses": losses, "variables": values, "checkpoint": prefix}


def wide_and_deep(setting: Setting) -> Outcome:
    """A linear model and a deep one, an optimizer each; batches are fed."""
    with tf.Graph().as_default(), v1.Session(config=setting.config) as session:
        fed, features = placeholders(setting)
        with v1.variable_scope("deep"):
            x = v1.feature_column.input_layer(features, deep_columns(setting.size))
            logits = mlp(x, setting.size)
        with v1.variable_scope("wide"):
            logits += v1.feature_column.linear_model(features, wide_columns(setting.size))
        loss = loss_of(logits, fed["label"])
        deep, wide = (v1.trainable_variables(scope) for scope in ("deep", "wide"))
        global_step = v1.train.get_or_create_global_step()
        train = tf.group(
            v1.train.AdagradOptimizer(0.1).minimize(loss, global_step, var_list=deep),
            v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01).minimize(
                loss, var_list=wide
            ),
        )
        return trained(setting, session, [loss, train], fed)


def partitioned(setting: Setting) -> Outcome:
    """The same with variables in two partitions, columns that share tables, one optimizer."""
    size, partitioner = setting.size, v1.fixed_size_partitioner(2)
    with tf.Graph().as_default(), v1.Session(config=setting.config) as session:
        fed, features = placeholders(setting)
        with v1.variable_scope("model", partitioner=partitioner):
            columns = [*deep_columns(size), *shared_columns(size)]
            x = v1.feature_column.input_layer(features, columns)
            wide = v1.feature_column.linear_model(features, wide_columns(size))
        loss = loss_of(mlp(x, size) + wide, fed["label"])
        train = v1.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
        return trained(setting, session, [loss, train], fed)


def dataset(setting: Setting) -> tf.data.Dataset:
    """The batches, for ever."""
    return tf.data.Dataset.from_tensor_slices(setting.stacked()).repeat()


def monitored(setting: Setting) -> Outcome:
    """A MonitoredTrainingSession over tf.data, which stops and goes on from its checkpoint."""
    losses = []
    for first_step, last_step in ((0, setting.num_steps // 2), (setting.num_steps // 2, None)):
        with tf.Graph().as_default():
            iterator = v1.data.make_initializable_iterator(dataset(setting).skip(first_step))
            v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
            fed = iterator.get_next()
            features = as_features(fed, setting.size)
            x = v1.feature_column.input_layer(features, deep_columns(setting.size))
            loss = loss_of(mlp(x, setting.size), fed["label"])
            global_step = v1.train.get_or_create_global_step()
            rate = v1.train.exponential_decay(0.1, global_step, 10, 0.9)
            train = v1.train.RMSPropOptimizer(rate, momentum=0.5).minimize(loss, global_step)
            hooks = [v1.train.StopAtStepHook(last_step=last_step or setting.num_steps)]
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=setting.folder,
                hooks=hooks,
                log_step_count_steps=None,
                config=setting.config,
            ) as session:
                while not session.should_stop():
                    losses.append(session.run([loss, train])[0])
                    setting.after_step(losses[-1])
    prefix = tf.train.latest_checkpoint(setting.folder)
    reader = tf.train.load_checkpoint(prefix)
    values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    return {"losses": losses, "variables": values, "checkpoint": prefix}


def layer_object(setting: Setting) -> Outcome:
    """An InputLayer that training and evaluation call, tf.nn beside it; gradients are clipped."""
    from tensorflow.python.feature_column.feature_column import InputLayer

    size = setting.size
    with tf.Graph().as_default(), v1.Session(config=setting.config) as session:
        fed, features = placeholders(setting)
        layer = InputLayer(deep_columns(size))
        table = v1.get_variable("table", [size.rows, size.dim], initializer=random(2))
        bias = v1.get_variable("rows", [size.rows, 1], initializer=random(3))

        def model(features: dict[str, Any]) -> Any:
            rows = tf.nn.safe_embedding_lookup_sparse(table, features["item0"], features["weight0"])
            x = mlp(tf.concat([layer(features), rows], 1), size)
            return x + tf.nn.embedding_lookup(bias, features["other0"][:, 0])

        with v1.variable_scope("top"):
            loss = loss_of(model(features), fed["label"])
        with v1.variable_scope("top", reuse=True):
            evaluation = tf.sigmoid(model(features))
        optimizer = v1.train.GradientDescentOptimizer(0.2)
        gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
        clipped, norm = tf.clip_by_global_norm(gradients, 0.5)
        train = optimizer.apply_gradients(zip(clipped, variables, strict=True))
        found = trained(setting, session, [tf.stack([loss, norm]), train], fed)
        [batch] = batches(size, 1, seed=3)
        return found | {"answers": session.run(evaluation, feed(fed, batch))}


def served(setting: Setting) -> Outcome:
    """A graph for serving, made anew from a checkpoint and exported, as TF1's documents do."""
    with tf.Graph().as_default(), v1.Session() as session:
        fed, features = placeholders(setting)
        x = v1.feature_column.input_layer(features, deep_columns(setting.size))
        answers = tf.sigmoid(mlp(x, setting.size))
        initialize(session)
        inputs = {key: value for key, value in fed.items() if key != "label"}
        v1.saved_model.simple_save(
            session, setting.folder, inputs, {"answers": answers}, v1.tables_initializer()
        )
        answered = session.run(answers, feed(fed, setting.batches[0]))
        return {"export": setting.folder, "answers": answered}
