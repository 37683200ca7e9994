"""What a table's content must not depend on: threads, shards, partitions, order, the process."""

import functools
import hashlib
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from content_digests import NUM_KEYS

import fused_embedding as fe
import processes

HERE = pathlib.Path(__file__).parent
KEYS = np.random.default_rng(0).integers(-(2**63), 2**63, 1000)
INITIALIZERS = {
    "uniform": tf.random_uniform_initializer(-1.0, 1.0),
    "normal": tf.random_normal_initializer(),
    "truncated_normal": tf.compat.v1.truncated_normal_initializer(),
    "matrix": tf.compat.v1.glorot_uniform_initializer(),
}


@functools.cache
def digests(num_threads):
    """Digests by name, from a process of its own: TensorFlow fixes its threads once."""
    done = processes.run_module("content_digests", num_threads, cwd=HERE)
    return json.loads(processes.output_of(done))


@pytest.mark.slow
@pytest.mark.parametrize("num_threads", [1, 2, 4])
def test_content_does_not_depend_on_threads_shards_or_partitions(num_threads):
    for num_keys in (NUM_KEYS, 1_500):
        want = digests(1)[f"plain_{num_keys}"]
        got = {name: d for name, d in digests(num_threads).items() if name.endswith(f"_{num_keys}")}
        assert len(got) >= 5
        assert set(got.values()) == {want}, got


def first_values(keys, initializer, num_partitions=None, max_capacity=None, step=250):
    """Rows of `keys` in a new table that meets them `step` at a time."""
    partitioner = num_partitions and tf.compat.v1.fixed_size_partitioner(num_partitions)
    table = fe.get_embedding_variable(
        "table",
        3,
        initializer=initializer,
        partitioner=partitioner,
        ev_option=fe.EmbeddingVariableOption(max_capacity=max_capacity),
    )
    for begin in range(0, len(keys), step):
        ids = tf.reshape(tf.constant(keys[begin : begin + step]), [-1, 1])
        sp_ids = tf.RaggedTensor.from_tensor(ids)
        fe.nn.fused_safe_embedding_lookup_sparse(table, sp_ids, prune=False)
    content = table.export()
    rows = dict(zip(content.keys.numpy().tolist(), content.values.numpy(), strict=True))
    assert len(rows) == len(KEYS)
    return np.stack([rows[key] for key in KEYS.tolist()])


@pytest.mark.parametrize("kind", INITIALIZERS)
def test_first_values_depend_on_the_key_alone(kind):
    initializer = INITIALIZERS[kind]
    want = first_values(KEYS, initializer)
    for arguments in (
        {"keys": KEYS[::-1]},
        {"keys": KEYS, "step": 1000},
        {"keys": KEYS, "step": 7},
        {"keys": KEYS, "num_partitions": 3},
        {"keys": np.random.default_rng(1).permutation(KEYS), "max_capacity": 2000},
    ):
        np.testing.assert_array_equal(first_values(initializer=initializer, **arguments), want)


def digest(kind):
    return hashlib.sha256(first_values(KEYS[::-1], INITIALIZERS[kind]).tobytes()).hexdigest()


def test_first_values_are_the_same_in_another_process():
    program = "import test_properties as t; print([t.digest(kind) for kind in t.INITIALIZERS])"
    printed = processes.output_of(processes.run_program(program))
    assert printed.strip() == str([digest(kind) for kind in INITIALIZERS])


def test_an_erased_key_starts_as_it_did():
    table = fe.get_embedding_variable("table", 3)
    first = tf.nn.embedding_lookup(table, KEYS).numpy()
    table.upsert(KEYS, np.zeros([len(KEYS), 3]))
    table.erase(KEYS)
    np.testing.assert_array_equal(tf.nn.embedding_lookup(table, KEYS[::-1]), first[::-1])


@pytest.mark.parametrize("filter_option", [None, fe.CounterFilter(2), fe.CBFFilter(2, 999, 0.01)])
def test_evaluation_leaves_all_content_alone(filter_option):
    option = fe.EmbeddingVariableOption(filter_option=filter_option)
    table = fe.get_embedding_variable("table", 3, ev_option=option)
    tf.nn.embedding_lookup(table, KEYS[:500])
    tf.nn.embedding_lookup(table, KEYS[:200])
    before = table.export_content()
    with fe.inference():
        for _ in range(3):
            tf.nn.embedding_lookup(table, KEYS)
    for name, got in table.export_content()._asdict().items():
        np.testing.assert_array_equal(got, getattr(before, name), name)


@pytest.mark.parametrize("num_batches", [1, 3, 10, 100])
def test_what_is_admitted_does_not_depend_on_batches(num_batches):
    """After the same occurrences; the first values of the rows too."""
    ids = np.random.default_rng(2).integers(0, 400, 1000)
    option = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(3))
    table = fe.get_embedding_variable("table", 3, ev_option=option)
    for batch in np.array_split(ids, num_batches):
        tf.nn.embedding_lookup(table, batch)
    keys, counts = np.unique(ids, return_counts=True)
    content = table.export_content()
    np.testing.assert_array_equal(content.keys, keys[counts >= 3])
    np.testing.assert_array_equal(content.frequencies, counts[counts >= 3])
    np.testing.assert_array_equal(content.filtered_keys, keys[counts < 3])
    np.testing.assert_array_equal(content.filtered_frequencies, counts[counts < 3])


def test_a_bloom_filter_admits_no_key_too_late():
    ids = np.random.default_rng(2).integers(0, 4000, 10_000)
    option = fe.EmbeddingVariableOption(filter_option=fe.CBFFilter(3, 4000, 0.01))
    table = fe.get_embedding_variable("table", 3, ev_option=option)
    for batch in np.array_split(ids, 20):
        tf.nn.embedding_lookup(table, batch)
    keys, counts = np.unique(ids, return_counts=True)
    admitted = set(table.export().keys.numpy().tolist())
    assert admitted >= set(keys[counts >= 3].tolist())
    num_early = len(admitted) - (counts >= 3).sum()
    assert num_early <= 0.02 * (counts < 3).sum()
