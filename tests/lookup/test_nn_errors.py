"""Wrong arguments of fe.nn.fused_*: what was given, what is required, what to do."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.nn import BATCH, make_table
from checking import like, sparse

SAFE = fe.nn.fused_safe_embedding_lookup_sparse
V1 = fe.nn.fused_embedding_lookup_sparse
V2 = fe.nn.fused_embedding_lookup_sparse_v2
ALL = [SAFE, V1, V2]


def ids():
    return sparse(*BATCH[:3])


def table():
    return tf.Variable(make_table())


@pytest.mark.parametrize("lookup", ALL)
@pytest.mark.parametrize(
    ("kwargs", "given", "required"),
    [
        ({"max_norm": 0.0}, r"0\.0", r"max_norm"),
        ({"max_norm": -1.0}, r"-1\.0", r"max_norm"),
        ({"max_norm": float("nan")}, r"nan", r"max_norm"),
        ({"combiner": "max"}, r"max", r"sum.*mean.*sqrtn|mean.*sqrtn.*sum"),
        ({"partition_strategy": "random"}, r"random", r"div.*mod"),
    ],
    ids=lambda v: str(v),
)
def test_value_errors(lookup, kwargs, given, required):
    with pytest.raises(ValueError, match=given) as error:
        lookup(table(), ids(), **kwargs)
    error.match(required)
    assert len(str(error.value)) > 30  # what was given, what is required, what to do


def test_unknown_fusion_version():
    with pytest.raises(ValueError, match="v4") as error:
        SAFE(table(), ids(), fusion_version="v4")
    error.match("v1.*v2")


@pytest.mark.parametrize("lookup", ALL)
@pytest.mark.parametrize("params", [None, []], ids=["none", "empty"])
def test_missing_params(lookup, params):
    with pytest.raises(ValueError, match=r"embedding_weights|params"):
        lookup(params, ids())


@pytest.mark.parametrize("lookup", ALL)
def test_blocknums_need_a_table_of_blocks(lookup):
    with pytest.raises(ValueError, match="has no blocks"):
        lookup(table(), ids(), blocknums=np.array([1, 2]))


@pytest.mark.parametrize("lookup", ALL)
@pytest.mark.parametrize("wrong", [[1, 2], np.array([[1, 2]]), "ids", None], ids=str)
def test_ids_of_a_wrong_type(lookup, wrong):
    with pytest.raises((TypeError, ValueError), match=r"[Ss]parse|[Rr]agged"):
        lookup(table(), wrong)


@pytest.mark.parametrize("lookup", ALL)
def test_weights_of_a_wrong_type(lookup):
    with pytest.raises((TypeError, ValueError), match="weights"):
        lookup(table(), ids(), "weights")
    with pytest.raises((TypeError, ValueError), match="weights"):
        lookup(table(), ids(), like(ids(), np.ones(8, np.int32)))


@pytest.mark.parametrize("lookup", ALL)
@pytest.mark.parametrize("dtype", [tf.uint64, tf.float32, tf.string])
def test_ids_of_a_wrong_dtype(lookup, dtype):
    values = tf.constant(["a"]) if dtype == tf.string else tf.cast([1], dtype)
    sp_ids = tf.SparseTensor([[0, 0]], values, [1, 1])
    with pytest.raises((TypeError, ValueError), match=r"int32|int64"):
        lookup(table(), sp_ids)


@pytest.mark.parametrize("lookup", ALL)
def test_params_of_a_wrong_dtype(lookup):
    with pytest.raises((TypeError, ValueError), match=r"float|dtype"):
        lookup(tf.constant([[1, 2], [3, 4]]), ids())


@pytest.mark.parametrize("lookup", ALL)
def test_fewer_weights_than_ids(lookup):
    sp_weights = tf.SparseTensor(ids().indices[:3], np.ones(3), [8, 3])
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=r"weight|[Ss]hape"):
        lookup(table(), ids(), sp_weights)


@pytest.mark.parametrize("lookup", ALL)
@pytest.mark.parametrize("default_id", [1.5, "3"])
def test_default_id_of_a_wrong_type(lookup, default_id):
    with pytest.raises((TypeError, ValueError), match="default_id"):
        lookup(table(), ids(), default_id=default_id)


@pytest.mark.parametrize("lookup", ALL)
def test_default_id_may_be_a_numpy_integer(lookup):
    got = lookup(table(), sparse([], [], 1), default_id=np.int64(3))
    np.testing.assert_allclose(got, make_table()[[3]])


@pytest.mark.parametrize("lookup", ALL)
def test_negative_numpy_default_id_means_none(lookup):
    got = lookup(table(), sparse([], [], 1), default_id=np.int64(-1))
    np.testing.assert_array_equal(got, np.zeros_like(got))


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
@pytest.mark.on_cpu
def test_default_id_outside_the_table(version):
    with pytest.raises(tf.errors.InvalidArgumentError, match="99"):
        SAFE(table(), ids(), default_id=99, fusion_version=version)


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
@pytest.mark.parametrize("row", [-1, 3, 2**40])
def test_row_outside_the_batch(version, row):
    sp_ids = tf.SparseTensor(np.array([[0, 0], [row, 0]]), np.array([1, 2]), [3, 1])
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{row}"):
        SAFE(table(), sp_ids, fusion_version=version)
