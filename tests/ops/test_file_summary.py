"""EmbeddingVariableFileSummary: a table's file, read without knowing its table."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from table_cases import DIM, apply, lookup, make_table

from checking import VALUE_DTYPES, dtype_name
from fused_embedding import raw_ops
from stages import SHAPE_ERROR


def saved(path, dtype=tf.float32, **attrs):
    """A table with keys 0 to 4 of frequencies 1 to 5, and one slot."""
    table = make_table(dtype, **attrs)
    lookup(table, range(5), range(1, 6), step=11, dtype=dtype)
    apply(table, range(5), tf.ones([5, DIM], dtype), "adagrad", [0.5, 0, 0.25], slot_prefix="A")
    raw_ops.EmbeddingVariableSave(resource=table, path=str(path))
    return path


def summary(path):
    found = raw_ops.EmbeddingVariableFileSummary(path=str(path))._asdict()
    return {name: value.numpy() for name, value in found.items()}


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_what_was_saved(dtype, tmp_path):
    found = summary(saved(tmp_path / "table", dtype))
    assert found["dtype"].decode() == dtype.name
    assert found["dim"] == DIM
    assert found["step"] == 1
    assert found["admission"] == b"all"
    assert found["slot_names"].tolist() == [b"A/accumulator"]
    assert found["slot_widths"].tolist() == [DIM]
    assert sorted(found["frequencies"]) == [1, 2, 3, 4, 5]
    assert found["versions"].tolist() == [11] * 5
    assert len(found["filtered_frequencies"]) == len(found["filtered_versions"]) == 0
    assert found["bloom_bytes"] == 0


def test_keys_that_wait(tmp_path):
    found = summary(saved(tmp_path / "table", admission="counter", min_frequency=4))
    assert (found["admission"], found["min_frequency"]) == (b"counter", 4)
    assert sorted(found["frequencies"]) == [4, 5]
    assert sorted(found["filtered_frequencies"]) == [1, 2, 3]
    assert found["filtered_versions"].tolist() == [11] * 3


def test_a_bloom_filter(tmp_path):
    attrs = {"admission": "bloom", "min_frequency": 4, "bloom_counters": 1000, "bloom_hashes": 3}
    found = summary(saved(tmp_path / "table", **attrs))
    assert found["admission"] == b"bloom"
    assert found["bloom_bytes"] >= 1000


def test_no_rows(tmp_path):
    raw_ops.EmbeddingVariableSave(resource=make_table(), path=str(tmp_path / "table"))
    found = summary(tmp_path / "table")
    for name in ("frequencies", "versions", "slot_names", "slot_widths"):
        assert found[name].shape == (0,)


def test_any_flipped_byte_is_an_error_that_names_the_file(tmp_path):
    content = saved(tmp_path / "table").read_bytes()
    reasons = collections.Counter()
    for position in range(0, len(content), 3):
        changed = bytearray(content)
        changed[position] ^= 0x10
        (tmp_path / "table").write_bytes(changed)
        with pytest.raises(tf.errors.DataLossError, match=str(tmp_path / "table")) as caught:
            summary(tmp_path / "table")
        reasons[caught.value.message.split(", ")[1]] += 1
    assert len(reasons) > 1


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"cannot open .*nothing"):
        summary(tmp_path / "nothing")


@pytest.mark.parametrize("path", [[], ["a", "b"]])
def test_a_path_is_a_scalar(path):
    with pytest.raises(tf.errors.InvalidArgumentError, match="path"):
        raw_ops.EmbeddingVariableFileSummary(path=tf.constant(path, tf.string))


def test_shapes_and_types_in_a_graph(tmp_path):
    path = saved(tmp_path / "table")

    @tf.function
    def read(path):
        return raw_ops.EmbeddingVariableFileSummary(path=path)

    traced = read.get_concrete_function(tf.TensorSpec([], tf.string)).outputs
    for tensor, value in zip(traced, read(tf.constant(str(path))), strict=True):
        assert tensor.shape.is_compatible_with(value.shape)
        assert tensor.shape.rank == value.shape.rank
    with pytest.raises(ValueError, match=SHAPE_ERROR):
        read.get_concrete_function(tf.TensorSpec([1], tf.string))


def test_counts_are_unsigned(tmp_path):
    found = summary(saved(tmp_path / "table"))
    assert found["frequencies"].dtype == found["versions"].dtype == np.uint32
