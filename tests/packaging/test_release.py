"""`make release`: archives with the same bytes, what the check refuses, lists that must agree."""

import email.message
import io
import pathlib
import re
import tarfile
import zipfile

import pytest

import fused_embedding as fe
import sbom
from fused_embedding import distribution
from release import check, reproducible_sdist

ROOT = pathlib.Path(__file__).resolve().parents[2]


def make_archive(path, seconds, mode, user, names):
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode, member.uname = len(name), seconds, mode, user
            archive.addfile(member, io.BytesIO(name.encode()))


def test_archives_of_the_same_files_have_the_same_bytes(tmp_path):
    first, second = tmp_path / "first.tar.gz", tmp_path / "second.tar.gz"
    make_archive(first, 1_000, 0o664, "somebody", ["p/a", "p/b"])
    make_archive(second, 2_000, 0o600, "root", ["p/b", "p/a"])
    assert first.read_bytes() != second.read_bytes()
    for path in (first, second):
        reproducible_sdist.rewrite(path, 1_700_000_000)
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        members = archive.getmembers()
        assert [archive.extractfile(one).read() for one in members] == [b"p/a", b"p/b"]
        assert {(one.mode, one.mtime, one.uname) for one in members} == {(0o644, 1_700_000_000, "")}


def test_a_program_stays_executable(tmp_path):
    make_archive(tmp_path / "a.tar.gz", 1, 0o700, "", ["p/tool.sh"])
    reproducible_sdist.rewrite(tmp_path / "a.tar.gz", 1)
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        assert archive.getmembers()[0].mode == 0o755


def fields(name="fused-embedding", version=fe.__version__, requirement="numpy"):
    message = email.message.Message()
    message["Name"], message["Version"], message["Requires-Dist"] = name, version, requirement
    return message


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "fused-embedding-tf221"}, r"is \('fused-embedding-tf221', .* must be"),
        ({"version": "0.1.0"}, r"is \('fused-embedding', '0.1.0'\), must be"),
        ({"requirement": "tensorflow-cpu==2.21.*"}, "pulls tensorflow-cpu==2.21.* unasked"),
    ],
)
def test_the_check_refuses_metadata(wrong, message):
    path = pathlib.Path("a.whl")
    check.check_metadata(path, fields(), "fused-embedding")
    asked = fields(requirement='tensorflow-cpu==2.21.*; extra == "cpu"')
    check.check_metadata(path, asked, "fused-embedding")
    with pytest.raises(check.ReleaseError, match=message):
        check.check_metadata(path, fields(**wrong), "fused-embedding")


def test_the_check_refuses_a_part_without_rocksdb(tmp_path):
    path = tmp_path / "a.whl"
    metadata = f"Name: fused-embedding-ssd\nVersion: {fe.__version__}\n"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("a-1.dist-info/METADATA", metadata)
        wheel.writestr("fused_embedding/_cold_store_rocksdb.so", "")
    with pytest.raises(check.ReleaseError, match="lacks the library of librocksdb"):
        check.check_ssd(path)


def test_release_notes_are_the_section_of_the_version(tmp_path):
    check.write_notes(tmp_path)
    notes = (tmp_path / "RELEASE_NOTES.md").read_text()
    assert notes.startswith(f"## {fe.__version__}\n")
    assert len(re.findall(r"^## ", notes, re.MULTILINE)) == 1


def test_hashes_cover_every_file(tmp_path, capsys):
    (tmp_path / "a.whl").write_text("a")
    (tmp_path / "RELEASE_NOTES.md").write_text("b")
    check.write_hashes(tmp_path)
    lines = (tmp_path / "SHA256SUMS").read_text().splitlines()
    assert [line.split()[1] for line in lines] == ["RELEASE_NOTES.md", "a.whl"]
    assert lines[1].startswith("ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb")


def test_the_bill_of_materials_names_the_compiler():
    assert sbom.compiler_of(b"\0GCC: (Debian 12.2.0-14+deb12u1) 12.2.0\0") == "12.2.0"
    bom = sbom.of_wheel("fused-embedding-tf221", "0.2.0", "2.21.0", b"GCC: (x) 12.2.0")
    assert bom == sbom.of_wheel("fused-embedding-tf221", "0.2.0", "2.21.0", b"GCC: (x) 12.2.0")
    assert bom["metadata"]["component"]["purl"] == "pkg:pypi/fused-embedding-tf221@0.2.0"
    without = sbom.of_wheel("a", "1", "2.21.0", b"clang")
    assert "libstdc++" not in [part["name"] for part in without["components"]]


def test_a_release_has_a_wheel_for_each_distribution():
    makefile = (ROOT / "Makefile").read_text()
    minors = re.search(r"^MINORS \?= (.*)$", makefile, re.MULTILINE)[1].split()
    assert minors == list(distribution.OF_TENSORFLOW)


def test_the_hosted_ci_calls_the_same_commands():
    workflow = (ROOT / ".github/workflows/release.yml").read_text()
    commands = re.findall(r"- run: (make .*)", workflow)
    assert commands == ["make ci", "make release"]
    targets = re.findall(r"^(ci|release):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(targets) == ["ci", "release"]
