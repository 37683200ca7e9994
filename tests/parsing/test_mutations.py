"""20,000 mutated examples; `python -m parsing --examples=1000000` are more."""

import pytest

from parsing import comparison


@pytest.mark.parametrize("part", range(4))
def test_mutated_examples(part):
    counts, differences = comparison.run(seed=0, first=5_000 * part, num_examples=5_000)
    assert not differences, f"{differences[0]}, {len(differences)} differ"
    assert counts["accepted"] + counts["rejected"] == 5_000
    # Mutations that everything or nothing survives test little.
    assert 1_000 < counts["accepted"] < 4_000
    assert counts["not asked of stock"] < 500
