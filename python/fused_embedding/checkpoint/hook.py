"""Registers new EmbeddingVariables for checkpoints, and four patches of TensorFlow.

The first EmbeddingVariable installs the patches.

tf.compat.v1.train.Saver is patched to take EmbeddingVariables in a list of variables, and to warn
of those that are not in the list. (A Saver without a list finds them in the graph's
SAVEABLE_OBJECTS.)

tf.train.Checkpoint does not report when a checkpoint begins and when it is complete, which the
files of tables need. In a TF1 graph it does not run restore operations that others registered. Two
patches add both.

A SavedModel of tf.compat.v1.saved_model.Builder has the training graph. The fourth patch freezes
its tables.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from fused_embedding.checkpoint import first_content, side_files, unfinished
from fused_embedding.checkpoint.object_based import RESTORE_OPERATIONS
from fused_embedding.checkpoint.saveable import EmbeddingVariableSaveable
from fused_embedding.ops.tf_private import MultiDeviceSaver
from fused_embedding.variable import created
from fused_embedding.variable.embedding_variable import EmbeddingVariable
from fused_embedding.variable.partitions import PartitionedEmbeddingVariable
from fused_embedding.variable.storage_options import GPU_HANDLE, TABLE_HANDLES

_PATCHED = "_fused_embedding_stock"
# Kept here, because fe.compat.install replaces it by a class of its own.
_Saver = tf.compat.v1.train.Saver


def install() -> None:
    """Installs all patches, once."""
    _patch(_Saver, "__init__", _wrap_init)
    _patch(MultiDeviceSaver, "save", _wrap_save)
    _patch(MultiDeviceSaver, "restore", _wrap_restore)
    _patch(tf.compat.v1.saved_model.Builder, "_tag_and_add_meta_graph", _wrap_add_meta_graph)


def _announced(parts: Sequence[EmbeddingVariable]) -> None:
    """Registers a new variable for Savers, and loads the content that its option requests."""
    install()
    if not tf.executing_eagerly():
        saveable = EmbeddingVariableSaveable(parts)
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.SAVEABLE_OBJECTS, saveable)
    first_content.load(parts)


created.on_variable(_announced)


def _patch(cls: type, name: str, wrap: Callable[..., Any]) -> None:
    """Patches a method once, in the class that defines it: fe.accelerate patches it there, too."""
    owner = next(base for base in cls.__mro__ if name in vars(base))
    stock = getattr(owner, name)
    if not hasattr(stock, _PATCHED):
        wrapped = functools.wraps(stock)(wrap(stock))
        setattr(wrapped, _PATCHED, stock)
        setattr(owner, name, wrapped)


def _wrap_init(stock: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, var_list: Any = None, *args: Any, **kwargs: Any) -> None:
        if isinstance(var_list, dict | list | tuple | set):
            var_list = _with_saveables(var_list)
            if not tf.executing_eagerly():
                _warn_of_missing(var_list)
        stock(self, var_list, *args, **kwargs)

    return init


def _wrap_save(stock: Callable[..., Any]) -> Callable[..., Any]:
    def save(self: Any, file_prefix: Any, *args: Any, **kwargs: Any) -> Any:
        known = side_files.eager_value(file_prefix) if tf.executing_eagerly() else None
        if known is None:  # the ops are only made now, and run later
            return stock(self, file_prefix, *args, **kwargs)
        return unfinished.save_whole(known, lambda _: stock(self, file_prefix, *args, **kwargs))

    return save


def _wrap_restore(stock: Callable[..., Any]) -> Callable[..., Any]:
    def restore(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly():
            return stock(self, *args, **kwargs)
        num_before = len(tf.compat.v1.get_collection(RESTORE_OPERATIONS))
        restored = stock(self, *args, **kwargs)
        made = tf.compat.v1.get_collection(RESTORE_OPERATIONS)[num_before:]
        return restored | {operation.name: operation for operation in made}

    return restore


def _wrap_add_meta_graph(stock: Callable[..., Any]) -> Callable[..., Any]:
    def add_meta_graph(self: Any, meta_graph_def: Any, tags: Iterable[str], *args: Any) -> Any:
        if tf.saved_model.TRAINING not in tags:
            graph_def = meta_graph_def.graph_def
            functions = [function.node_def for function in graph_def.library.function]
            for node in itertools.chain(graph_def.node, *functions):
                if node.op in TABLE_HANDLES:
                    _freeze(node)
        return stock(self, meta_graph_def, tags, *args)

    return add_meta_graph


def _freeze(node: Any) -> None:
    """Makes a table's node that of a frozen one in DRAM, with what else it has."""
    if node.op == GPU_HANDLE:
        node.op, node.device = "EmbeddingVariableHandle", ""
        del node.attr["hbm_bytes"]
        if node.attr["min_frequency"].i:
            node.attr["admission"].s = b"counter"
    node.attr["frozen"].b = True


def _with_saveables(var_list: Any) -> Any:
    """A Saver's var_list with SaveableObjects instead of EmbeddingVariables."""
    if isinstance(var_list, dict):
        return {name: _saveable_of(value, name) for name, value in var_list.items()}
    flat = tf.nest.flatten(list(var_list))
    if not any(_parts_of(value) for value in flat):
        return var_list
    converted, seen = [], set()
    for value in flat:
        saveable = _saveable_of(value, None)
        if isinstance(saveable, EmbeddingVariableSaveable):
            if saveable.prefix in seen:  # several partitions of one variable
                continue
            seen.add(saveable.prefix)
        converted.append(saveable)
    return converted


def _saveable_of(value: Any, prefix: str | None) -> Any:
    parts = _parts_of(value)
    if not parts:
        return value
    if tf.executing_eagerly():
        raise ValueError(
            f"EmbeddingVariable {parts[0].name!r} was made eagerly, where a Saver knows variables "
            "by nothing but a name: save it with tf.train.Checkpoint"
        )
    whole_name = parts[0].partition.whole_name
    for saveable in _saveables():
        if saveable.prefix == whole_name:
            same = prefix in (None, whole_name)
            return saveable if same else EmbeddingVariableSaveable(saveable.parts, prefix)
    raise ValueError(f"EmbeddingVariable {whole_name!r} is not one of the current graph")


def _parts_of(value: Any) -> list[EmbeddingVariable]:
    """The partitions of an EmbeddingVariable in `value`; an empty list for any other value."""
    values = value if isinstance(value, list | tuple | PartitionedEmbeddingVariable) else [value]
    return [part for part in values if isinstance(part, EmbeddingVariable)]


def _saveables() -> list[EmbeddingVariableSaveable]:
    collection = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVEABLE_OBJECTS)
    return [one for one in collection if isinstance(one, EmbeddingVariableSaveable)]


def _warn_of_missing(var_list: Iterable[Any] | dict[str, Any]) -> None:
    values = var_list.values() if isinstance(var_list, dict) else tf.nest.flatten(list(var_list))
    saved = {id(v.parts[0]) for v in values if isinstance(v, EmbeddingVariableSaveable)}
    for saveable in _saveables():
        if id(saveable.parts[0]) not in saved:
            logging.warning(
                "EmbeddingVariable %r is not saved by this Saver: its var_list leaves it out. Add "
                "it to the list, or leave out var_list",
                saveable.prefix,
            )
