import numpy as np
import pytest
import tensorflow as tf

import group_stages
from checking import VALUE_DTYPES, dtype_name, needs_check_of_pairs
from group_stages import Column

pytestmark = pytest.mark.usefixtures("device")

KINDS = {"tensors": np.asarray, "variables": tf.Variable}


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def kind(request):
    return request.param


def weights_gradient(tables, columns, grads, **args):
    args = group_stages.arguments(columns) | args
    return group_stages.call("GroupLookupWeightsGrad", tables, combined_grads=grads, **args)


@pytest.mark.parametrize("seed", range(20))
def test_equals_the_oracle_on_random_columns(kind, seed):
    rng = np.random.default_rng(seed)
    tables = group_stages.random_tables(rng)
    columns = group_stages.random_columns(rng, tables, 4)
    columns[0] = columns[0]._replace(weights=rng.choice([0.5, 2.0], len(columns[0].ids)))
    grads = [rng.standard_normal((c.num_rows, tables[c.table].shape[1])) for c in columns]
    _, want = group_stages.want_gradients(tables, columns, grads)
    got = weights_gradient([kind(t) for t in tables], columns, grads)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("weight_dtype", VALUE_DTYPES, ids=dtype_name)
def test_has_the_dtype_of_the_weights(kind, weight_dtype):
    columns = [Column(0, [1, 2, -1], [0, 1, 1], 2, [0.5, 2.0, 1.0], "sum")]
    args = group_stages.arguments(columns, weight_dtype)
    table, grads = np.array([[1.0], [2.0], [4.0]]), [np.array([[1.0], [0.5]])]
    [got] = weights_gradient([kind(table)], columns, grads, **args)
    assert got.dtype == weight_dtype
    np.testing.assert_array_equal(tf.cast(got, tf.float64), [2.0, 2.0, 0.0])


def test_rejects_ids_outside_the_table(device, kind):
    needs_check_of_pairs(device)
    column = Column(0, [4], [0], 1, [1.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="column 0: id 4 at position 0"):
        weights_gradient([kind(np.ones((4, 1)))], [column], [np.ones((1, 1))])
