import numpy as np
import pytest
from benchmarks.gpu import lookups
from core_cases import MAKERS, assert_case, results

from oracle import lookup as oracle

NUM_SEEDS = 12
ORDERS = (0, 1, 2)  # of the emulation's threads and blocks; a GPU has its own in each run

every_lookup = pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)


def size_of(seed: int) -> int:
    return (0, 1, 7, 150)[seed % 4]


def cases(maker):
    """Cases of all sizes; the oracle makes nothing of no pairs where there must be one."""
    for seed in range(NUM_SEEDS):
        size = size_of(seed)
        if size > 0 or maker.__name__ in ("gather", "prune_and_fill", "unique", "partition"):
            yield seed, maker(np.random.default_rng(seed), size)


@every_lookup
@pytest.mark.parametrize("machine", ["gpu", "cpu"])
def test_equals_the_oracle(request, maker, machine):
    machine = request.getfixturevalue(machine)
    for seed, case in cases(maker):
        got = results(case, machine)
        try:
            assert_case(got, case)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


@every_lookup
def test_has_the_same_bits_in_each_run(library, gpu, maker):
    for seed, case in cases(maker):
        bits = []
        for order in ORDERS:
            library.FeShuffleOrder(order)
            bits.append([array.tobytes() for array in results(case, gpu)])
        library.FeShuffleOrder(0)
        assert bits == bits[:1] * len(ORDERS), f"seed {seed}"


def test_unique_idx_equals_the_oracle(gpu, cpu):
    ids = np.random.default_rng(0).integers(0, 60, 200)
    for machine in (gpu, cpu):
        lookup = lookups.unique(machine, machine.upload(ids))
        machine.run(lookup)
        np.testing.assert_array_equal(lookup.used[1].numpy(), oracle.unique_with_counts(ids)[1])


def test_unique_finds_as_many_as_numpy_among_many(gpu, cpu):
    size = 5_000 if gpu.is_emulated else 1 << 20
    ids = np.random.default_rng(1).integers(0, size // 2, size)
    gpu_ids, gpu_counts = (array.numpy() for array in gpu.run(lookups.unique(gpu, gpu.upload(ids))))
    cpu_ids, cpu_counts = (array.numpy() for array in cpu.run(lookups.unique(cpu, cpu.upload(ids))))
    np.testing.assert_array_equal(gpu_ids, cpu_ids)
    np.testing.assert_array_equal(gpu_counts, cpu_counts)
    want_ids, want_counts = np.unique(ids, return_counts=True)
    order = np.argsort(gpu_ids)
    np.testing.assert_array_equal(gpu_ids[order], want_ids)
    np.testing.assert_array_equal(gpu_counts[order], want_counts)


@pytest.mark.parametrize("dim", [1, 16, 128])
def test_many_pairs_give_what_the_cpu_gives(gpu, cpu, dim):
    # Ids of a power law: some sums are long. Whole numbers: sums are exact in any order.
    size, table_rows = (2_000, 300) if gpu.is_emulated else (300_000, 5_000)
    rng = np.random.default_rng(dim)
    ids = np.minimum(rng.zipf(1.2, size) - 1, table_rows - 1)
    row_ids = np.sort(rng.integers(0, size // 5, size))
    table = rng.integers(-8, 8, (table_rows, dim)).astype(np.float32)
    grad = rng.integers(-8, 8, (size // 5, dim)).astype(np.float32)
    found = []
    for machine in (gpu, cpu):
        column = lookups.Column(
            *(machine.upload(array) for array in (ids, row_ids, table)),
            num_rows=size // 5,
            combiner="sum",
            combined_grad=machine.upload(grad),
        )
        outputs = machine.run(lookups.group_lookup([column]))
        outputs += machine.run(lookups.group_lookup_grad([column]))
        found.append([array.numpy() for array in outputs])
    for gpu_array, cpu_array in zip(*found, strict=True):
        np.testing.assert_array_equal(gpu_array, cpu_array)
    combined = np.zeros((size // 5, dim))
    np.add.at(combined, row_ids, table[ids])
    np.testing.assert_array_equal(found[0][0], combined)


def test_a_group_waits_once_and_launches_little(gpu):
    columns = []
    ids, row_ids = gpu.upload(np.arange(40)), gpu.upload(np.arange(40))
    for number in range(26):
        table = gpu.upload(np.ones((40, 4), np.float32))
        columns.append(lookups.Column(ids, row_ids, table, 40, table_number=number))
    before = gpu.counters()
    gpu.run(lookups.group_lookup(columns))
    gpu.wait()
    steps = gpu.counters() - before
    assert steps["waits"] == 2  # one is the test's own
    assert 0 < steps["launches"] <= 12
    planned = gpu.plan(lookups.group_lookup(columns))
    outputs = planned.allocate()
    before = gpu.counters()
    planned.run(outputs)
    assert (gpu.counters() - before)["allocations"] == 1  # the columns, as kernels read them
