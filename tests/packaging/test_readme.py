import pytest

import processes
import readme_example


@pytest.mark.slow
def test_example_of_the_readme_runs(tmp_path):
    run = processes.run_program(readme_example.readme_example(), cwd=tmp_path)
    assert processes.output_of(run).strip(), "the example must print what it computed"


def test_missing_example_is_an_error(tmp_path, monkeypatch):
    readme = tmp_path / "README.md"
    readme.write_text("no code\n")
    monkeypatch.setattr(readme_example, "README", readme)
    with pytest.raises(ValueError, match="must have a block that starts with ```python"):
        readme_example.readme_example()
