"""The same bits for any number of threads, in every op and in the whole lookup."""

import json
import pathlib

import pytest

import processes

HERE = pathlib.Path(__file__).parent
NAMES = (
    "prune_and_fill",
    "unique",
    "partition",
    "gather",
    "pre_lookup",
    "post_lookup",
    "post_lookup_grad",
    "post_lookup_weights_grad",
    "sparse_apply",
    "nn_v1_float32",
    "nn_v1_bfloat16",
    "nn_v2_float32",
    "nn_v2_bfloat16",
    "nn_v3_float32",
    "nn_v3_bfloat16",
)


def digests(num_threads):
    """Digests by name, from a process of its own: TensorFlow fixes its threads once."""
    done = processes.run_module("thread_digests", num_threads, cwd=HERE)
    return json.loads(processes.output_of(done))


@pytest.fixture(scope="module")
def digests_by_threads():
    return {num_threads: digests(num_threads) for num_threads in (1, 2, 4)}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_same_bits_for_any_number_of_threads(digests_by_threads, name):
    found = {num_threads: result[name] for num_threads, result in digests_by_threads.items()}
    assert len(set(found.values())) == 1, found


@pytest.mark.slow
def test_every_result_is_compared(digests_by_threads):
    assert set(digests_by_threads[1]) == set(NAMES)
