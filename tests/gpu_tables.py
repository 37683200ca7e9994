"""EmbeddingVariables in a GPU's memory and in DRAM, made alike, and their content."""

import contextlib
import itertools

import numpy as np
import tensorflow as tf

import fused_embedding as fe
from emulated_gpu import emulated_gpu

tf1 = tf.compat.v1
DIM = 4
SIZE = 8 << 20
IN_HBM = fe.StorageOption(fe.StorageType.HBM, storage_size=[SIZE], experimental=True)
PLACES = {"dram": fe.StorageOption(), "hbm": IN_HBM}
_names = (f"table_{i}" for i in itertools.count())


def in_place(place):
    """Where tables of a place can be made."""
    return emulated_gpu() if place == "hbm" else contextlib.nullcontext()


def option(place="hbm", **fields):
    return fe.EmbeddingVariableOption(storage_option=PLACES[place], **fields)


def make_table(place="hbm", name=None, dim=DIM, **fields):
    return fe.get_embedding_variable(
        name or next(_names),
        dim,
        initializer=tf1.random_uniform_initializer(-1, 1, seed=3),
        ev_option=option(place, **fields),
    )


def content_of(table):
    """All of its content, as arrays."""
    return {k: np.array(v) for k, v in table.export_content()._asdict().items()}


def has_bits_of_dram():
    """Whether steps of tables in HBM round as in DRAM: a GPU rounds a product and a sum once."""
    return not tf.config.list_physical_devices("GPU")


def assert_same(got, want):
    assert got.keys() == want.keys()
    for name, array in want.items():
        array = np.asarray(array)
        if np.issubdtype(array.dtype, np.floating) and not has_bits_of_dram():
            np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(got[name], array, err_msg=name)
