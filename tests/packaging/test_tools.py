import json
import shutil
import subprocess
import sys
import zipfile

import pytest

import check_repo
import compare_wheels
import gen_op_reference
import import_rules
import stage

# Built up, so that the rule which looks for tests does not take this file for C++ or find a test.
CPP_TEST = "TEST" + "(Span, IsEmpty) {}\n"
ROCKSDB = "fused_embedding/_cold_store_rocksdb.so"
PYTHON_TEST = "def " + "test_it():\n    pass\n"

VIOLATIONS = {
    "tf_ops/core/lookup/rows/a.h": (
        '#include "tensorflow/core/status.h"\n',
        "core must not include",
    ),
    "tf_ops/core/lookup/a.h": ("", "tf_ops/core/lookup/a.h: no room that"),
    "tf_ops/core/lookup/stages/a.h": (
        '#include "tf_ops/core/lookup/group/a.h"\n',
        "includes group, but stages is not above it",
    ),
    "tests/oracle/a.py": ("import tensorflow as tf\n", "1: an oracle imports only numpy"),
    "tf_ops/ops/a_op.cc": ("", "tests/ops/test_a.py: missing, but tf_ops/ops/a_op.cc exists"),
    "docs/a.md": ("`[x](c.md)` [x](b.md)\n", "docs/a.md: the link to b.md is dead: there is no"),
    "benchmarks/README.md": ("# A b\n[x](#a-b) [x](#a)\n", "to #a is dead: no heading there has"),
    "python/a.py": ("\n" * 501, "501 lines, split it"),
    "python/CamelCase.py": ("", "has a snake_case name"),
    "tests/ops/lookup.py": (PYTHON_TEST, "must be named tests/**/test_NAME.py"),
    "python/test_lookup.py": (PYTHON_TEST, "must be named tests/**/test_NAME.py"),
    "tests/cpp/span.cc": (CPP_TEST, "must be named tests/cpp/NAME_test.cc"),
    "python/fused_embedding/ops/a.py": (
        "def f():\n    from fused_embedding.keras import layers\n",
        "fused_embedding.ops.a:2: imports keras, not below it",
    ),
    "python/fused_embedding/checkpoint/a.py": (
        "from fused_embedding.lookup.run import run_lookup\n",
        "checkpoint.a:1: imports lookup.run, not below it",
    ),
    "python/fused_embedding/attic/a.py": ("", "fused_embedding.attic.a: attic is no room"),
    "python/fused_embedding/ops/b.py": (
        "from fused_embedding.ops import b\n",
        "a circle of imports: ops.b -> ops.b",
    ),
}


@pytest.mark.parametrize("path", VIOLATIONS)
def test_rule_finds_violation(tmp_path, monkeypatch, capsys, path):
    content, message = VIOLATIONS[path]
    monkeypatch.setattr(check_repo, "ROOT", tmp_path)
    monkeypatch.setattr(check_repo, "CORE", tmp_path / "tf_ops/core")
    assert check_repo.main() == 0
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(content)
    capsys.readouterr()
    assert check_repo.main() == 1
    assert message in capsys.readouterr().out


def test_imports_of_a_package(tmp_path):
    (tmp_path / "keras").mkdir()
    (tmp_path / "keras/__init__.py").touch()
    (tmp_path / "keras/layers.py").touch()
    (tmp_path / "a.py").write_text(
        f"if TYPE_CHECKING:\n    from {tmp_path.name}.keras import layers\n"
        f"import {tmp_path.name}.keras.layers\nimport os\n"
        f"def f():\n    from {tmp_path.name}.keras import name\n"
        f"from {tmp_path.name} import keras\n"
    )
    imports = import_rules.imports_of(tmp_path)
    assert imports == {"keras": {}, "keras.layers": {}, "a": {"keras.layers": 3, "keras": 7}}


def test_rules_hold_here():
    assert check_repo.main() == 0


@pytest.mark.parametrize(
    ("log", "returncode", "want"),
    [
        ("..\n2 passed, 1 skipped in 3.20s\n", 0, (2, 0, 1)),
        ("=== 1 failed, 20 passed, 3 warnings in 61.00s (0:01:01) ===\n", 1, (20, 1, 0)),
        ("1 error in 0.10s\n", 2, (0, 1, 0)),
        ("[  PASSED  ] 31 tests.\n", 0, (31, 0, 0)),
        ("[  PASSED  ] 30 tests.\n 1 FAILED TEST\n", 1, (30, 1, 0)),
        ("[  PASSED  ] 29 tests.\n[  SKIPPED ] 2 tests, listed below:\n", 0, (29, 0, 2)),
        ("built\n", 0, (1, 0, 0)),
        ("compiler error\n", 1, (0, 1, 0)),
        ("2 passed in 1.00s\nSegmentation fault\n", 139, (2, 1, 0)),
        ("no Python for it\n", stage.SKIPPED, (0, 0, 1)),
    ],
)
def test_stage_counts(log, returncode, want):
    assert tuple(stage.count_tests(log, returncode).values()) == want


def test_stages_add_up(tmp_path, monkeypatch, capfd):
    # This process has children of others, which are not the stage's to wait for.
    monkeypatch.setattr(stage, "adopt_orphans", lambda: None)
    monkeypatch.setattr(stage, "reap_orphans", lambda: None)
    monkeypatch.setattr(stage, "LOGS", tmp_path)
    monkeypatch.setattr(stage, "COUNTS", tmp_path / "counts.jsonl")
    commands = ["print('4 passed in 0.10s')", "import sys; print('no GPU'); sys.exit(77)"]
    assert [stage.run("a", [sys.executable, "-c", code]) for code in commands] == [0, 0]
    assert stage.summarize() == 0
    assert stage.run("b", [sys.executable, "-c", "print('SKIPPED [1] x: y'); 1 / 0"]) == 1
    assert stage.summarize() == 1
    out = capfd.readouterr().out
    assert "skipped: no GPU" in out
    assert "    SKIPPED [1] x: y" in out
    assert "ZeroDivisionError" in out
    assert out.endswith("4 passed, 1 failed, 1 skipped\n")


def test_seconds_of_stages_are_kept(tmp_path):
    copy = tmp_path / "tools/stage.py"  # its logs are in the folder above
    copy.parent.mkdir()
    shutil.copy(stage.__file__, copy)
    # One process that waits; one that works in a child; and one whose child works on without it.
    work = "import time\nwhile time.process_time() < 0.3: pass"
    start = f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {work!r}])"
    programs = {
        "waits": "import time; time.sleep(0.3)",
        "works": f"{start}; child.wait()",
        "leaves": start,
    }
    for name, program in programs.items():
        subprocess.run([sys.executable, copy, name, sys.executable, "-c", program], check=True)
    command = [sys.executable, copy, "--summary", tmp_path / "seconds.json"]
    assert "all stages" in subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout
    stages = json.loads((tmp_path / "seconds.json").read_text())["stages"]
    assert all(of_stage["seconds"] >= 0.3 for of_stage in stages.values())
    waits, works, leaves = (stages[name]["cpu_seconds"] for name in ("waits", "works", "leaves"))
    assert works >= waits + 0.2
    assert leaves >= waits + 0.2


def test_the_seconds_name_the_commit(tmp_path):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "First"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    stage.write_seconds(tmp_path / "seconds.json", [])
    commit = json.loads((tmp_path / "seconds.json").read_text())["commit"]
    assert len(commit) == 12
    assert head.stdout.startswith(commit)


def test_no_stage_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "COUNTS", tmp_path / "counts.jsonl")
    assert stage.summarize() == 1


OP = """
REGISTER_OP("Double")
    .Input("values: T")
    .Output("twice: T")
    .Attr("T: {int32, int64}")
    .Attr("mode: {'exact', 'fast'} = 'exact'")
    .Doc(R"doc(
Twice the values.

values: `[n]` numbers,
  of any sign.
mode: exact | fast.
twice: `[n]` results.
)doc");
"""


def test_reference_describes_each_argument(tmp_path):
    (tmp_path / "double_op.cc").write_text(OP)
    (op,) = gen_op_reference.parse_ops(tmp_path)
    assert (op.name, op.summary) == ("Double", "Twice the values.")
    page = gen_op_reference.render([op])
    assert "| input | `values` | `T` | `[n]` numbers, of any sign. |" in page
    assert r"| attr | `mode` | `{'exact', 'fast'} = 'exact'` | exact \| fast. |" in page
    assert "| attr | `T` | `{int32, int64}` | inferred from the inputs |" in page


MACROS = r"""
#define FE_MODE(type, choice) FE_TYPE(type).Attr("mode: {'exact', 'fast'} = " choice)
#define FE_TYPE(type) \
  Attr(type ": {int32, " \
            "int64}")
#define FE_MODE_DOC \
  "mode: exact | \"fast\".\n"
"""


def test_reference_knows_the_macros_of_registrations(tmp_path):
    (tmp_path / "double_op.cc").write_text(OP)
    want = gen_op_reference.render(gen_op_reference.parse_ops(tmp_path))
    attrs = OP[OP.index('.Attr("T') : OP.index("    .Doc(")]
    shorter = OP.replace(attrs, """.FE_MODE("T", "'exact'")\n""")
    shorter = shorter.replace("mode: exact | fast.\n", "").replace(')doc")', ')doc" FE_MODE_DOC)')
    (tmp_path / "double_op.cc").write_text(shorter)
    (tmp_path / "macros.h").write_text(MACROS)
    page = gen_op_reference.render(gen_op_reference.parse_ops(tmp_path))
    assert page == want.replace("fast. |", '"fast". |')


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ("mode: exact | fast.\n", r"Double: its .Doc\(\) must describe mode, and does not"),
        ('    .Doc(R"doc(\n', r"double_op.cc: every REGISTER_OP must end with .Doc"),
    ],
)
def test_reference_rejects_an_incomplete_doc(tmp_path, left_out, message):
    (tmp_path / "double_op.cc").write_text(OP.replace(left_out, ""))
    with pytest.raises(ValueError, match=message):
        gen_op_reference.parse_ops(tmp_path)


def test_reference_is_up_to_date(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gen_op_reference.py", "--check"])
    assert gen_op_reference.main() == 0


@pytest.mark.parametrize(
    ("files", "want"),
    [
        ({"a.py": "1", "a/_ops.so": "other", "d/RECORD": "other"}, 0),
        ({"a.py": "1", "a/_ops.so": "", "d/RECORD": "", ROCKSDB: "pip's"}, 0),
        ({"a.py": "2", "a/_ops.so": "", "d/RECORD": ""}, 1),
        ({"a.py": "1", "a/_ops.so": "", "d/RECORD": "", "b.py": ""}, 1),
        ({"a.py": "1", "d/RECORD": ""}, 1),
    ],
)
def test_wheels_compare(tmp_path, monkeypatch, files, want):
    paths = [str(tmp_path / name) for name in ("first.whl", "second.whl")]
    for path, content in zip(
        paths, ({"a.py": "1", "a/_ops.so": "", "d/RECORD": ""}, files), strict=True
    ):
        with zipfile.ZipFile(path, "w") as wheel:
            for name, text in content.items():
                wheel.writestr(name, text)
    monkeypatch.setattr(sys, "argv", ["compare_wheels.py", *paths])
    assert compare_wheels.main() == want
