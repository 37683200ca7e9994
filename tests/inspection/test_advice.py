"""What `advise` estimates, against a simulation of every id of the log."""

import gzip
import math
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import oracle.access_log
from fused_embedding.inspection import advice, id_log, reuse
from fused_embedding.inspection.checkpoint_tables import KeyUse, Table
from fused_embedding.variable.row_size import WAITING_BYTES, RowLayout

CLICKS = pathlib.Path(__file__).parents[3] / "shared/data/sessions/diginetica.txt.gz"
LAYOUT = RowLayout(16, tf.float32, 16)
POINTS = 0.03  # what an estimate may be off, as a share of all


def skewed_ids(n=20_000, num_ids=3000, seed=5):
    """Ids at random, few of them frequent, that drift as they do in time."""
    rng = np.random.default_rng(seed)
    ranks = np.minimum(rng.zipf(1.3, n) - 1, num_ids - 1)
    return (ranks * 7919 + np.arange(n) // 4000 * (ranks % 3)) % (1 << 40) - 5


def advisor_of(ids, ids_per_step=100, max_sample=1 << 40):
    sample = id_log.sample_ids(iter(np.array_split(ids, 7)), max_sample)
    return advice.LogAdvisor(sample, LAYOUT, ids_per_step)


# --- Distances ---


def distances(ids):
    """Distinct other ids since the last occurrence, by looking."""
    last, found = {}, []
    for i, key in enumerate(ids):
        found.append(len(set(ids[last[key] + 1 : i])) if key in last else reuse.NEVER)
        last[key] = i
    return found


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 9, 64, 300])
@pytest.mark.parametrize("num_ids", [1, 2, 30])
def test_reuse(n, num_ids):
    rng = np.random.default_rng([n, num_ids])
    ids = rng.integers(-num_ids, num_ids, n)
    steps = np.sort(rng.integers(0, 20, n))
    got = reuse.reuse_of(ids, steps)
    listed = ids.tolist()
    assert got.distance.tolist() == distances(listed)
    assert got.total.tolist() == [listed.count(key) for key in listed]
    assert got.rank.tolist() == [listed[:i].count(key) for i, key in enumerate(listed)]
    for i, key in enumerate(listed):
        before = [steps[j] for j in range(i) if listed[j] == key]
        after = [steps[j] for j in range(i + 1, n) if listed[j] == key]
        assert got.gap[i] == (steps[i] - before[-1] if before else reuse.NEVER)
        assert got.next_step[i] == (after[0] if after else reuse.NEVER)


# --- Without sampling: exactly the simulation ---


@pytest.mark.parametrize("threshold", [1, 2, 5, 10**6])
def test_admission_is_exact_without_sampling(threshold):
    ids = skewed_ids()
    got = advisor_of(ids).admission(threshold)
    rows, distinct, trained, found = oracle.access_log.admission(ids.tolist(), threshold)
    assert got.rows == rows
    assert got.ids == pytest.approx(rows / distinct)
    assert (got.trained, got.found) == pytest.approx((trained, found))
    waiting = (distinct - rows) * WAITING_BYTES
    assert got.num_bytes == pytest.approx(rows * LAYOUT.key_bytes + waiting)


@pytest.mark.parametrize("steps", [0, 1, 7, 10**6])
@pytest.mark.parametrize("ids_per_step", [1, 64, 20_001])
def test_time_to_live_is_exact_without_sampling(steps, ids_per_step):
    ids = skewed_ids()
    got = advisor_of(ids, ids_per_step).time_to_live(steps)
    most, left, found = oracle.access_log.time_to_live(ids.tolist(), ids_per_step, steps)
    assert got.rows == most
    assert got.ids == pytest.approx(left / len(set(ids.tolist())))
    assert (got.trained, got.found) == pytest.approx((1.0, found))
    assert got.num_bytes == pytest.approx(most * LAYOUT.key_bytes)


@pytest.mark.parametrize("rows", [1, 2, 100, 10**6])
def test_a_bound_is_exact_without_sampling(rows):
    ids = skewed_ids()
    got = advisor_of(ids).bounded(rows)
    used = min(rows, len(set(ids.tolist())))
    assert got.found == pytest.approx(oracle.access_log.lru(ids.tolist(), rows))
    assert (got.rows, got.num_bytes) == (used, pytest.approx(used * LAYOUT.key_bytes))


# --- Sampling ---


def test_a_sample_has_all_or_nothing_of_an_id():
    ids = skewed_ids(200_000, 100_000)
    sample = id_log.sample_ids(iter(np.array_split(ids, 11)), 30_000)
    assert sample.num_ids == len(ids)
    assert 0 < len(sample.ids) <= 30_000
    assert math.log2(sample.rate) == round(math.log2(sample.rate)) < 0
    chosen = np.flatnonzero(np.isin(ids, np.unique(sample.ids)))
    np.testing.assert_array_equal(sample.positions, chosen)
    np.testing.assert_array_equal(sample.ids, ids[chosen])
    share = len(np.unique(sample.ids)) / len(np.unique(ids))
    assert share == pytest.approx(sample.rate, rel=0.1)


def test_a_sample_keeps_a_thousand_ids():
    """One id that is nearly the whole log would else leave nothing, or not fit."""
    ids = np.zeros(50_000, np.int64)
    ids[::25] = np.arange(2000)
    sample = id_log.sample_ids(iter([ids]), 1000)
    assert len(np.unique(sample.ids)) >= 1000


def test_ids_in_sequence_are_hashed_apart():
    hashes = id_log.spatial_hash(np.arange(-50_000, 50_000)).astype(np.float64) / 2**53
    assert hashes.min() >= 0
    assert hashes.max() < 1
    counts, _ = np.histogram(hashes, 100, (0, 1))
    assert counts.std() < 60  # of a thousand each: the square root is 32
    assert abs(np.corrcoef(hashes[1:], hashes[:-1])[0, 1]) < 0.02


def test_no_ids():
    advisor = advisor_of(np.zeros(0, np.int64))
    outcomes = advice.advise(advisor, advice.Settings([], [], []))
    assert {out.rows for out in outcomes} == {0}


def clicks():
    if not CLICKS.exists():
        pytest.skip(f"{CLICKS} is not there: the data lies outside the repository")
    with gzip.open(CLICKS, "rt") as lines:
        return np.array(lines.read().split(), np.int64)


@pytest.mark.slow
def test_real_clicks_are_within_three_points_of_the_simulation():
    ids = clicks()
    listed, distinct, per_step = ids.tolist(), len(np.unique(ids)), 512
    sample = id_log.sample_ids(id_log.read_ids(str(CLICKS)), 1 << 17)
    advisor = advice.LogAdvisor(sample, LAYOUT, per_step)
    all_bytes = distinct * LAYOUT.key_bytes
    off = {"distinct": advisor.num_distinct / distinct - 1}
    for n in advice.THRESHOLDS:
        got, (rows, _, trained, found) = (
            advisor.admission(n),
            oracle.access_log.admission(listed, n),
        )
        memory = rows * LAYOUT.key_bytes + (distinct - rows) * WAITING_BYTES
        off |= {f"admission {n} {what}": d for what, d in _off(got, trained, found).items()}
        off |= {f"admission {n} ids": got.ids - rows / distinct}
        off |= {f"admission {n} memory": (got.num_bytes - memory) / all_bytes}
    for share in advice.SHARES_OF_STEPS:
        steps = math.ceil(share * advisor.num_steps)
        got = advisor.time_to_live(steps)
        most, left, found = oracle.access_log.time_to_live(listed, per_step, steps)
        off |= {f"ttl {steps} {what}": d for what, d in _off(got, 1.0, found).items()}
        off |= {f"ttl {steps} ids": got.ids - left / distinct}
        off |= {f"ttl {steps} memory": (got.num_bytes - most * LAYOUT.key_bytes) / all_bytes}
    for share in (0.001, *advice.SHARES_OF_ROWS):
        rows = math.ceil(share * distinct)
        got = advisor.bounded(rows)
        off |= {f"lru {rows} found": got.found - oracle.access_log.lru(listed, rows)}
    print({what: round(d, 4) for what, d in off.items()})
    assert max(map(abs, off.values())) < POINTS, off
    # And the sample costs what it is of all: what is sorted for the distances.
    assert len(sample.ids) < len(ids) / 6
    assert advisor.sorted_elements < reuse.sorted_elements(len(ids)) / 6


def _off(got, trained, found):
    return {"trained": got.trained - trained, "found": got.found - found}


# --- From frequencies ---


def table_of(frequencies, versions, waiting=(), step=10):
    return Table(
        name="table",
        layout=LAYOUT,
        slots={},
        updates=step,
        admission="all",
        bloom_bytes=0,
        use=KeyUse(np.array(frequencies, np.uint32), np.array(versions, np.uint32)),
        waiting=KeyUse(np.array(waiting, np.uint32), np.full(len(waiting), 1, np.uint32)),
        num_files=1,
        saved_bytes=0,
        global_step=step,
    )


@pytest.mark.parametrize("threshold", [1, 2, 5, 10**6])
def test_admission_from_frequencies_is_exact(threshold):
    ids = skewed_ids()
    counts = np.unique(ids, return_counts=True)[1]
    first, last = counts[:100], counts[100:]
    advisor = advice.FrequencyAdvisor(table_of(last, np.zeros(len(last)), first))
    got = advisor.admission(threshold)
    rows, distinct, trained, found = oracle.access_log.admission(ids.tolist(), threshold)
    assert (got.rows, got.ids) == (rows, pytest.approx(rows / distinct))
    assert (got.trained, got.found) == pytest.approx((trained, found))


def test_time_to_live_from_ages():
    advisor = advice.FrequencyAdvisor(table_of([1, 2, 3, 4], [10, 9, 5, 0]))
    assert [advisor.time_to_live(steps).rows for steps in (0, 1, 4, 5, 10)] == [1, 2, 2, 3, 4]
    assert math.isnan(advisor.time_to_live(5).found)


def test_a_bound_from_frequencies_is_that_of_ids_in_random_order():
    rng = np.random.default_rng(2)
    ids = rng.permutation(skewed_ids(60_000))
    counts = np.unique(ids, return_counts=True)[1]
    advisor = advice.FrequencyAdvisor(table_of(counts, np.zeros(len(counts))))
    for rows in (5, 50, 500, len(counts), 10 * len(counts)):
        want = oracle.access_log.lru(ids.tolist(), rows)
        assert advisor.bounded(rows).found == pytest.approx(want, abs=POINTS), rows


# --- Settings ---


def test_settings_that_are_asked_for():
    advisor = advisor_of(skewed_ids())
    budgets = [rows * LAYOUT.key_bytes for rows in (100.5, 1000.5)]
    outcomes = advice.advise(advisor, advice.Settings([7, 3, 3], [50], budgets))
    assert [(out.option, out.setting) for out in outcomes] == [
        ("CounterFilter", 3),
        ("CounterFilter", 7),
        ("GlobalStepEvict", 50),
        ("lru", 100),
        ("lru", 1000),
    ]


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.float16, tf.bfloat16])
def test_bytes_of_a_row(dtype):
    """16 bytes, the values and the slots, each part rounded up to 8."""
    size, slot = dtype.size, 8 if dtype == tf.float64 else 4
    for dim, width in [(1, 0), (3, 1), (16, 16), (5, 11)]:
        value_end = -(-(16 + dim * size) // 8) * 8
        want = -(-(value_end + width * slot) // 8) * 8
        assert RowLayout(dim, dtype, width).row_bytes == want
    assert RowLayout(16, tf.float32, 16).row_bytes == 144  # docs/embedding_variable.md
