import os
import pathlib
import subprocess
import sys

import pytest

import fused_embedding
import readme_example

SITE = pathlib.Path(fused_embedding.__file__).parent.parent


@pytest.mark.slow
def test_example_of_the_readme_runs(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", readme_example.readme_example()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SITE)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip(), "the example must print what it computed"


def test_missing_example_is_an_error(tmp_path, monkeypatch):
    readme = tmp_path / "README.md"
    readme.write_text("no code\n")
    monkeypatch.setattr(readme_example, "README", readme)
    with pytest.raises(ValueError, match="must have a block that starts with ```python"):
        readme_example.readme_example()
