import contextlib
import functools

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases import columns as cases

tf1 = tf.compat.v1
fc = tf.feature_column
STOCK, FUSED = {}, {"do_fusion": "v2"}


def embedding_column(how, **kwargs):
    module = fe.feature_column if how else fc
    column = module.embedding_column(cases.identity(), 5, **how, **kwargs)
    return tf1.feature_column.input_layer(cases.features(), [column])


def shared_embedding_columns(how, **kwargs):
    module = fe.feature_column if how else tf1.feature_column
    keys = [cases.identity("ids"), cases.identity("other_ids")]
    columns = module.shared_embedding_columns(keys, 5, **how, **kwargs)
    return tf1.feature_column.input_layer(cases.features(), columns)


def shared_embeddings(how, **kwargs):
    module = fe.feature_column if how else fc
    keys = [cases.identity("ids"), cases.identity("other_ids")]
    columns = module.shared_embeddings(keys, 5, **how, **kwargs)
    return cases.keras().layers.DenseFeatures(columns)(cases.features())


def linear_model(how):
    module = fe.feature_column if how else tf1.feature_column
    return module.linear_model(cases.features(), [cases.identity()], **how)


MODELS = [embedding_column, shared_embedding_columns, shared_embeddings, linear_model]


@contextlib.contextmanager
def model(build, how, partitions):
    """A session, the output of `build(how)`, one Adagrad step on it and a Saver."""
    partitioner = tf1.fixed_size_partitioner(partitions) if partitions else None
    with tf.Graph().as_default(), tf1.variable_scope("", partitioner=partitioner):
        output = build(how)
        step = tf1.train.AdagradOptimizer(0.5).minimize(cases.weighted_sum(output))
        with tf1.Session() as session:
            session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
            yield session, output, step, tf1.train.Saver()


@pytest.mark.parametrize(
    ("saved", "restored", "partitions"),
    [
        (STOCK, FUSED, (None, None)),
        (FUSED, STOCK, (None, None)),
        (STOCK, FUSED, (3, 3)),
        (FUSED, STOCK, (3, None)),
        (STOCK, FUSED, (None, 3)),
    ],
)
@pytest.mark.parametrize("build", MODELS)
def test_checkpoint_of_one_loads_into_the_other(build, saved, restored, partitions, tmp_path):
    path = str(tmp_path / "model")
    with model(build, saved, partitions[0]) as (session, output, step, saver):
        session.run(step)
        saver.save(session, path, write_meta_graph=False)
        want = [session.run(output), session.run(step), session.run(output)]
    with model(build, restored, partitions[1]) as (session, output, step, saver):
        saver.restore(session, path)
        got = [session.run(output), session.run(step), session.run(output)]
    np.testing.assert_allclose(got[0], want[0], rtol=0, atol=cases.ATOL)
    np.testing.assert_allclose(got[2], want[2], rtol=0, atol=cases.ATOL)


@pytest.mark.parametrize("partitions", [None, 3])
@pytest.mark.parametrize("build", MODELS)
def test_checkpoint_has_the_entries_of_stock(build, partitions, tmp_path):
    entries = []
    for number, how in enumerate((STOCK, FUSED)):
        path = str(tmp_path / str(number))
        with model(build, how, partitions) as (session, _, _, saver):
            saver.save(session, path, write_meta_graph=False)
        entries.append(tf.train.list_variables(path))
    assert entries[0] == entries[1]


@pytest.mark.parametrize("partitions", [None, 3])
@pytest.mark.parametrize("build", MODELS[:-1])
def test_ckpt_to_load_from(build, partitions, tmp_path):
    path = str(tmp_path / "model")
    with model(build, STOCK, None) as (session, output, _, saver):
        (table,) = tf1.trainable_variables()
        saver.save(session, path, write_meta_graph=False)
        want = session.run(output)
    load = {"ckpt_to_load_from": path, "tensor_name_in_ckpt": table.op.name}
    for how in (STOCK, FUSED):
        with model(functools.partial(build, **load), how, partitions) as (session, output, _, _):
            np.testing.assert_allclose(session.run(output), want, rtol=0, atol=cases.ATOL)
