"""Random batches and options, for properties."""

from hypothesis import strategies as st

import oracle.lookup
from stages import NUM_IDS, Batch, Options

SHARDS = {"one_shard": (1, "div"), "three_div": (3, "div"), "four_mod": (4, "mod")}


@st.composite
def batches(draw, max_pairs=15):
    """Rows in any order, some empty; ids of which some are invalid; weights above zero."""
    num_rows = draw(st.integers(1, 5))
    row_ids = draw(st.lists(st.integers(0, num_rows - 1), max_size=max_pairs))
    size = {"min_size": len(row_ids), "max_size": len(row_ids)}
    ids = draw(st.lists(st.integers(-2, NUM_IDS - 1), **size))
    weights = draw(st.lists(st.sampled_from([0.25, 0.5, 1.0, 3.0]), **size))
    return Batch(ids, row_ids, num_rows, weights)


@st.composite
def options(draw):
    """Every combiner, with and without max_norm, default id, shards and weights."""
    num_shards, strategy = draw(st.sampled_from(list(SHARDS.values())))
    return Options(
        combiner=draw(st.sampled_from(oracle.lookup.COMBINERS)),
        max_norm=draw(st.sampled_from([None, 0.5, 2.0])),
        default_id=draw(st.sampled_from([None, 0, 7])),
        num_shards=num_shards,
        strategy=strategy,
        is_weighted=draw(st.booleans()),
    )
