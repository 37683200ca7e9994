import numpy as np
import pytest

import fused_embedding as fe

DEEPREC_OPS = (
    "FusedEmbeddingSparsePreLookUp",
    "FusedEmbeddingSparsePostLookUp",
    "FusedEmbeddingSparsePostLookUpGrad",
    "PruneInvalidAndFillEmptyRows",
    "UniqueWithCountsV3",
    "PartitionWithPermutation",
    "FusedEmbeddingSparsePostLookUpV2",
    "FusedEmbeddingSparsePostLookUpV2Grad",
)


@pytest.mark.parametrize("name", DEEPREC_OPS)
def test_deeprecs_ops_are_there_by_name(name):
    assert name in fe.raw_ops.__all__
    assert callable(getattr(fe.raw_ops, name))


def test_arguments_are_keywords():
    with pytest.raises(TypeError, match="positional"):
        fe.raw_ops.UniqueWithCountsV3(np.array([1]))


def test_an_unknown_op_is_an_error_that_lists_the_ops():
    with pytest.raises(AttributeError, match=r"'NoSuchOp'.*UniqueWithCountsV3"):
        fe.raw_ops.NoSuchOp  # noqa: B018
