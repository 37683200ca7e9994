"""Tables in a GPU's memory as dicts: the calls of test_model.py on the emulation of a GPU."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from table_driver import Pair, table_option
from test_model import assert_agree, calls

import fused_embedding as fe
from checking import dtype_name
from emulated_gpu import emulated_gpu

IN_HBM = fe.StorageOption(fe.StorageType.HBM, storage_size=[1 << 20], experimental=True)
OPTIONS = {
    "plain": {},
    "counter": {"min_frequency": 3, "no_permission_value": 7.0},
    "lru": {"eviction": "lru"},  # which more keys than these would make use of
}


@pytest.fixture(autouse=True)
def gpu():
    """The emulation."""
    with emulated_gpu():
        yield


class GpuPair(Pair):
    """A table in a GPU's memory, and its oracle."""

    def table_arguments(self, options):
        return {"ev_option": table_option(options, storage_option=IN_HBM)}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@hypothesis.settings(
    max_examples=25, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(sequence=st.lists(calls(), max_size=20))
def test_a_table_is_a_dict(options, sequence):
    assert_agree(GpuPair(**options), sequence)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_a_table_is_a_dict_for_long(options):
    rng = np.random.default_rng(0)
    pair = GpuPair(**options)
    for step in range(40):
        keys = rng.choice(40, rng.integers(1, 9), replace=False).tolist()
        pair.lookup(keys, rng.integers(1, 3, len(keys)).tolist(), step)
        pair.momentum(keys, rng.integers(-4, 5, (len(keys), 2)).astype(np.float64) * (step < 20))
        pair.check()


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16], ids=dtype_name)
@hypothesis.settings(
    max_examples=10, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(sequence=st.lists(calls(), max_size=12))
def test_a_table_of_another_dtype(dtype, sequence):
    with np.errstate(over="ignore", invalid="ignore"):  # float16 ends at 65504
        assert_agree(GpuPair(dtype=dtype), sequence)
