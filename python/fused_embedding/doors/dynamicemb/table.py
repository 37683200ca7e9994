"""A table as DynamicEmb's options describe it."""

import tensorflow as tf

from fused_embedding.doors.dynamicemb.options import DynamicEmbTableOptions
from fused_embedding.variable.scope import AnyEmbeddingVariable, get_embedding_variable


def make_table(
    name: str, options: DynamicEmbTableOptions, num_embeddings: int | None = None
) -> AnyEmbeddingVariable:
    """Makes an EmbeddingVariable from options, like DynamicEmb's planner and sharder.

    Args:
        name: Name of the variable in the variable scope.
        options: The options of the table; `dim` is required.
        num_embeddings: `num_embeddings` of TorchRec's config of the table: the maximum number of
            rows if `options.max_capacity` is None, and the base of UNIFORM's default bounds.

    Returns:
        The EmbeddingVariable, for the lookups of fe.nn.

    Raises:
        TypeError: If `options` is not a DynamicEmbTableOptions.
        ValueError: If `dim` is None, `num_embeddings` < 1, or the initializer needs
            `num_embeddings` and it is None.

    >>> options = fe.dynamicemb.DynamicEmbTableOptions(dim=8, max_capacity=1000)
    >>> table = fe.dynamicemb.make_table("users", options)
    >>> fe.nn.group_embedding_lookup([table], [tf.constant([7, 1 << 60])])[0].shape
    TensorShape([2, 8])
    """
    if not isinstance(options, DynamicEmbTableOptions):
        raise TypeError(f"options must be a fe.dynamicemb.DynamicEmbTableOptions, got {options!r}")
    if options.dim is None:
        raise ValueError("options.dim is None, but a table has rows of one length; pass dim")
    if num_embeddings is not None and num_embeddings < 1:
        raise ValueError(f"num_embeddings must be > 0 or None, got {num_embeddings}")
    return get_embedding_variable(
        name,
        options.dim,
        key_dtype=options.index_type or tf.int64,
        value_dtype=options.embedding_dtype or tf.float32,
        ev_option=options.ev_option(num_embeddings),
    )
