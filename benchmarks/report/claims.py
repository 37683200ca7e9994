"""The tables of docs/performance.md from the committed results: what is claimed, what loses."""

import pathlib
from collections.abc import Iterable, Iterator

from benchmarks.harness import machine, workloads
from benchmarks.report import dense_reports, markdown, results, tier_reports

AMD, INTEL = "amd-epyc-2-cores", "intel-xeon-2-cores"
MACHINES = {INTEL: "Intel Xeon", AMD: "AMD EPYC"}
# Workloads of one thread, and the benchmarks that they were measured by.
WORKLOADS = {
    "W1: 26 columns": ("W1-t1",),
    "W4: 26 columns, Criteo's sizes": ("W4-t1",),
    "W3: 200 columns": ("W3-t1",),
    "W2: 20 ids in a row": ("W2-t1",),
    "amazon_book: real lists": ("amazon_book-t1",),
    "gowalla: real lists": ("gowalla-t1",),
}
LOADS_SECTION = "other-sizes-and-shapes"
PHASES = ("forward", "sgd", "adagrad")
SERVING_TARGETS = {1: 60, 16: 80, 64: 100}  # batch: median us of W1 for one caller
Row = tuple[str, str, str]  # what, the figure, and the section of a results page


class Results:
    """The newest results of a machine, by benchmark."""

    def __init__(self, name: str) -> None:
        self.name = name
        records = results.newest(machine.RESULTS / name)
        self._of = {results.benchmark(pathlib.Path(r["file"])): r for r in records}

    def record(self, benchmark: str) -> dict:
        """Returns the newest result of a benchmark."""
        return self._of[benchmark]

    def cells(self, benchmark: str) -> dict[str, dict]:
        """Returns the systems of each phase of a benchmark."""
        return {cell["phase"]: cell["systems"] for cell in self._of[benchmark]["cells"]}

    def records(self) -> list[dict]:
        """Returns the newest result of each benchmark."""
        return list(self._of.values())

    def link(self, text: str, section: str) -> str:
        """Returns a link from docs/performance.md to a section of the machine's page."""
        return f"[{text}](results/{self.name}.md#{section})"


def overview() -> str:
    """Returns ours beside each other system, for each machine, workload and step."""
    return "\n\n".join(f"**{MACHINES[name]}**\n\n{_overview(Results(name))}" for name in MACHINES)


def _overview(of: Results) -> str:
    head = ["workload, one thread", "step", "ms", "over stock", "over EmbeddingBag", "over TBE"]
    lines = markdown.head([*head, "x limit (target)"])
    for text, benchmarks in WORKLOADS.items():
        for phase in PHASES:
            entry = of.cells(benchmarks[0])[phase][dense_reports.OURS[phase]]
            axes = of.record(benchmarks[0])["axes"]
            speedups = _speedups(of, benchmarks, phase)
            row = [text, markdown.PHASES[phase], markdown.milliseconds(entry)]
            for other in ("stock", *dense_reports.PEERS):
                row.append(markdown.speedup(speedups[other]) if other in speedups else "")
            lines.append(markdown.row([*row, dense_reports.x_limit(entry, phase, axes)]))
    return "\n".join(lines)


def claims() -> str:
    """Returns what else is claimed, a line each."""
    of, intel = Results(AMD), Results(INTEL)
    rows = [
        *_claims_of_sizes(of, intel),
        *_claims_of_tables(of, intel),
        *_claims_of_serving(of),
        *_claims_of_tiers(of),
    ]
    return _table(("what", "figure", "table"), rows)


def _claims_of_sizes(of: Results, intel: Results) -> Iterator[Row]:
    link = of.link("sizes", "sizes")
    for phase, text in (("forward", "Forward pass"), ("adagrad", "Step with Adagrad")):
        name = dense_reports.OURS[phase]
        speedups = [
            cell["systems"][name]["speedup_over"]["stock"]["median"]
            for cell in of.record("sweep-t1")["cells"]
            if cell["phase"] == phase
        ]
        what = f"{text} over stock, batch 64 to 16,384, dim 4 to 128, 1 to 300 columns"
        yield what, _range(speedups), link
    systems = of.cells("W1-t1")["adagrad"]
    kernels = f"{systems['group_fused']['kernels']}, stock {systems['stock']['kernels']}"
    yield "Kernels in a step of W1 with Adagrad", kernels, of.link("workloads", "workloads")
    ops = [
        cell["systems"]["fused"]["speedup_over"]["stock"]["median"]
        for record in intel.records()
        if "op" in record["axes"]
        for cell in record["cells"]
    ]
    link = intel.link("single ops", "single-ops")
    yield "Single ops over the stock ops that they replace", _range(ops), link


def _claims_of_tables(of: Results, intel: Results) -> Iterator[Row]:
    link = of.link("raw tables", "tables-without-a-vocabulary")
    cells = of.cells("raw_table-t1")
    for phase, text in (
        ("insert", "New keys inserted a second"),
        ("find_uniform", "Uniform keys found a second"),
        ("find_zipf", "Zipf keys found a second"),
        ("find_missing", "Absent keys looked up a second"),
    ):
        plain, slots = (
            cells[phase][f"ours{suffix}"]["speedup_over"][f"tfra{suffix}"]["median"]
            for suffix in ("", "_adagrad")
        )
        what = f"{text}, over recommenders-addons"
        yield what, f"{plain:.2f}; with Adagrad's slot {slots:.2f}", link
    tails = [
        cells[phase][f"ours{suffix}"]["p999_of"][f"tfra{suffix}"]
        for phase in ("grow_65536", "grow_4096")
        for suffix in ("", "_adagrad")
    ]
    what = "p99.9 of an insert while the table grows, over recommenders-addons'"
    yield what, _range(tails), link
    ours, peer = (cells["memory"][name] for name in ("ours_adagrad", "tfra_adagrad"))
    figure = f"{ours['bytes_per_entry']}, recommenders-addons {peer['bytes_per_entry']}"
    yield "Bytes of a key with its row and Adagrad's slot, dim 16", figure, link
    growth = intel.record("W5-t1")["cells"][0]
    limit = growth["limit_late_over_early"]
    figure = f"{growth['late_over_early']:.2f}, the limit loop's {limit:.2f}"
    what = "20,000 steps of growth and expiry: time of the last steps over step 2,000's"
    yield what, figure, intel.link("growth", "growth-and-drift")


def _claims_of_serving(of: Results) -> Iterator[Row]:
    shares = [_share(of, batch, "export_fused") for batch in (1, 64)]
    what = "Requests to a click model's export of fused ops, 1 and 64 rows: time over stock's"
    yield what, _both(shares), of.link("exports", "exports")
    figures = [_serving(of, batch, 1) for batch in SERVING_TARGETS]
    text = ", ".join(f"{ours:.0f} ({stock:.0f})" for ours, stock in figures)
    what = "W1 at batch 1, 16 and 64, one caller: median us (stock's)"
    yield what, text, of.link("serving", "serving")


def _claims_of_tiers(of: Results) -> Iterator[Row]:
    link = of.link("tier", "tier-on-an-ssd")
    shares = of.cells("cold_reads-8000000")["cold_reads"]["table"]
    text = f"{shares['speed_of_bare']['median']:.2f}, {shares['speed_of_fio']['median']:.2f}"
    yield "Fetches from the SSD, over RocksDB alone and over fio", text, link
    pull, push = (
        of.cells("tier_peers-2000000")[phase]["ours"]["speedup_over"]["damo"]["median"]
        for phase in ("pull", "push")
    )
    yield "Pulls and pushes over Damo-Embedding's", _both([pull, push]), link
    cells = of.record("tier_clicks-2000000")["cells"]
    points = [tier_reports.points(cell) for cell in cells]
    text = f"{min(points):+.1f} to {max(points):+.1f} points"
    yield "Hits of memory with `LFU`, over the better of exact LRU and LFU", text, link
    drift = of.record("soak-120")["cells"][0]["drift_percent"]["resident_bytes"]
    yield "Two hours of training and saving: drift of memory", f"{drift:+.2f} %", link


def losses() -> str:
    """Returns what is slower than a peer, or misses its target, a line each."""
    of = Results(AMD)
    rows = [
        *(loss for name in MACHINES for loss in _losses_of_workloads(Results(name))),
        *_losses_of_scaling(of),
        *_losses_of_serving(of),
        *_losses_of_tiers(of),
    ]
    return _table(("what", "figure", "why"), rows)


def _losses_of_workloads(of: Results) -> Iterator[Row]:
    yield from _slower_than_peers(of)
    yield from _missed_limits(of)


def _losses_of_scaling(of: Results) -> Iterator[Row]:
    gains = [gain(of, name) for name in ("group", "limit")]
    figure = f"**{gains[0]:.2f}**, the limit loop {gains[1]:.2f}"
    what = "Speedup of W1's forward pass by a second thread"
    yield what, figure, of.link("causes", "workloads")
    columns = of.cells("one_table-W3-t1")["forward"]["columns"]["of_one_table"]["median"]
    what = "200 columns, forward: time over that of one column with the same ids"
    yield what, f"**{columns:.2f}**", of.link("columns", "many-columns")


def _slower_than_peers(of: Results) -> Iterator[Row]:
    for text, benchmarks in (WORKLOADS | _loads(of)).items():
        link = of.link("causes", "workloads")
        link = link if text in WORKLOADS else of.link("loads", LOADS_SECTION)
        for phase in PHASES:
            speedups = _speedups(of, benchmarks, phase)
            slower = {
                dense_reports.OTHERS[peer][0]: markdown.speedup(speedups[peer])
                for peer in dense_reports.PEERS
                if peer in speedups and speedups[peer]["median"] < 1
            }
            if slower:
                what = f"{_step(of, text, phase)}: time of {' and '.join(slower)} over ours"
                yield what, " and ".join(slower.values()), link


def _loads(of: Results) -> dict[str, tuple[str]]:
    """Benchmarks of the workloads A to H that were measured."""
    names = {record["axes"].get("workload"): record for record in of.records() if "ids" in record}
    return {
        f"{name}: {names[name]['ids']['summary']}": (f"{name}-t1",)
        for name in workloads.LOADS
        if name in names
    }


def _step(of: Results, workload: str, phase: str) -> str:
    return f"{workload.split(':')[0]}, {markdown.PHASES[phase]}, {MACHINES[of.name]}"


def _speedups(of: Results, benchmarks: tuple[str, ...], phase: str) -> dict[str, dict]:
    """The speedups of ours over each other system; of several results, the first that has it."""
    found: dict[str, dict] = {}
    for benchmark in benchmarks[::-1]:
        if phase in of.cells(benchmark):
            ours = of.cells(benchmark)[phase][dense_reports.OURS[phase]]
            others = {name: dense_reports.speedup_over(ours, name) for name in dense_reports.OTHERS}
            found |= {name: speedup for name, speedup in others.items() if speedup}
    return found


def _missed_limits(of: Results) -> Iterator[Row]:
    for text, benchmarks in WORKLOADS.items():
        for phase in PHASES:
            entry = of.cells(benchmarks[0])[phase][dense_reports.OURS[phase]]
            axes = of.record(benchmarks[0])["axes"]
            figure = dense_reports.x_limit(entry, phase, axes)
            if figure.startswith("**"):
                what = f"{_step(of, text, phase)}: time over the limit loop's (target)"
                yield what, figure, of.link("causes", "workloads")


def gain(of: Results, name: str) -> float:
    """Returns how many times as fast a system's forward pass of W1 is with a second thread."""
    one, two = (of.cells(f"W1-t{n}")["forward"][name]["median_us"] for n in (1, 2))
    return one / two


def _losses_of_serving(of: Results) -> Iterator[Row]:
    link = of.link("serving", "serving")
    for batch, target in SERVING_TARGETS.items():
        ours = _serving(of, batch, 1)[0]
        if ours > target:
            yield f"W1 at batch {batch}: median us (target)", f"**{ours:.0f}** ({target})", link
    ours, stock = _serving(of, 1, 4)
    if ours > stock:
        what = "W1 at batch 1, four callers on two cores: median us, stock's"
        yield what, f"**{ours:.0f}**, {stock:.0f}", link
    link = of.link("exports", "exports")
    shares = [_share(of, batch, "export_stock") for batch in (1, 64)]
    what = "Export of stock ops, 1 and 64 rows: time over stock's"
    yield what, f"**{_both(shares)}**", link
    shares = [_share(of, batch, "export_onnx") for batch in (1, 64)]
    yield "The same as an ONNX file in onnxruntime", f"**{_both(shares)}**", link


def _losses_of_tiers(of: Results) -> Iterator[Row]:
    link = of.link("tier", "tier-on-an-ssd")
    cells = of.cells("tiers-20000000")["adagrad"]
    shares = [cells[name]["speed_of_memory"]["median"] for name in ("ssd", "ssd_prefetch")]
    target = tier_reports.TARGETS["speed_of_memory"]
    what = "Training with a tier on an SSD, without and with rows fetched ahead: speed over"
    what += f" that in memory (target {target})"
    yield what, f"**{_both(shares)}**", link
    target = tier_reports.TARGETS["memory"]
    for num_keys in (5_000_000, 20_000_000, 50_000_000):
        (cell,) = of.cells(f"tier_memory-{num_keys}").values()
        grown = cell["ssd_prefetch"]["grown_of_budget"]
        if grown > target:
            what = f"Memory of a process with a tier, {num_keys:,} keys, over its budget"
            yield f"{what} (target {target})", f"**{grown:.2f}**", link


def _serving(of: Results, batch: int, callers: int) -> tuple[float, float]:
    """Median microseconds of a grouped lookup and of stock."""
    cells = of.record(f"serving-W1-b{batch}")["cells"]
    systems = next(cell["systems"] for cell in cells if cell["callers"] == callers)
    return systems["group"]["p50_us"], systems["stock"]["p50_us"]


def _share(of: Results, batch: int, server: str) -> float:
    """Median time of a server over that of stock TensorFlow with fixed vocabularies."""
    systems = of.cells(f"exports-b{batch}")["exports"]
    return systems[server]["p50_us"] / systems["stock"]["p50_us"]


def _range(values: Iterable[float]) -> str:
    values = sorted(values)
    return f"{values[0]:.2f} to {values[-1]:.2f}"


def _both(values: Iterable[float]) -> str:
    return " and ".join(f"{value:.2f}" for value in values)


def _table(names: tuple[str, ...], rows: Iterable[Row]) -> str:
    return "\n".join([*markdown.head(names), *map(markdown.row, rows)])
