"""The pages of results: their tables, and the figures in the text around these."""

import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are no installed package

from benchmarks.report import claims, page, results  # noqa: E402

AMD_PAGE, INTEL_PAGE = (f"docs/results/{name}.md" for name in (claims.AMD, claims.INTEL))
PAGES = page.pages()
AMD, INTEL = claims.Results(claims.AMD), claims.Results(claims.INTEL)
DECIMAL = re.compile(r"(?<![\w.])\d[\d,]*\.\d+(?![\w.]*\w)")
# Decimals of a page's text that are no measurements: targets, versions, parameters.
CONSTANTS = {
    "docs/performance.md": set(),
    "docs/accelerate.md": {"2.15"},  # versions
    "docs/results/README.md": {"1.05"},  # the exponent of ids
    AMD_PAGE: {"0.3", "1.2", "0.85", "2.5"},  # targets
    INTEL_PAGE: set(),
}


def over(benchmark, phase, peer, of=AMD):
    """The time of another system over ours."""
    ours = of.cells(benchmark)[phase][page.dense_reports.OURS[phase]]
    return page.dense_reports.speedup_over(ours, peer)["median"]


def over_of(benchmark, ours, peer):
    """The same of a benchmark with one cell."""
    [cell] = AMD.cells(benchmark).values()
    return cell[ours]["speedup_over"][peer]["median"]


def range_over_tbe(of, phase):
    """The least and the most that TBE takes of our time, one thread, of a machine's workloads."""
    ours = page.dense_reports.OURS[phase]
    speedups = [
        page.dense_reports.speedup_over(cell["systems"][ours], "fbgemm_tbe")
        for record in of.records()
        if "ids" in record and record["axes"]["threads"] == 1
        for cell in record["cells"]
        if cell["phase"] == phase and ours in cell["systems"]
    ]
    medians = [speedup["median"] for speedup in speedups if speedup]
    return [min(medians), max(medians)]


def x_limit(of, benchmark, phase, name):
    return of.cells(benchmark)[phase][name]["x_limit"]["median"]


def milliseconds_of_the_limit():
    """The dense loop's, beside tables by key and in W1."""
    names = ("W1-keyed-t1", "W1-t1")
    return [AMD.cells(name)["forward"]["limit"]["median_us"] / 1e3 for name in names]


def keyed_over_the_limit():
    """A group's forward pass, the loop by key, and the group's step with Adagrad."""
    name = "W1-keyed-t1"
    forward, step = (x_limit(AMD, name, phase, "ev_group") for phase in ("forward", "adagrad"))
    loops = AMD.cells(name)["forward"]
    return [forward, loops["limit_by_key"]["median_us"] / loops["limit"]["median_us"], step]


def serving(name):
    return [
        cell["systems"][name]["p50_us"]
        for batch in claims.SERVING_TARGETS
        for cell in AMD.record(f"serving-W1-b{batch}")["cells"]
        if cell["callers"] == 1
    ]


def calls_of_four(*names):
    cell = AMD.record("serving-W1-b16")["cells"][1]
    assert cell["callers"] == 4
    return [cell["systems"][name]["calls_per_second"] for name in names]


def exports(server):
    systems = [AMD.cells(f"exports-b{batch}")["exports"] for batch in (1, 64)]
    return [each[server]["p50_us"] / each["stock"]["p50_us"] for each in systems]


def longest_under_deltas():
    cells = [cell for b in (1, 64) for cell in AMD.record(f"exports-b{b}")["cells"][1:]]
    longest = [of["longest_us"] / 1e3 for cell in cells for of in cell["systems"].values()]
    return min(longest), max(longest)


def steps_of_tiers(name):
    record = AMD.record("tiers-20000000")
    axes = record["axes"]
    num_steps = axes["rounds"] * (axes["block"] + axes["untimed"]) + 5
    of = record["cells"][0]["systems"]["ssd_prefetch"]
    return of[name] / num_steps


def reads_per_second():
    of = AMD.cells("tiers-20000000")["adagrad"]["ssd_prefetch"]
    return steps_of_tiers("disk_reads") / of["median_us"] * 1e6


def fio():
    return AMD.record("tiers-20000000")["cells"][0]["fio_reads_per_second"]


def speeds_of_tiers():
    of = AMD.cells("tiers-20000000")["adagrad"]
    return [of[name]["speed_of_memory"]["median"] for name in ("ssd", "ssd_prefetch")]


def memory(name, *num_keys):
    cells = [AMD.record(f"tier_memory-{n}")["cells"][0]["systems"] for n in num_keys]
    return [cell["ssd_prefetch"][name] for cell in cells]


def gigabytes_beyond_the_budget(name, *num_keys):
    budgets = memory("budget", *num_keys)
    return [(of - 1) * b / 1e9 for of, b in zip(memory(name, *num_keys), budgets, strict=True)]


def drifts(*names):
    return [AMD.record("soak-120")["cells"][0]["drift_percent"][name] for name in names]


def gains():
    group, loop = claims.gain(AMD, "group"), claims.gain(AMD, "limit")
    return group, loop, group / loop


def finds():
    of = INTEL.cells("raw_table-t1")["find_uniform"]
    return of["ours"]["x_limit"]["median"], of["tfra"]["x_limit"]["median"]


def seconds_of_layers(*phases):
    of = AMD.cells("vocabulary-StringLookup-keras-n1000000-t1")
    return [
        of[phase][system]["median_us"] / 1e6 for phase in phases for system in ("fused", "stock")
    ]


def inserts_and_finds():
    of = AMD.cells("raw_table-t1")
    phases = ("insert", "overwrite", "find_uniform", "find_zipf", "find_missing")
    speedups = [of[phase]["ours"]["speedup_over"]["tfra"]["median"] for phase in phases]
    return min(speedups), max(speedups)


FOUR_CALLERS = "batch 1, four callers on two cores: median us, stock's"
KEYS = (5_000_000, 20_000_000, 50_000_000)
# A page, words on it, and the figures that these have.
QUOTES = [
    (
        AMD_PAGE,
        "took {:.2f} ms here, beside the other tables, and {:.2f} ms a day earlier in the process",
        milliseconds_of_the_limit(),
    ),
    (
        AMD_PAGE,
        "of `ev_group` takes {:.2f} times the limit, beyond its target of 2.5, and the loop by key "
        "takes {:.2f} times; its step with Adagrad takes {:.2f} times",
        keyed_over_the_limit(),
    ),
    (
        AMD_PAGE,
        "TBE takes {:.2f} to {:.2f} times the time of our forward pass, {:.2f} to {:.2f} times "
        "that of a step with SGD, and {:.2f} to {:.2f} times that of a step with Adagrad",
        [each for phase in ("forward", "sgd", "adagrad") for each in range_over_tbe(AMD, phase)],
    ),
    (
        AMD_PAGE,
        "TBE takes {:.2f} of our time on G256_mean, {:.2f} on A, {:.2f} on B and {:.2f} on W2;",
        [over(f"{name}-t1", "forward", "fbgemm_tbe") for name in ("G256_mean", "A", "B", "W2")],
    ),
    (
        AMD_PAGE,
        "EmbeddingBag takes {:.2f} on B and {:.2f} on W2.",
        [over(f"{name}-t1", "forward", "torch_embedding_bag") for name in ("B", "W2")],
    ),
    (
        AMD_PAGE,
        "TBE takes {:.2f} of our time in this run",
        [over("gowalla-t1", "sgd", "fbgemm_tbe")],
    ),
    (
        AMD_PAGE,
        "takes {:.2f} of the limit. TBE takes {:.2f} times our time",
        [x_limit(AMD, "W2-t1", "sgd", "group_fused"), over("W2-t1", "sgd", "fbgemm_tbe")],
    ),
    (
        AMD_PAGE,
        "TBE takes {:.2f} times the time of our step with Adagrad on W1, {:.2f} times on W3",
        [over(f"{name}-t2", "adagrad", "fbgemm_tbe") for name in ("W1", "W3")],
    ),
    (
        AMD_PAGE,
        "becomes {:.2f} times as fast, the limit loop {:.2f} times: {:.2f} of it",
        gains(),
    ),
    (AMD_PAGE, "takes {:.0f}, {:.0f} and {:.0f} us at batch 1, 16 and 64", serving("group")),
    (AMD_PAGE, "dense ids takes {:.0f}, {:.0f} and {:.0f} us.", serving("plain")),
    (
        AMD_PAGE,
        "answers the most calls a second: {:,}, a plain gather {:,}, stock {:,}",
        calls_of_four("group", "plain", "stock"),
    ),
    (AMD_PAGE, "takes {:.2f} (one row) and {:.2f} (64 rows) of", exports("export_stock")),
    (AMD_PAGE, "An export of fused ops takes {:.2f} and {:.2f}.", exports("export_fused")),
    (AMD_PAGE, "onnxruntime takes {:.2f} and {:.2f}:", exports("export_onnx")),
    (AMD_PAGE, "The longest takes {:.0f} to {:.0f} ms.", longest_under_deltas()),
    (
        AMD_PAGE,
        "{:.2f} of the speed of the table in memory, {:.2f} with rows fetched ahead",
        speeds_of_tiers(),
    ),
    (
        AMD_PAGE,
        "A step fetches {:,.0f} rows with {:,.0f} reads, {:,.0f} a second. That is {:.0f} %",
        [
            *map(steps_of_tiers, ("cold_gets", "disk_reads")),
            reads_per_second(),
            200 * reads_per_second() / sum(fio()),
        ],
    ),
    (AMD_PAGE, "{:,.0f} a second before and {:,.0f} after it", fio()),
    (
        AMD_PAGE,
        "{:.2f} budgets with 5e7 keys (target 1.2), {:.2f} with 2e7 and {:.2f} with 5e6",
        memory("grown_of_budget", *KEYS[::-1]),
    ),
    (
        AMD_PAGE,
        "while the table counts {:.2f}, {:.2f} and {:.2f}",
        memory("memory_of_budget", *KEYS[::-1]),
    ),
    (
        AMD_PAGE,
        "The rest, {:.2f} to {:.2f} GB",
        gigabytes_beyond_the_budget("grown_of_budget", KEYS[0], KEYS[2]),
    ),
    (
        AMD_PAGE,
        "{:,} steps and {} saves: in the second hour",
        [AMD.record("soak-120")["series"][-1][name] for name in ("steps", "saves")],
    ),
    (
        AMD_PAGE,
        "memory drifted by {:.2f} %, descriptors by {:.2f} %, the table's own memory by {:+.2f} %",
        drifts("resident_bytes", "descriptors", "table_bytes"),
    ),
    (
        INTEL_PAGE,
        "TBE takes {:.2f} to {:.2f} times the time of our forward pass, {:.2f} to {:.2f} times "
        "that of a step with SGD, and {:.2f} to {:.2f} times that of a step with Adagrad",
        [each for phase in ("forward", "sgd", "adagrad") for each in range_over_tbe(INTEL, phase)],
    ),
    (
        INTEL_PAGE,
        "forward pass takes {:.2f} of the limit. It",
        [x_limit(INTEL, "W2-t1", "forward", "group")],
    ),
    (
        INTEL_PAGE,
        "They take {:.2f} of the limit on W2 and {:.2f} on W3",
        [x_limit(INTEL, f"{name}-t1", "sgd", "group_fused") for name in ("W2", "W3")],
    ),
    (INTEL_PAGE, "Their uniform finds take {:.2f} of the limit loop's time. The loop", finds()[:1]),
    (INTEL_PAGE, "itself is {:.2f} times as fast as the peer", finds()[1:]),
    (
        INTEL_PAGE,
        "the last, {:.2f}, is in the table",
        [INTEL.cells("raw_table-t1")["find_uniform"]["ours"]["speedup_over"]["tfra"]["median"]],
    ),
    (
        INTEL_PAGE,
        "to {:.3f} of its time, where the step took {:.3f}",
        [
            INTEL.record("W5-t1")["cells"][0][name]
            for name in ("limit_late_over_early", "late_over_early")
        ],
    ),
    (
        "README.md",
        "({:.1f} times as fast on the sizes of Criteo's tables, {:.1f} on tables of a million",
        [over(name, "adagrad", "stock") for name in ("W4-t1", "W1-t1")],
    ),
    (
        "docs/index.md",
        "is {:.1f} times as fast as stock TensorFlow at its best settings**, on tables of a "
        "million rows; on tables of Criteo's sizes {:.1f} times. FBGEMM's CPU tables take {:.1f} "
        "and {:.1f} times",
        [
            over(name, "adagrad", of)
            for of in ("stock", "fbgemm_tbe")
            for name in ("W1-t1", "W4-t1")
        ],
    ),
    (
        "README.md",
        "take {:.1f} and {:.1f} times as long as ours, PyTorch's EmbeddingBag {:.1f} times",
        [
            *(over(name, "adagrad", "fbgemm_tbe") for name in ("W4-t1", "W1-t1")),
            over("W1-t1", "adagrad", "torch_embedding_bag"),
        ],
    ),
    (
        "README.md",
        "({:.1f} times as fast as stock at its best, {:.1f} times as stock at its defaults). From "
        "strings to rows, `input_layer` is {:.0f} times as",
        [
            over_of("accelerate-wide_deep-t1", "accelerate", "stock"),
            over_of("accelerate-wide_deep-t1", "accelerate", "stock_default"),
            over_of("input_layer-string-t1", "fused", "stock"),
        ],
    ),
    *(
        (name, "takes up to {:.0f} % less time where rows", [lost])
        for lost in [100 - 100 * range_over_tbe(AMD, "forward")[0]]
        for name in ("README.md", "docs/index.md")
    ),
    ("README.md", "Inserts and finds are {:.0f} to {:.0f} times", inserts_and_finds()),
    ("README.md", "trains at {:.2f} to {:.2f} of the speed of one in memory", speeds_of_tiers()),
    (
        "docs/training.md",
        "takes {:.2f} times as long as that of a TF1 session with the fused step, a clone by "
        "`fe.keras.group` {:.2f} times, and stock's layers with stock's Adagrad {:.0f} times",
        [
            AMD.cells("keras_group-b512-t1-wall")["step"][system]["times_session"]["median"]
            for system in ("group", "group_model", "stock")
        ],
    ),
    (
        "docs/training.md",
        "building takes {:.2f} s (stock {:.2f}), `adapt` {:.2f} s ({:.2f}), saving what it learned "
        "{:.2f} s ({:.2f}), loading that {:.2f} s ({:.2f}); a served SavedModel loads slower, "
        "{:.2f} s ({:.2f}).",
        seconds_of_layers("build", "adapt", "save", "load", "serve"),
    ),
    (
        "docs/optimizers.md",
        "has its peak at {:.2f} times the bytes of tables and slots, with stock's optimizer at "
        "{:.2f} times",
        [
            AMD.cells("training_memory-W1-t1")["AdagradOptimizer"][system]["over_content"]
            for system in ("ours", "stock")
        ],
    ),
    (
        "docs/serving.md",
        "an export of stock ops takes {:.2f} or {:.2f} times as long as stock",
        exports("export_stock"),
    ),
    ("docs/serving.md", "an export of fused ops {:.2f} or {:.2f} times", exports("export_fused")),
    (
        "docs/storage_tiers.md",
        "measured: B plus {2:.2f} GB, with a peak of B plus {3:.2f} GB. At B = 0.34 GB: {0:.2f} "
        "and {1:.2f} GB. At K = 5e7 and B = 3.4 GB: {4:.2f} and {5:.2f} GB.",
        [
            gigabytes
            for num_keys in KEYS
            for name in ("grown_of_budget", "most_of_budget")
            for gigabytes in gigabytes_beyond_the_budget(name, num_keys)
        ],
    ),
]


def text_of(name):
    """A page's text without its tables and line breaks."""
    text = page.BLOCK.sub("", (ROOT / name).read_text())
    text = re.sub(r"^\|.*|^    .*", "", text, flags=re.MULTILINE) if "results" in name else text
    return re.sub(r"\s+", " ", re.sub(r"^\* ", "", text, flags=re.MULTILINE))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_tables_of_a_page_are_those_of_the_results(path):
    text = path.read_text()
    assert page.updated(text, PAGES[path]) == text, "python -m benchmarks.report.page"


@pytest.mark.parametrize(("name", "words", "figures"), QUOTES)
def test_a_figure_in_the_text_is_that_of_a_result(name, words, figures):
    assert words.format(*figures) in text_of(name)


@pytest.mark.parametrize("name", CONSTANTS)
def test_each_figure_in_the_text_is_compared_or_said_not_to_be_kept(name):
    text = text_of(name)
    for page_of_quote, words, figures in QUOTES:
        if page_of_quote == name:
            text = text.replace(words.format(*figures), "")
    sentences = re.split(r"(?<=\.) ", text)
    left = [s for s in sentences if "not kept" not in s and unknown(s, CONSTANTS[name])]
    assert left == []


def unknown(sentence, constants):
    return set(DECIMAL.findall(sentence)) - constants


@pytest.mark.parametrize(
    ("ours", "losses"),
    [
        (59, []),
        (90, ["batch 1: median us (target)", "batch 16: median us (target)", FOUR_CALLERS]),
    ],
)
def test_small_batches_are_losses_where_they_are_slower(monkeypatch, ours, losses):
    monkeypatch.setattr(claims, "_serving", lambda of, batch, callers: (ours, 60))
    rows = [row for row in claims._losses_of_serving(AMD) if row[0].startswith("W1 at ")]
    assert [what for what, *_ in rows] == [f"W1 at {loss}" for loss in losses]
    assert all(f"**{ours}**" in figure for _, figure, _ in rows)


def test_a_figure_that_nothing_compares_is_noticed():
    assert unknown("It takes 1.02 of the limit (0.9), 1,234.5 GB of v0.8.1 and 16.", {"0.9"}) == {
        "1.02",
        "1,234.5",
    }


@pytest.mark.parametrize("folder", results.folders(), ids=lambda folder: folder.name)
def test_each_result_is_on_the_page_of_its_machine(folder):
    text = (page.DOCS / "results" / f"{folder.name}.md").read_text()
    for path in folder.glob("*.json"):
        if '"schema"' in path.read_text():
            assert f"/{path.name})" in text, path.name


def test_a_page_has_a_block_for_each_kind_of_result():
    blocks = {"caption": "AMD", "op": "| op |"}
    text = page.new_page("A machine", blocks)
    assert page.updated(text.replace("AMD", "Intel"), blocks) == text
    with pytest.raises(ValueError, match=r"has blocks \['caption', 'op'\], but .* \['caption'\]"):
        page.updated(text, {"caption": "AMD"})


LINK = re.compile(r"\]\(([^)#\s]*)(?:#([\w-]+))?\)")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_links_of_a_page_lead_somewhere(path):
    for file, section in LINK.findall(path.read_text()):
        target = (path.parent / file) if file else path
        assert target.exists(), file
        heads = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE) if section else []
        anchors = {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}
        assert not section or section in anchors, (file, section)
