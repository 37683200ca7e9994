"""Long sums are as exact as short ones: errors against float64 do not grow with their terms."""

import numpy as np
import pytest
from benchmarks.gpu import lookups

# A chain of float32 additions is wrong by over 1e-6 from some thousand terms on.
RELATIVE_ERROR = 4e-7
DIMS = (3, 16)  # one value a lane, and four

machines = pytest.mark.parametrize("name", ["gpu", "cpu"])
dims = pytest.mark.parametrize("dim", DIMS)


@pytest.fixture
def machine(request, name):
    return request.getfixturevalue(name)


def lengths(machine):
    """Those around which the order of additions changes, and long ones."""
    return (1, 8, 9, 10, 16, 17, 100, 4097, 20_000 if machine.is_emulated else 1_000_000)


def column(machine, table, ids, row_ids, **options):
    """Of a table, on a machine."""
    arrays = (machine.upload(array) for array in (ids, row_ids, table))
    return lookups.Column(*arrays, **options)


@machines
@dims
@pytest.mark.parametrize("combiner", lookups.COMBINERS)
@pytest.mark.parametrize("is_weighted", [False, True], ids=["unweighted", "weighted"])
def test_of_a_row(machine, dim, combiner, is_weighted):
    rng = np.random.default_rng(0)
    table = rng.uniform(0.25, 1, (500, dim)).astype(np.float32)
    for length in lengths(machine):
        ids = rng.integers(0, len(table), length)
        weights = rng.uniform(0.5, 1.5, length).astype(np.float32) if is_weighted else None
        factors = np.ones(length) if weights is None else weights.astype(np.float64)
        denominators = {"sum": 1, "mean": factors.sum(), "sqrtn": np.sqrt((factors**2).sum())}
        exact = factors @ table[ids].astype(np.float64) / denominators[combiner]
        options = {"num_rows": 1, "combiner": combiner}
        if is_weighted:
            options["weights"] = machine.upload(weights)
        of_row = column(machine, table, ids, np.zeros(length, np.int64), **options)
        (combined,) = machine.run(lookups.group_lookup([of_row]))
        np.testing.assert_allclose(
            combined.numpy()[0], exact, rtol=RELATIVE_ERROR, err_msg=f"{length} pairs"
        )


# Not on the CPU, which adds up to 128 in one chain, as stock's optimizers do:
# tests/lookup/test_sum_accuracy.py has its bounds.
@dims
@pytest.mark.parametrize("is_constant", [False, True], ids=["random", "constant"])
def test_of_the_gradients_of_an_id(gpu, dim, is_constant):
    rng = np.random.default_rng(1)
    table = np.ones((2, dim), np.float32)
    for length in lengths(gpu):
        grad = rng.uniform(0.25, 1, (1 if is_constant else length, dim)).astype(np.float32)
        grad = np.broadcast_to(grad, (length, dim)).copy()
        of_id = column(
            *(gpu, table, np.ones(length, np.int64), np.arange(length)),
            num_rows=length,
            combiner="sum",
            combined_grad=gpu.upload(grad),
        )
        _, rows = gpu.run(lookups.group_lookup_grad([of_id]))
        np.testing.assert_allclose(
            *(rows.numpy()[0], grad.astype(np.float64).sum(0)),
            rtol=RELATIVE_ERROR,
            err_msg=f"{length} gradients",
        )
