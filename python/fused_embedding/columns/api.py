"""The functions of `fe.feature_column`, which make fused columns or TensorFlow's."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from fused_embedding.columns import fused_column
from fused_embedding.columns.composed_column import with_dimension
from fused_embedding.columns.examples import features_for
from fused_embedding.columns.fused_column import DoFusion, fuse
from fused_embedding.columns.group_scope import in_scope
from fused_embedding.columns.handover import hand_over
from fused_embedding.columns.input_layer import input_layer as tf_input_layer
from fused_embedding.columns.keyed_column import (
    EmbeddingVariableCategoricalColumn,
    categorical_column_of_table,
    make_shared,
    sequence_column,
    with_table,
)
from fused_embedding.columns.linear_model import linear_model_for
from fused_embedding.ops.tracing import traced_as_written
from fused_embedding.variable.options import EmbeddingVariableOption


def categorical_column_with_embedding(
    key: str,
    dtype: Any = tf.string,
    partition_num: int | None = None,
    ev_option: EmbeddingVariableOption | None = None,
) -> Any:
    """A categorical column without a vocabulary: its embeddings are in an EmbeddingVariable.

    Every int64 is an id. Strings become ids by `tf.strings.to_hash_bucket_fast` with 2^63 - 1
    buckets, FarmHash's Fingerprint64 modulo that number: a stable function, whose ids are >= 0. In
    a dense feature "" and -1 mean no value.

    Args:
        key: Key of the feature, which is a SparseTensor or Tensor of `dtype`.
        dtype: tf.string or an integer type.
        partition_num: Number of partitions of the table; None: unpartitioned.
        ev_option: Options of the table: filters, expiry, bounds, storage; None: the defaults.

    Returns:
        A column for `embedding_column`, `shared_embedding_columns` and `shared_embeddings` of this
        module, bare or in `tf.feature_column.weighted_categorical_column`.

    Raises:
        ValueError: If `dtype` is neither tf.string nor an integer type, or `partition_num` < 1.
        TypeError: If `ev_option` is not an `fe.EmbeddingVariableOption`.

    Source: DeepRec's function of this name.

    >>> user = fe.feature_column.categorical_column_with_embedding("user", tf.int64)
    >>> fe.feature_column.embedding_column(user, 16).name
    'user_embedding'
    """
    dtype = tf.as_dtype(dtype)
    if dtype != tf.string and not dtype.is_integer:
        raise ValueError(
            f"dtype of {key!r} must be tf.string or an integer type, got {dtype.name}; "
            "tf.as_string makes strings of other types"
        )
    if partition_num is not None and partition_num < 1:
        raise ValueError(f"partition_num must be >= 1, or None for one part, got {partition_num}")
    ev_option = EmbeddingVariableOption() if ev_option is None else ev_option
    if not isinstance(ev_option, EmbeddingVariableOption):
        raise TypeError(f"ev_option must be an fe.EmbeddingVariableOption, got {ev_option!r}")
    return EmbeddingVariableCategoricalColumn(key, dtype, partition_num, ev_option)


def sequence_categorical_column_with_embedding(
    key: str,
    dtype: Any = tf.string,
    partition_num: int | None = None,
    ev_option: EmbeddingVariableOption | None = None,
) -> Any:
    """A sequence column without a vocabulary: its embeddings are in an EmbeddingVariable.

    It is `categorical_column_with_embedding` for `SequenceFeatures`: each id keeps its step.

    Args:
        key: Key of the feature, which is a SparseTensor or Tensor of `dtype`.
        dtype: tf.string or an integer type.
        partition_num: Number of partitions of the table; None: unpartitioned.
        ev_option: Options of the table: filters, expiry, bounds, storage; None: the defaults.

    Returns:
        A column for `embedding_column` or `shared_embeddings`, whose result `SequenceFeatures`
        takes.

    Raises:
        ValueError: If `dtype` is neither tf.string nor an integer type, or `partition_num` < 1.
        TypeError: If `ev_option` is not an `fe.EmbeddingVariableOption`.

    Source: DeepRec's function of this name.
    """
    return sequence_column(categorical_column_with_embedding(key, dtype, partition_num, ev_option))


def embedding_column(
    categorical_column: Any,
    dimension: Any,
    combiner: str = "mean",
    initializer: Callable | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
    do_fusion: DoFusion = None,
) -> Any:
    """A dense column that embeds the ids of a categorical column.

    Args:
        categorical_column: Any categorical column of `tf.feature_column`. It provides the ids,
            `[num_rows, ...]` int64, and optionally their weights.
        dimension: Length of an embedding, at least 1; for a multi-hash column with "concat" the
            lengths of the two parts' rows.
        combiner: "sum", "mean" or "sqrtn" over the ids of a row.
        initializer: Initializer of the table `[num_buckets, dimension]` float32, by default a
            truncated normal of standard deviation `1 / sqrt(dimension)`. For a column of
            `categorical_column_with_embedding` see `fe.get_embedding_variable`.
        ckpt_to_load_from: Checkpoint with the first values of the table.
        tensor_name_in_ckpt: Name of the table in `ckpt_to_load_from`.
        max_norm: Embeddings with a larger L2 norm are scaled to it before they are combined.
        trainable: Whether training changes the table.
        use_safe_embedding_lookup: If False, ids of rank 2 are used without pruning, and a row
            without ids is zero.
        do_fusion: True: the best fused lookup that the inputs allow; "v1", "v2", "v3": that
            version; "check" or an `fe.FusionCheck`: compared with stock's lookup on one step in N;
            None or False: a column of stock TensorFlow (for a column of
            `categorical_column_with_embedding` the same as True).

    Returns:
        A dense column whose tensor is `[num_rows, dimension]` float32.

    Raises:
        ValueError: If an argument does not have one of these values.

    Source: `tf.feature_column.embedding_column`, which has the same arguments except `do_fusion`.

    >>> user = tf.feature_column.categorical_column_with_hash_bucket("user", 1000)
    >>> fe.feature_column.embedding_column(user, 16, do_fusion="v2").name
    'user_embedding'
    """
    categorical_column, dimension = with_dimension(categorical_column, dimension)
    column = tf.feature_column.embedding_column(
        categorical_column,
        dimension,
        combiner=combiner,
        initializer=initializer,
        ckpt_to_load_from=ckpt_to_load_from,
        tensor_name_in_ckpt=tensor_name_in_ckpt,
        max_norm=max_norm,
        trainable=trainable,
        use_safe_embedding_lookup=use_safe_embedding_lookup,
    )

    def make(do_fusion: DoFusion) -> list[Any]:
        if categorical_column_of_table(categorical_column) is not None:
            return [with_table(column, initializer, do_fusion)]
        return [fuse(column, do_fusion)]

    return hand_over(in_scope(make, do_fusion))[0]


def shared_embedding_columns(
    categorical_columns: Iterable[Any],
    dimension: int,
    combiner: str = "mean",
    initializer: Callable | None = None,
    shared_embedding_collection_name: str | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
    do_fusion: DoFusion = None,
) -> list[Any]:
    """Dense columns that share one embedding table, for `tf.compat.v1` graphs.

    Args:
        categorical_columns: Categorical columns of one type and one number of buckets.
        dimension: Length of an embedding, at least 1.
        combiner: "sum", "mean" or "sqrtn" over the ids of a row.
        initializer: Initializer of the table `[num_buckets, dimension]` float32, by default a
            truncated normal of standard deviation `1 / sqrt(dimension)`.
        shared_embedding_collection_name: Name of the table's variable scope and collection, by
            default made from the names of the columns.
        ckpt_to_load_from: Checkpoint with the first values of the table.
        tensor_name_in_ckpt: Name of the table in `ckpt_to_load_from`.
        max_norm: Embeddings with a larger L2 norm are scaled to it before they are combined.
        trainable: Whether training changes the table.
        use_safe_embedding_lookup: If False, ids of rank 2 are used without pruning, and a row
            without ids is zero.
        do_fusion: True: the best fused lookup that the inputs allow; "v1", "v2", "v3": that
            version; "check" or an `fe.FusionCheck`: compared with stock's lookup on one step in N;
            None or False: a column of stock TensorFlow (for columns of
            `categorical_column_with_embedding` the same as True).

    Returns:
        One dense column for each categorical column, in their order.

    Raises:
        RuntimeError: In eager mode.
        ValueError: If an argument does not have one of these values.

    Source: `tf.compat.v1.feature_column.shared_embedding_columns`.

    >>> keys = ["seen", "bought"]
    >>> keys = [tf.feature_column.categorical_column_with_identity(key, 100) for key in keys]
    >>> with tf.Graph().as_default():
    ...     columns = fe.feature_column.shared_embedding_columns(keys, 8, do_fusion="v2")
    >>> [column.name for column in columns]
    ['seen_shared_embedding', 'bought_shared_embedding']
    """
    make_stock = functools.partial(
        fused_column.shared_embedding_columns,
        dimension=dimension,
        combiner=combiner,
        initializer=initializer,
        shared_embedding_collection_name=shared_embedding_collection_name,
        ckpt_to_load_from=ckpt_to_load_from,
        tensor_name_in_ckpt=tensor_name_in_ckpt,
        max_norm=max_norm,
        trainable=trainable,
        use_safe_embedding_lookup=use_safe_embedding_lookup,
    )
    return _make_shared(make_stock, categorical_columns, initializer, do_fusion)


def shared_embeddings(
    categorical_columns: Iterable[Any],
    dimension: int,
    combiner: str = "mean",
    initializer: Callable | None = None,
    shared_embedding_collection_name: str | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
    do_fusion: DoFusion = None,
) -> list[Any]:
    """Dense columns that share one embedding table, for layers of Keras 2 in a graph.

    Args:
        categorical_columns: Categorical columns of one type and one number of buckets.
        dimension: Length of an embedding, at least 1.
        combiner: "sum", "mean" or "sqrtn" over the ids of a row.
        initializer: Initializer of the table `[num_buckets, dimension]` float32, by default a
            truncated normal of standard deviation `1 / sqrt(dimension)`.
        shared_embedding_collection_name: Name of the table, by default made from the names of the
            columns.
        ckpt_to_load_from: Checkpoint with the first values of the table.
        tensor_name_in_ckpt: Name of the table in `ckpt_to_load_from`.
        max_norm: Embeddings with a larger L2 norm are scaled to it before they are combined.
        trainable: Whether training changes the table.
        use_safe_embedding_lookup: If False, ids of rank 2 are used without pruning, and a row
            without ids is zero.
        do_fusion: True: the best fused lookup that the inputs allow; "v1", "v2", "v3": that
            version; "check" or an `fe.FusionCheck`: compared with stock's lookup on one step in N;
            None or False: a column of stock TensorFlow (for columns of
            `categorical_column_with_embedding` the same as True).

    Returns:
        One dense column for each categorical column, in their order.

    Raises:
        RuntimeError: In eager mode.
        ValueError: If an argument does not have one of these values.

    Source: `tf.feature_column.shared_embeddings`.

    >>> keys = ["seen", "bought"]
    >>> keys = [tf.feature_column.categorical_column_with_identity(key, 100) for key in keys]
    >>> with tf.Graph().as_default():
    ...     columns = fe.feature_column.shared_embeddings(keys, 8, do_fusion="v2")
    >>> [column.name for column in columns]
    ['seen_shared_embedding', 'bought_shared_embedding']
    """
    make_stock = functools.partial(
        tf.feature_column.shared_embeddings,
        dimension=dimension,
        combiner=combiner,
        initializer=initializer,
        shared_embedding_collection_name=shared_embedding_collection_name,
        ckpt_to_load_from=ckpt_to_load_from,
        tensor_name_in_ckpt=tensor_name_in_ckpt,
        max_norm=max_norm,
        trainable=trainable,
        use_safe_embedding_lookup=use_safe_embedding_lookup,
    )
    return _make_shared(make_stock, categorical_columns, initializer, do_fusion)


def _make_shared(
    make_stock: Callable[[list[Any]], list[Any]],
    categorical_columns: Iterable[Any],
    initializer: Any,
    do_fusion: DoFusion,
) -> list[Any]:
    categorical_columns = list(categorical_columns)

    def make(do_fusion: DoFusion) -> list[Any]:
        if any(categorical_column_of_table(column) is not None for column in categorical_columns):
            return make_shared(make_stock, categorical_columns, initializer, do_fusion)
        return [fuse(column, do_fusion) for column in make_stock(categorical_columns)]

    return hand_over(in_scope(make, do_fusion))


@traced_as_written
def input_layer(
    features: Mapping[str, Any] | None = None,
    feature_columns: Iterable[Any] | None = None,
    weight_collections: list[str] | None = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
    cols_to_output_tensors: dict[Any, Any] | None = None,
    *,
    rows: Mapping[Any, Any] | None = None,
    adaptive_mask_tensors: Mapping[str, Any] | None = None,
    serialized: Any = None,
) -> tf.Tensor:
    """The dense inputs of feature columns, in a `tf.compat.v1` graph, with one lookup op.

    One op looks up all embedding columns, and another computes their gradients, like
    `fe.nn.group_embedding_lookup_sparse`. Columns of stock TensorFlow are included, whatever their
    `do_fusion`. Variables, their names and the order of the columns are stock's.

    Another op makes the ids of stock's categorical columns from features of rank 1 or 2. Of
    `serialized` examples one op parses all features, and makes the ids of hashed columns, columns
    of integer ids, and columns without a vocabulary: no tensor has their values.

    Args:
        features: Tensors and SparseTensors of a batch by feature key, and RaggedTensors of rank 2
            for these columns. None, if `serialized` is given.
        feature_columns: Dense columns.
        weight_collections: Further collections to add the variables to.
        trainable: Whether the variables are added to TRAINABLE_VARIABLES.
        cols_to_vars: If given, filled with each column's list of variables.
        cols_to_output_tensors: If given, filled with each column's tensor.
        rows: Columns with smaller batches of their own, such as the features of one user who sees
            200 items: an index `[num_items]` int32 or int64 by feature key, or by column. Row i of
            the result has row `index[i]` of the column, as of tf.gather, and the table is read once
            for each row of the column's batch. The features of a column have the same index. Pass
            the same tensor for the columns of one batch.
        adaptive_mask_tensors: Of the keys of adaptive columns, `[nnz]` integers or bools, one for
            each value of the feature: whether it has a row of its own. Of other adaptive columns
            the filter decides.
        serialized: `[num_examples]` serialized `tf.train.Example` messages, in place of `features`.
            They are parsed as `fe.io.parse_example` parses the features that
            `tf.feature_column.make_parse_example_spec` has for the columns. A graph that may be
            saved for a server has stock's op for it; see `fe.io.parse_example`.

    Returns:
        `[num_rows, width]` float32, columns in the order of their names; num_rows is that of the
        columns without an index, and the length of each index.

    Raises:
        ValueError: If a column is not dense, a key of `rows` is no feature or column of the layer,
            the features of a column have different indices, an index is not of rank 1, or there
            is a mask of a column that is not adaptive; if both `features` and `serialized` are
            given, or neither, or `serialized` is no vector, or with `rows`.
        TypeError: If `rows` is not a mapping, or an index is not a dense tensor of integers.
        tf.errors.InvalidArgumentError: If an index is outside the rows of its column, when the
            graph runs; the message has the names of the features. If an example cannot be parsed:
            as of `fe.io.parse_example`.

    Source: `tf.compat.v1.feature_column.input_layer`; `rows` and `serialized` are ours.

    >>> user = tf.feature_column.categorical_column_with_hash_bucket("user", 1000)
    >>> with tf.Graph().as_default():
    ...     features = {"user": tf.constant([["ann"], ["bob"]])}
    ...     columns = [tf.feature_column.embedding_column(user, 4)]
    ...     inputs = fe.feature_column.input_layer(features, columns)
    >>> inputs.shape
    TensorShape([2, 4])

    Two users, three items:

    >>> item = tf.feature_column.categorical_column_with_hash_bucket("item", 1000)
    >>> with tf.Graph().as_default():
    ...     features["item"] = tf.constant([["tea"], ["jam"], ["tea"]])
    ...     features["user"] = tf.constant([["ann"], ["bob"]])
    ...     columns = [tf.feature_column.embedding_column(c, 4) for c in (user, item)]
    ...     index = tf.constant([0, 0, 1])  # ann sees two of them
    ...     inputs = fe.feature_column.input_layer(features, columns, rows={"user": index})
    >>> inputs.shape
    TensorShape([3, 8])
    """
    if serialized is not None and rows is not None:
        raise ValueError(
            "rows has indices of columns with batches of their own, but all columns of serialized "
            "have one batch; parse the examples by fe.io.parse_example, and give features"
        )
    batch, columns = features_for(features, serialized, feature_columns)
    filled = {"cols_to_vars": cols_to_vars, "cols_to_output_tensors": cols_to_output_tensors}
    call = {"weight_collections": weight_collections, "trainable": trainable}
    masks = adaptive_mask_tensors
    return tf_input_layer(batch, columns, call, filled, rows, masks)


@traced_as_written
def linear_model(
    features: Mapping[str, Any],
    feature_columns: Iterable[Any],
    units: int = 1,
    sparse_combiner: str = "sum",
    weight_collections: list[str] | None = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
    do_fusion: DoFusion = None,
) -> tf.Tensor:
    """A linear model over feature columns, in a `tf.compat.v1` graph.

    Args:
        features: Tensors and SparseTensors of a batch by feature key.
        feature_columns: Categorical columns, whose ids each have `units` weights of their own, and
            dense columns.
        units: Number of outputs.
        sparse_combiner: "sum", "mean" or "sqrtn" over the ids of a row.
        weight_collections: Further collections to add the variables to.
        trainable: Whether the variables are added to TRAINABLE_VARIABLES.
        cols_to_vars: If given, filled with each column's list of variables, and `"bias"`.
        do_fusion: The lookup of the categorical columns: True, "v1", "v2", "v3", "check", an
            `fe.FusionCheck`, or None or False for stock TensorFlow's; see `embedding_column`. With
            True and "v3" one op looks up all of them. Embedding columns in `feature_columns` keep
            their own.

    Returns:
        `[num_rows, units]` float32.

    Raises:
        ValueError: If an argument does not have one of these values.

    Source: `tf.compat.v1.feature_column.linear_model`.

    >>> user = tf.feature_column.categorical_column_with_hash_bucket("user", 1000)
    >>> with tf.Graph().as_default():
    ...     features = {"user": tf.constant([["ann"], ["bob"]])}
    ...     logits = fe.feature_column.linear_model(features, [user], do_fusion="v2")
    >>> logits.shape
    TensorShape([2, 1])
    """
    return linear_model_for(do_fusion)(
        features,
        feature_columns,
        units=units,
        sparse_combiner=sparse_combiner,
        weight_collections=weight_collections,
        trainable=trainable,
        cols_to_vars=cols_to_vars,
    )
