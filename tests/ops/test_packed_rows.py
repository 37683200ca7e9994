"""FusedEmbeddingUnpackRows: rows of several tables out of one message of each server."""

import numpy as np
import pytest
import tensorflow as tf

import remote_stages
from checking import VALUE_DTYPES, assert_same_bits, dtype_name
from stages import INT64_MAX, INT64_MIN, SHAPE_ERROR

InvalidArgumentError = tf.errors.InvalidArgumentError

# The example of tf_ops/core/lookup/remote/packed_rows.h.
BY_HAND = {
    "rows": [np.array([1.0, 2.0, 7.0, 8.0, 9.0]), np.array([3.0, 4.0, 5.0, 6.0])],
    "part_sizes": np.array([1, 2, 3]),
    "dims": [2, 1],
    "num_parts": [2, 1],
    "part_servers": [0, 1, 0],
}


def test_the_example_of_packed_rows_h():
    first, second = remote_stages.unpack(**BY_HAND)
    assert first.numpy().tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    assert second.numpy().tolist() == [[7.0], [8.0], [9.0]]


def random_parts(rng, dtype=tf.float64):
    """The rows of each part of up to four tables, and the arguments that hold them."""
    num_servers = int(rng.integers(1, 4))
    dims = rng.integers(1, 9, rng.integers(1, 5)).tolist()
    num_parts = [int(rng.integers(1, 5)) for _ in dims]
    servers = rng.integers(0, num_servers, sum(num_parts)).tolist()
    part_dims = np.repeat(dims, num_parts)
    parts = [
        tf.cast(rng.standard_normal((rng.integers(0, 4), dim)), dtype).numpy() for dim in part_dims
    ]
    empty = np.zeros(0, parts[0].dtype)
    rows = [
        np.concatenate(
            [empty, *(p.ravel() for p, at in zip(parts, servers, strict=True) if at == server)]
        )
        for server in range(num_servers)
    ]
    return parts, {
        "rows": rows,
        "part_sizes": np.array([len(part) for part in parts], np.int64),
        "dims": dims,
        "num_parts": num_parts,
        "part_servers": servers,
    }


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
@pytest.mark.parametrize("seed", range(20))
def test_gives_back_what_was_packed(seed, dtype):
    parts, args = random_parts(np.random.default_rng(seed), dtype)
    got = remote_stages.unpack(**args)
    ends = np.cumsum(args["num_parts"])
    for table, end, num_parts in zip(got, ends, args["num_parts"], strict=True):
        assert_same_bits(table, np.concatenate(parts[end - num_parts : end]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"part_sizes": np.array([1, 2])}, "part_sizes must have one element for each of the 3"),
        ({"part_sizes": np.array([1, 2, 2])}, "rows of server 0 must be 4 values, .* got 5"),
        ({"part_sizes": np.array([1, 3, 3])}, "rows of server 1 must be 6 values, .* got 4"),
        ({"part_sizes": np.array([1, -2, 3])}, r"part_sizes\[1\] = -2 must be a number of rows"),
        ({"part_sizes": np.array([1, 2, INT64_MIN])}, r"part_sizes\[2\] ="),
        ({"part_sizes": np.array([1, INT64_MAX, 3])}, r"part_sizes\[1\] = 9223372036854775807"),
        ({"part_sizes": np.array([1, 2, INT64_MAX])}, r"part_sizes\[2\] = 9223372036854775807"),
        ({"part_sizes": np.int64(1)}, "part_sizes"),
        ({"rows": [np.zeros(5), np.zeros((4, 1))]}, "rows"),
        ({"rows": [np.zeros(5)]}, r"part_servers has 1, which is outside \[0, 1\)"),
        ({"rows": [np.zeros(5), np.zeros(4), np.zeros(1)]}, "rows of server 2 must be 0 values"),
        ({"dims": [2, 2]}, "rows of server 0 must be 8 values"),
        ({"dims": [2, 0]}, "dims must be >= 1, got 0"),
        ({"dims": [2, 1, 1]}, "num_parts and dims must have one entry for each table"),
        ({"num_parts": [2, 2]}, "part_servers one for each of the 4 parts"),
        ({"num_parts": [3, 0]}, "num_parts must be >= 1"),
        ({"num_parts": [2**62, 2**62]}, "num_parts must be >= 1 and at most"),
        ({"part_servers": [0, 1, 2]}, "part_servers has 2"),
        ({"part_servers": []}, "num_parts must be >= 1 and at most the number of parts, 0"),
    ],
)
def test_errors(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        remote_stages.unpack(**BY_HAND | changes)


def traced_shapes(**changes):
    traced = tf.function(lambda: remote_stages.unpack(**BY_HAND | changes))
    return [output.shape.as_list() for output in traced.get_concrete_function().outputs]


def test_shapes():
    assert traced_shapes() == [[None, 2], [None, 1]]


@pytest.mark.parametrize("dims", [[2, 0], [2, -1]])
def test_shape_function_rejects(dims):
    with pytest.raises(ValueError, match=SHAPE_ERROR):
        traced_shapes(dims=dims)
