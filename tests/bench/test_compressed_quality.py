"""Model quality of tables of fewer bytes: the program's record, bytes and metrics."""

import functools
import itertools
import pathlib
import re
import sys

import numpy as np
import pytest
from bench_runs import run_module

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are no installed package

from benchmarks.report import page, quality_reports  # noqa: E402
from benchmarks.tables import quality_tables, quality_tasks  # noqa: E402

KINDS = ("full", "hash", "multi_hash", "adaptive", "dynamic_dimension")
# docs/embedding_variable.md, "Memory": a header of 16 bytes; up to 18 bytes in the index.
HEADER, INDEX = 16, 18
DIM, NUM_IDS = 16, 2000  # of a quick run


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return run_module("tables.compressed_quality", tmp_path_factory.mktemp("quality"), "--quick")[0]


def test_a_record_has_all_kinds_and_formats(record):
    of_budget, quantised = record["cells"]
    assert tuple(of_budget["systems"]) == KINDS
    assert tuple(quantised["systems"]) == ("float32", "bfloat16", "int8", "int4")
    assert (of_budget["budget"], of_budget["metric"]) == (0.1, "auc")
    for cell in record["cells"]:
        reference = next(iter(cell["systems"].values()))
        for figures in cell["systems"].values():
            for metric in ("auc", "logloss"):
                check_summary(figures[metric])
                if figures is not reference:
                    less = np.subtract(figures[metric]["values"], reference[metric]["values"])
                    of = figures["minus_full"][metric]
                    np.testing.assert_allclose(of["values"], less, atol=2e-6)
                    check_summary(of)


def check_summary(of):
    values = of["values"]
    assert len(values) == 2
    assert of["mean"] == pytest.approx(sum(values) / 2, abs=2e-6)
    # Of two values the standard error is half of their distance.
    assert of["standard_error"] == pytest.approx(abs(values[0] - values[1]) / 2, abs=2e-6)


def test_bytes_are_those_of_rows_and_keys(record):
    systems = record["cells"][0]["systems"]
    assert systems["full"]["bytes"] == NUM_IDS * DIM * 4
    budget = NUM_IDS * DIM * 4 // 10
    assert systems["hash"]["bytes"] == systems["hash"]["options"]["num_rows"] * DIM * 4 == budget
    quotients, remainders = systems["multi_hash"]["options"]["rows"]
    assert quotients * remainders >= NUM_IDS
    assert systems["multi_hash"]["bytes"] == (quotients + remainders) * DIM * 4 <= budget

    seen = ids_seen()
    adaptive = systems["adaptive"]
    own, waiting = (adaptive["content"][name] for name in ("keyed_rows", "waiting_keys"))
    assert own > 0
    assert abs(own + waiting - seen) <= seen // 100  # the last rows of a pass fill no batch
    keyed = own * (HEADER + DIM * 4 + INDEX) + waiting * (HEADER + INDEX)
    assert adaptive["bytes"] == keyed + adaptive["options"]["num_shared"] * DIM * 4
    assert adaptive["bytes_of_waiting_keys"] == waiting * (HEADER + INDEX)

    dynamic = systems["dynamic_dimension"]
    rows, waiting = (dynamic["content"][name] for name in ("keyed_rows", "waiting_keys"))
    assert rows > 0
    assert waiting < seen <= rows + waiting
    keyed = rows * (HEADER + DIM // 4 * 4 + INDEX) + waiting * (HEADER + INDEX)
    assert dynamic["bytes"] == keyed

    for kind in KINDS[1:]:
        figures = systems[kind]
        assert figures["reachable"] == (figures["bytes"] <= budget)
        assert figures["share"] == pytest.approx(figures["bytes"] / (NUM_IDS * DIM * 4), abs=1e-5)


def ids_seen():
    task = quality_tasks.synthetic(DIM, 1, NUM_IDS, 2500)
    assert len(task.train_ids) == 2000
    return len(set(task.train_ids.ravel().tolist()))


def test_quantised_rows_have_their_bytes_and_an_export_gives_the_same_scores(record):
    systems = record["cells"][1]["systems"]
    sizes = [figures["row_bytes"] for figures in systems.values()]
    assert sizes == [4 * DIM, 2 * DIM, DIM + 8, DIM // 2 + 4]
    for name in ("bfloat16", "int8", "int4"):
        # Ten rows' sums of float32 of magnitude 1, in another order.
        assert systems[name]["export_difference"] < 1e-5
        less = systems[name]["minus_full"]["auc"]
        within = abs(less["mean"]) <= 0.0005 + 2 * less["standard_error"]
        assert systems[name]["holds"] == within


def test_the_page_has_a_line_for_each_kind_and_says_what_is_not_reached(record):
    table = quality_reports.at_equal_bytes(record).splitlines()
    assert len(table) == 2 + len(KINDS)
    figures = record["cells"][0]["systems"]["adaptive"]
    assert not figures["reachable"]
    (line,) = [line for line in table if "| adaptive |" in line]
    assert f"| 1/10, not reachable | adaptive | {figures['bytes']:,} | **" in line
    assert f"{figures['auc']['mean']:.5f}" in line
    quantised = quality_reports.quantised(record).splitlines()
    assert [line.split(" | ")[1] for line in quantised[3:]] == ["bfloat16", "int8", "int4"]


def test_the_page_is_that_of_the_committed_result():
    blocks = page.pages()[page.PAGE_OF_QUALITY]
    record = committed()
    assert quality_reports.at_equal_bytes(record) in blocks["quality"]
    assert quality_reports.quantised(record) in blocks["quantised"]
    assert all(block in page.PAGE_OF_QUALITY.read_text() for block in blocks.values())


committed = functools.cache(quality_reports.last)


def figures_of(task, budget, kind):
    cells = committed()["cells"]
    [cell] = [c for c in cells if c["task"] == task and c.get("budget") == budget]
    return cell["systems"][kind]


def lost(task, budget, kind):
    figures = figures_of(task, budget, kind)
    return -figures["minus_full"]["recall@20" if task == "amazon_book" else "auc"]["mean"]


def share_of_keys(name):
    [task] = [t for t in committed()["axes"]["tasks"] if t["name"] == name]
    return task["ids_seen"] * (HEADER + INDEX) / (task["num_ids"] * task["dim"] * 4)


def seen_percent(name):
    [task] = [t for t in committed()["axes"]["tasks"] if t["name"] == name]
    return 100 * task["ids_seen"] / task["num_ids"]


def smallest_loss_of_books():
    return min(lost("amazon_book", b, kind) for b in (0.1, 0.01) for kind in KINDS[1:])


def of_budget(task, kind):
    return figures_of(task, 0.1, kind)["share"] / 0.1


def quotes():
    """Words of docs/compressed_tables.md and the figures that these have."""
    rows = figures_of("frappe", 0.01, "multi_hash")["options"]["rows"]
    int4 = {t: figures_of(t, None, "int4")["minus_full"] for t in ("frappe", "amazon_book")}
    return [
        (
            "loses {:.4f} of AUC on frappe and {:.4f} on the synthetic task at 1/10",
            [lost(task, 0.1, "multi_hash") for task in ("frappe", "synthetic")],
        ),
        (
            "as rows: {} for frappe, {:.3f} of the full table",
            [sum(rows), figures_of("frappe", 0.01, "multi_hash")["share"]],
        ),
        (
            "have {:.3f} of the full table on frappe, {:.3f} on amazon_book, and {:.3f} on the",
            [share_of_keys(task) for task in ("frappe", "amazon_book", "synthetic")],
        ),
        ("in whose train rows {:.0f} % of the ids", [seen_percent("synthetic")]),
        ("at 1/10: it loses {:.4f} of AUC", [lost("synthetic", 0.1, "dynamic_dimension")]),
        ("with {:.1f} times the budget", [of_budget("amazon_book", "dynamic_dimension")]),
        ("with {:.1f} times the bytes", [of_budget("frappe", "adaptive")]),
        (
            "(`filter_freq` is {} on frappe)",
            [figures_of("frappe", 0.1, "adaptive")["options"]["filter_freq"]],
        ),
        (
            "loses at least {:.4f} of a recall of {:.4f} with every kind",
            [
                smallest_loss_of_books(),
                figures_of("amazon_book", 0.1, "full")["recall@20"]["mean"],
            ],
        ),
        ("where it loses {:.5f} of recall", [-int4["amazon_book"]["recall@20"]["mean"]]),
        ("its logloss grows by {:.5f}", [int4["frappe"]["logloss"]["mean"]]),
    ]


def test_figures_in_the_text_are_those_of_the_result():
    text = re.sub(r"\s+", " ", page.BLOCK.sub("", page.PAGE_OF_QUALITY.read_text()))
    missing = [words.format(*figures) for words, figures in quotes()]
    assert [words for words in missing if words not in text] == []


def test_what_the_text_says_of_kinds_holds():
    def metric(task, budget, kind):
        return -lost(task, budget, kind)

    for task, budget in itertools.product(("frappe", "amazon_book", "synthetic"), (0.1, 0.01)):
        if figures_of(task, budget, "multi_hash")["reachable"]:
            assert metric(task, budget, "multi_hash") > metric(task, budget, "hash")
        for kind in ("adaptive", "dynamic_dimension"):
            reached = figures_of(task, budget, kind)["reachable"]
            is_reachable = (task, budget) == ("synthetic", 0.1)
            assert reached == is_reachable
            # With the smallest index, too.
            least = share_of_keys(task) * (HEADER + 6.7) / (HEADER + INDEX)
            assert is_reachable or least > budget
    kinds = {kind: metric("synthetic", 0.1, kind) for kind in KINDS[1:]}
    assert max(kinds, key=kinds.get) == "dynamic_dimension"
    assert kinds["adaptive"] < kinds["multi_hash"]
    kinds = {kind: metric("amazon_book", 0.1, kind) for kind in KINDS[1:]}
    assert min(kinds, key=kinds.get) == "dynamic_dimension"
    assert metric("frappe", 0.1, "adaptive") < metric("frappe", 0.1, "hash")
    for task in ("frappe", "amazon_book"):
        held = {name: figures_of(task, None, name)["holds"] for name in ("bfloat16", "int8")}
        assert all(held.values())
        assert figures_of(task, None, "int4")["holds"] == (task == "frappe")
    less = figures_of("frappe", None, "int4")["minus_full"]["auc"]
    assert -5 < less["mean"] / less["standard_error"] <= -4


@pytest.mark.parametrize("num_rows", [10, 63, 64, 100, 900])
def test_multi_hash_has_the_most_remainders_that_fit(num_rows):
    quotients, remainders = quality_tables.multi_hash_rows(1000, num_rows)
    fitting = [r for r in range(1, num_rows) if -(-1000 // r) + r <= num_rows]
    assert quotients == -(-1000 // remainders)
    if fitting:
        assert remainders == max(fitting)
    else:  # 32 + 32 rows are the fewest
        assert quotients + remainders == min(-(-1000 // r) + r for r in range(1, 1000)) == 64


def test_auc_counts_pairs():
    rng = np.random.default_rng(3)
    labels = (rng.random(60) < 0.4).astype(np.float32)
    scores = rng.integers(0, 8, 60).astype(np.float32)  # many are equal
    pairs = list(itertools.product(scores[labels > 0], scores[labels == 0]))
    expected = sum((one > zero) + (one == zero) / 2 for one, zero in pairs) / len(pairs)
    assert quality_tasks.auc(labels, scores) == pytest.approx(expected, abs=1e-12)


def test_logloss_is_the_mean_of_negative_log_probabilities():
    labels, logits = np.array([1, 0, 1]), np.array([0.5, -2.0, -1.0])
    odds = 1 / (1 + np.exp(-logits))
    expected = -np.mean(np.log(np.where(labels > 0, odds, 1 - odds)))
    assert quality_tasks.logloss(labels, logits) == pytest.approx(expected, rel=1e-12)


def test_recall_leaves_out_items_of_the_train_rows():
    rng = np.random.default_rng(5)
    num_users, num_items = 7, 60
    pairs = np.array(list(itertools.product(range(num_users), range(num_items))))
    rng.shuffle(pairs)
    train, held = pairs[:150], pairs[150:200]
    task = quality_tasks.retrieval("pairs", train, held, dim=4, epochs=1, held_out="")
    rows = rng.normal(size=[task.num_ids, 4]).astype(np.float32)
    of_users = []
    for user in sorted(set(held[:, 0].tolist())):
        known = set(train[train[:, 0] == user, 1].tolist())
        wanted = set(held[held[:, 0] == user, 1].tolist())
        scores = rows[task.num_items + user] @ rows[: task.num_items].T
        order = [item for item in np.argsort(-scores).tolist() if item not in known]
        of_users.append(len(wanted & set(order[:20])) / len(wanted))
    assert quality_tasks.recall(task, rows.__getitem__) == pytest.approx(np.mean(of_users))
