"""The demo's rows: the reader of Criteo files and the generator of rows shaped like them."""

import gzip
import re

import numpy as np
import pytest

from fused_embedding.demo import criteo, synthetic

INTEGERS = ["1", "-3", "0", "", "100", *["2"] * 8]
CATEGORICALS = ["68fd1e64", "", "0", "FFFFFFFF", *["00ab"] * 22]
GOOD = "\t".join(["1", *INTEGERS, *CATEGORICALS])


def with_field(index, value):
    fields = GOOD.split("\t")
    fields[index] = value
    return "\t".join(fields)


def write(path, lines, *, end="\n"):
    path.write_bytes("".join(line + end for line in lines).encode("latin-1"))
    return str(path)


@pytest.fixture
def warnings_logged(monkeypatch):
    messages = []
    monkeypatch.setattr(criteo.logging, "warning", lambda text, *args: messages.append(text % args))
    return messages


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_reads_values_and_empty_fields(tmp_path, end):
    path = write(tmp_path / "rows.tsv", [GOOD, with_field(0, "0")], end=end)
    rows = criteo.read_rows(path, max_rows=10, max_bad_lines=0)
    assert rows.labels.tolist() == [1.0, 0.0]
    want = np.log1p(np.array([1, 0, 0, 0, 100, *[2] * 8])).astype(np.float32)
    np.testing.assert_array_equal(rows.integers, [want, want])
    want = [0x68FD1E64, -1, 0, 0xFFFFFFFF, *[0xAB] * 22]
    assert rows.categoricals.tolist() == [want, want]
    assert [column.dtype for column in rows] == [np.float32, np.float32, np.int64]


def test_categoricals_become_strings_again(tmp_path):
    path = write(tmp_path / "rows.tsv", [GOOD])
    rows = criteo.read_rows(path, max_rows=1, max_bad_lines=0)
    strings = rows.with_strings()
    want = [b"68fd1e64", b"", b"00000000", b"ffffffff", *[b"000000ab"] * 22]
    assert strings.categoricals.tolist() == [want]
    assert strings.labels is rows.labels


def test_reads_gzip_whatever_its_name(tmp_path):
    path = tmp_path / "rows"
    path.write_bytes(gzip.compress((GOOD + "\n").encode() * 5))
    assert len(criteo.read_rows(str(path), max_rows=10, max_bad_lines=0).labels) == 5


def test_stops_after_max_rows(tmp_path):
    path = write(tmp_path / "rows.tsv", [GOOD] * 3 + ["malformed, but never reached"])
    assert len(criteo.read_rows(path, max_rows=3, max_bad_lines=0).labels) == 3


def test_reads_a_last_line_without_end(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text(GOOD + "\n" + GOOD)
    assert len(criteo.read_rows(str(path), max_rows=10, max_bad_lines=0).labels) == 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "1 fields, expected 40 fields: label, I1 to I13, C1 to C26, separated by TABs"),
        (GOOD.partition("\t")[2], "39 fields, expected 40"),
        (GOOD + "\t", "41 fields, expected 40"),
        (with_field(0, "2"), "label = '2' is not 0 or 1"),
        (with_field(0, ""), "label = '' is not 0 or 1"),
        (with_field(3, "1.5"), "I3 = '1.5' is not an integer of up to 18 digits"),
        (with_field(3, "-"), "I3 = '-' is not an integer"),
        (with_field(13, "9" * 19), "I13 = '9999999999999999999' is not an integer"),
        (with_field(14, "xyz"), "C1 = 'xyz' is not up to 8 hex digits"),
        (with_field(39, "0" * 9), "C26 = '000000000' is not up to 8 hex digits"),
        (with_field(14, "caf\xe9"), "byte 34 is 0xe9, which is not ASCII"),
        ("0" * 70_000, "longer than 65,536 bytes"),
    ],
)
def test_reports_and_skips_a_malformed_line(tmp_path, warnings_logged, line, reason):
    path = write(tmp_path / "rows.tsv", [GOOD, line, GOOD])
    rows = criteo.read_rows(path, max_rows=10, max_bad_lines=1)
    assert len(rows.labels) == 2
    message, summary = warnings_logged
    assert summary == f"{path}: malformed lines skipped: 1"
    assert message.startswith(f"{path}:2: {reason}")
    assert message.endswith("; skipped")


@pytest.mark.parametrize("damage", [lambda data: data[:-30], lambda data: data[:-8] + b"x" * 8])
def test_reports_damaged_gzip(tmp_path, warnings_logged, damage):
    rng = np.random.default_rng(0)  # incompressible, so that some rows precede the cut
    lines = [with_field(14, f"{rng.integers(2**32):08x}") for _ in range(200)]
    path = tmp_path / "rows.gz"
    path.write_bytes(damage(gzip.compress("".join(line + "\n" for line in lines).encode())))
    rows = criteo.read_rows(str(path), max_rows=1000, max_bad_lines=1)
    assert 0 < len(rows.labels) <= 200
    message, summary = warnings_logged
    assert summary == f"{path}: malformed lines skipped: 1"
    assert f"{path}:{len(rows.labels) + 1}: the gzip data is damaged or cut off here" in message


def test_too_many_malformed_lines_name_the_option(tmp_path, warnings_logged):
    path = write(tmp_path / "rows.tsv", [GOOD, "a", "b", "c", GOOD])
    message = f"{path} has more than 2 malformed lines, the last is line 4: 1 fields"
    with pytest.raises(criteo.InputError, match=re.escape(message) + ".*raise --max_bad_lines"):
        criteo.read_rows(path, max_rows=10, max_bad_lines=2)
    assert len(warnings_logged) == 3


def test_a_file_without_rows_is_an_error(tmp_path):
    with pytest.raises(criteo.InputError, match="has no rows; expected lines of 40 fields"):
        criteo.read_rows(write(tmp_path / "empty.tsv", []), max_rows=10, max_bad_lines=0)


def test_generated_rows_are_criteo_shaped():
    rows = synthetic.make_rows(20_000, seed=1)
    assert [column.shape for column in rows] == [(20_000,), (20_000, 13), (20_000, 26)]
    assert [column.dtype for column in rows] == [np.float32, np.float32, np.int64]
    assert set(rows.labels) == {0.0, 1.0}
    assert 0.2 < rows.labels.mean() < 0.35
    assert np.isfinite(rows.integers).all()
    assert (rows.integers >= 0).all()
    assert rows.categoricals.max() < 2**32
    for i, size in enumerate(criteo.CARDINALITIES):
        values = rows.categoricals[:, i]
        assert len(np.unique(values[values != criteo.MISSING])) <= size, f"C{i + 1}"
    np.testing.assert_allclose(np.mean(rows.categoricals[:, 21] == criteo.MISSING), 0.82, atol=0.02)


def test_generated_rows_depend_on_the_seed_only():
    first, same, other = (synthetic.make_rows(100, seed) for seed in (3, 3, 4))
    for a, b, c in zip(first, same, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (a != c).any()


@pytest.mark.parametrize("exponent", [0.5, 1.5])
def test_bounded_zipf_follows_its_law(exponent):
    size, n = 50, 200_000
    counts = np.bincount(
        synthetic.bounded_zipf(np.random.default_rng(5), exponent, size, n), minlength=size
    )
    assert len(counts) == size
    edges = np.arange(1, size + 2) ** (1 - exponent)  # of the continuous law that stands for it
    want = n * np.diff(edges) / (edges[-1] - edges[0])
    # Each count is binomial; five standard deviations leave one false alarm in ten thousand runs.
    assert (np.abs(counts - want) < 5 * np.sqrt(want)).all(), (counts, want)
