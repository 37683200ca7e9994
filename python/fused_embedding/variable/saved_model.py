"""How EmbeddingVariables get into a SavedModel and out of it: tf.saved_model.save and load.

In a SavedModel a table is frozen: its lookups insert nothing. Its content is in files beside the
SavedModel's checkpoint (`checkpoint/object_based.py`).
"""

import json
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from fused_embedding.ops import raw_ops
from fused_embedding.ops.placement import on_gpu
from fused_embedding.variable.options import (
    EmbeddingVariableOption,
    GlobalStepEvict,
    L2WeightEvict,
)
from fused_embedding.variable.storage_options import in_dram

PACKAGE = "fused_embedding"
# What EmbeddingVariableGpuHandle has of a table's attributes.
_GPU_ATTRIBUTES = (
    *("dtype", "dim", "seed", "initializer", "initializer_a", "initializer_b"),
    *("min_frequency", "no_permission_value", "eviction", "hbm_bytes"),
)


def make_handle(attributes: Mapping[str, Any], name: str, shared_name: str) -> tf.Tensor:
    """The handle of the table `shared_name`, made by an op `name`."""
    matrix = attributes["initializer_matrix"].tobytes()
    if "hbm_bytes" in attributes:
        of_gpu = {name: attributes[name] for name in _GPU_ATTRIBUTES}
        own = {"initializer_matrix": matrix, "shared_name": shared_name}
        with on_gpu(name):
            return raw_ops.EmbeddingVariableGpuHandle(**of_gpu, **own, name=name)
    own = {
        "initializer_matrix": matrix,
        # Not `shared_name`, which eagerly has a number: a program that was killed and changed
        # would not find what it left.
        "storage_name": name if attributes.get("storage_path") else "",
        "shared_name": shared_name,
    }
    return raw_ops.EmbeddingVariableHandle(**{**attributes, **own}, name=name)


def _saved_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a frozen table; its first values come with its content.

    In DRAM: a folder of the machine that trains is none of the one that serves.
    """
    constant = {"initializer": "constant", "initializer_a": 0.0, "initializer_b": 0.0}
    no_matrix = attributes["initializer_matrix"][:0]
    return {**in_dram(attributes), **constant, "initializer_matrix": no_matrix, "frozen": True}


def export_handle(variable: Any, tensor_map: Any) -> list[tf.Tensor]:
    """Puts a table into the graph of a SavedModel; returns the handle that it stands for."""
    name = tf.compat.v1.get_default_graph().unique_name(variable.handle_name, mark_as_used=False)
    attributes = _saved_attributes(variable.table_attributes)
    with tf.compat.v1.name_scope(None):
        tensor_map[variable.handle] = make_handle(attributes, name, name)
    return [variable.handle]


def to_proto(**config: Any) -> tf.train.BytesList:
    """A configuration as what a SavedModel keeps of an object."""
    return tf.train.BytesList(value=[json.dumps(config).encode()])


def from_proto(proto: Any) -> dict[str, Any]:
    """The configuration of `to_proto`, packed by TensorFlow into a google.protobuf.Any."""
    message = tf.train.BytesList()
    proto.Unpack(message)
    return json.loads(message.value[0])


def config_of(variable: Any) -> dict[str, Any]:
    """What makes an EmbeddingVariable, as JSON."""
    attributes = _saved_attributes(variable.table_attributes)
    del attributes["initializer_matrix"]
    return {
        "name": variable.handle_name,
        "attributes": {**attributes, "dtype": variable.dtype.name},
        "key_dtype": variable.key_dtype.name,
        "trainable": variable.trainable,
        "partition": vars(variable.partition),
        "steps_to_live": variable.option.steps_to_live,
        "l2_weight_threshold": variable.option.l2_weight_threshold,
    }


def arguments_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of an EmbeddingVariable but its partition, from `config_of`."""
    dtype, dim = tf.as_dtype(config["attributes"]["dtype"]), config["attributes"]["dim"]
    no_matrix = tf.zeros([0, dim], dtype).numpy()
    evict: GlobalStepEvict | L2WeightEvict | None = None
    if config["steps_to_live"] > 0:
        evict = GlobalStepEvict(config["steps_to_live"])
    elif config["l2_weight_threshold"] > 0:
        evict = L2WeightEvict(config["l2_weight_threshold"])
    return {
        "name": config["name"],
        "table_attributes": {
            **config["attributes"],
            "dtype": dtype,
            "initializer_matrix": no_matrix,
        },
        "option": EmbeddingVariableOption(evict_option=evict),
        "key_dtype": tf.as_dtype(config["key_dtype"]),
        "trainable": config["trainable"],
    }
