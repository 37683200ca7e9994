"""Expected distinct keys of a batch, against sampled batches."""

import numpy as np
import pytest
import tensorflow as tf
from planner_cases import planner

import fused_embedding as fe

KeyDistribution = planner.KeyDistribution


def sampled_distinct(probabilities, num_ids, num_batches, seed):
    """Mean number of distinct keys of batches that are drawn by inverting the distribution."""
    rng = np.random.default_rng(seed)
    ends = np.cumsum(probabilities)
    draws = rng.random([num_batches, num_ids]) * ends[-1]
    return np.mean([len(np.unique(np.searchsorted(ends, one))) for one in draws])


@pytest.mark.parametrize("alpha", [0.0, 0.8, 1.0, 1.05, 1.4])
@pytest.mark.parametrize(("num_keys", "num_ids"), [(40, 100), (1000, 4096), (2_000_000, 20_000)])
def test_distinct_keys_of_zipf_are_those_of_samples(alpha, num_keys, num_ids):
    probabilities = np.arange(1, num_keys + 1) ** -alpha
    want = sampled_distinct(probabilities, num_ids, num_batches=4, seed=3)
    got = KeyDistribution.zipf(num_keys, alpha).expected_distinct(num_ids)
    assert got == pytest.approx(want, rel=0.05)


@pytest.mark.parametrize("alpha", [0.0, 1.0, 1.3])
@pytest.mark.parametrize("num_ids", [1, 100, 30_000])
def test_bins_lose_less_than_a_thousandth(alpha, num_ids):
    probabilities = np.arange(1, 100_001) ** -alpha
    probabilities /= probabilities.sum()
    exact = np.sum(1 - (1 - probabilities) ** num_ids)
    got = KeyDistribution.zipf(100_000, alpha).expected_distinct(num_ids)
    assert got == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_distinct_keys_of_counts_are_those_of_later_batches(seed):
    rng = np.random.default_rng(seed)
    log = rng.zipf(1.3, 1_000_000) % 10**9
    counts = np.unique(log, return_counts=True)[1]
    later = (rng.zipf(1.3, [4, 20_000]) % 10**9).astype(np.int64)
    want = np.mean([len(np.unique(one)) for one in later])
    got = KeyDistribution.from_counts(rng.permutation(counts)).expected_distinct(20_000)
    assert got == pytest.approx(want, rel=0.05)


def test_the_top_keys_have_their_share():
    distribution = KeyDistribution.zipf(1000, 1.0)
    probabilities = np.arange(1, 1001.0) ** -1
    probabilities /= probabilities.sum()
    present = 1 - (1 - probabilities) ** 500
    for num_top in (1, 64, 200, 1000):
        got = distribution.expected_distinct(500, num_top)
        assert got == pytest.approx(present[:num_top].sum(), rel=0.01)
    assert distribution.expected_distinct(0) == 0


@pytest.mark.parametrize("num_keys", [1, 64, 65, 10**12])
def test_probabilities_sum_up(num_keys):
    for alpha in (0.0, 1.0, 1.2):
        one = KeyDistribution.zipf(num_keys, alpha)
        assert one.num_keys == pytest.approx(num_keys)
        assert np.sum(one.widths * one.probabilities) == pytest.approx(1)
        assert np.all(np.diff(one.probabilities) <= 1e-12)
        assert one.expected_distinct(1) == pytest.approx(1)


def test_counts_of_few_keys_are_exact():
    one = KeyDistribution.from_counts(np.array([0, 1, 3]))
    assert one.widths.tolist() == [1, 1]
    assert one.probabilities.tolist() == [0.75, 0.25]
    assert one.expected_distinct(2) == pytest.approx(1 - 0.25**2 + 1 - 0.75**2)
    assert KeyDistribution.from_counts([5]).expected_distinct(3) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KeyDistribution.zipf(0), "num_keys must be > 0"),
        (lambda: KeyDistribution.zipf(5, -1), "alpha >= 0"),
        (lambda: KeyDistribution.from_counts([0, 0]), "have one > 0"),
        (lambda: KeyDistribution.from_counts([-1, 2]), "must be >= 0"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_keys_of_each_server_are_those_of_sampled_batches():
    """Batches of every table, divided by the hash of the tables: docs/planner.md."""
    rng = np.random.default_rng(7)
    configs, constraints, ends = [], {}, {}
    for i in range(12):
        rows, alpha = int(10 ** rng.uniform(4, 6)), rng.uniform(1.02, 1.4)
        config = planner.EmbeddingConfig(rows, 8, f"table{i}")
        configs.append(config)
        constraints[config.name] = planner.ParameterConstraints(
            pooling_factors=[float(rng.choice([1, 5, 20]))],
            distribution=KeyDistribution.zipf(rows, alpha),
        )
        ends[config.name] = np.cumsum(np.arange(1, rows + 1) ** -alpha)
    topology = planner.Topology(8)
    plan = planner.EmbeddingShardingPlanner(topology, 4096, constraints=constraints).plan(configs)
    predicted, sampled = np.zeros(8), np.zeros(8)
    for name, table in plan.tables.items():
        draws = rng.random(int(4096 * constraints[name].pooling_factors[0])) * ends[name][-1]
        keys = np.unique(np.searchsorted(ends[name], draws)).astype(np.int64)
        variable = fe.get_embedding_variable(name, 8, partitioner=plan.partitioner(name))
        parts = [keys] if len(table.ranks) == 1 else variable.divide(tf.constant(keys))[1]
        for rank, part in zip(table.ranks, parts, strict=True):
            predicted[rank] += table.keys
            sampled[rank] += len(part)
    assert len({len(table.ranks) for table in plan.tables.values()}) > 1
    np.testing.assert_allclose(predicted, sampled, rtol=0.05)
