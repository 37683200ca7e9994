"""AutoGraph leaves the package's code alone."""

import inspect

import pytest
import tensorflow as tf

import fused_embedding as fe

IDS = tf.sparse.from_dense([[1, 2], [3, 0]])
CALLS = {
    "fused_safe_embedding_lookup_sparse": lambda table: fe.nn.fused_safe_embedding_lookup_sparse(
        table, IDS
    ),
    "fused_embedding_lookup_sparse_v3": lambda table: fe.nn.fused_embedding_lookup_sparse_v3(
        table, IDS
    ),
    "safe_embedding_lookup_sparse": lambda table: fe.nn.safe_embedding_lookup_sparse(table, IDS),
    "group_embedding_lookup_sparse": lambda table: fe.nn.group_embedding_lookup_sparse(
        [table], [IDS], ["sum"]
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_code_of_a_lookup_is_not_converted(monkeypatch, name):
    table, call, seen = tf.Variable(tf.ones([4, 2])), CALLS[name], []
    op = fe.raw_ops.FusedEmbeddingResourceGroupLookup

    def recording(**arguments):
        seen.append(tf.__internal__.autograph.control_status_ctx().status.name)
        return op(**arguments)

    monkeypatch.setattr("fused_embedding.ops.raw_ops.FusedEmbeddingResourceGroupLookup", recording)
    tf.function(lambda: call(table)).get_concrete_function()
    assert seen == ["DISABLED"]


def test_functions_keep_their_names_and_arguments():
    lookup = fe.nn.fused_safe_embedding_lookup_sparse
    assert list(inspect.signature(lookup).parameters)[:2] == ["embedding_weights", "sparse_ids"]
    assert lookup.__name__ == "fused_safe_embedding_lookup_sparse"
    assert "Args:" in inspect.getdoc(lookup)
