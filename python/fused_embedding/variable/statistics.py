"""Statistics of EmbeddingVariables as summaries, for TensorBoard."""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from fused_embedding.variable.embedding_variable import TIER_STATISTICS, EmbeddingVariable
from fused_embedding.variable.partitions import (
    AnyEmbeddingVariable,
    PartitionedEmbeddingVariable,
    parts_of,
)


def summarize_statistics(
    variables: AnyEmbeddingVariable | Iterable[AnyEmbeddingVariable],
    step: Any = None,
    collections: Sequence[str] | None = None,
) -> list[tf.Tensor]:
    """Writes all statistics of EmbeddingVariables as scalar summaries, "NAME/STATISTIC".

    TensorBoard shows each table in a section of its own: slashes in the name are written as dots.
    The table of a Keras layer has its layer's section: "LAYER/embeddings/STATISTIC".

    The statistics of a tier on an SSD are written only for variables that have one.

    Eagerly and in a tf.function the default writer of tf.summary writes them. In a graph of
    tf.compat.v1 they become summary ops in the collection SUMMARIES, which
    MonitoredTrainingSession, Estimator and tf.compat.v1.summary.merge_all write with all others.

    Args:
        variables: One EmbeddingVariable, partitioned or not, or several.
        step: The step of the summaries; None: the default step of tf.summary. Ignored in a graph
            of tf.compat.v1.
        collections: Graph collections to add the summary ops to, in a graph of tf.compat.v1;
            None: SUMMARIES.

    Returns:
        The results of tf.summary.write, or of tf.compat.v1.summary.scalar in a graph of
        tf.compat.v1, one for each summary.

    Raises:
        TypeError: If a variable is not an EmbeddingVariable.

    >>> table = fe.get_embedding_variable("table", 4)
    >>> with tf.summary.create_file_writer("/tmp/logs").as_default():
    ...     len(fe.summarize_statistics(table, step=1))
    12
    """
    if isinstance(variables, AnyEmbeddingVariable):
        variables = [variables]
    is_v2 = tf.executing_eagerly() or tf.inside_function()
    summaries = []
    for variable in variables:
        name = _tag_of(variable)
        for statistic, value in _statistics_of(variable).items():
            tag = f"{name}/{statistic}"
            if is_v2:
                number = tf.cast(value, tf.float32)
                summaries.append(tf.summary.write(tag, number, step, _scalar_metadata()))
            else:
                with tf.name_scope(""):  # a tag is the variable's name, wherever this is called
                    summaries.append(tf.compat.v1.summary.scalar(tag, value, collections))
    return summaries


def _statistics_of(variable: AnyEmbeddingVariable) -> dict[str, tf.Tensor]:
    has_tier = any(part.table_attributes.get("storage_path") for part in parts_of(variable))
    statistics = variable.statistics()
    return {k: v for k, v in statistics.items() if has_tier or k not in TIER_STATISTICS}


def whole_variables(parts: Iterable[EmbeddingVariable]) -> list[AnyEmbeddingVariable]:
    """Joins partitions to whole variables; a partition without the others is returned alone.

    Args:
        parts: EmbeddingVariables in the order of a graph or model, in which the partitions of a
            variable are in sequence.
    """
    by_name: dict[str, list[EmbeddingVariable]] = {}
    for part in parts:
        by_name.setdefault(part.partition.whole_name, []).append(part)
    whole: list[AnyEmbeddingVariable] = []
    for name, group in by_name.items():
        count = group[0].partition.count
        is_whole = count > 1 and [part.partition.index for part in group] == list(range(count))
        whole += [PartitionedEmbeddingVariable(name, group)] if is_whole else group
    return whole


def _scalar_metadata() -> Any:
    """The metadata of tf.summary.scalar, which itself works only if TensorBoard is installed."""
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "scalars"
    metadata.data_class = 1  # DATA_CLASS_SCALAR of tensorflow/core/framework/summary.proto
    return metadata


def _tag_of(variable: Any) -> str:
    if isinstance(variable, PartitionedEmbeddingVariable):
        return _in_a_section(variable.name)
    if isinstance(variable, EmbeddingVariable):
        partition = variable.partition
        suffix = f"/part_{partition.index}" if partition.count > 1 else ""
        return _in_a_section(partition.whole_name) + suffix
    raise TypeError(
        f"variables must be EmbeddingVariables, got {variable!r}; pass what "
        "fe.get_embedding_variable returned"
    )


def _in_a_section(name: str) -> str:
    """Writes slashes as dots: TensorBoard's section is what precedes a tag's first slash."""
    owner, slash, weight = name.rpartition("/")
    if weight == "embeddings":  # a Keras layer has one table, so the layer is the section
        return owner.replace("/", ".") + slash + weight
    return name.replace("/", ".")
