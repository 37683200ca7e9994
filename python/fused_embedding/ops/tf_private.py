"""TensorFlow's private names that the lookups need; the only place that imports them.

`variable_accessed` is how a variable tells gradient tapes and tf.function that an op of its own has
read it; tf.Variable has no public method for that. `colocate_with` keeps a gather with its table;
the public tf.compat.v1.colocate_with is the same function behind a deprecation warning.
`cond_v2` is tf.cond as an op, whatever control flow a program has switched on.
`could_possibly_record` is whether a gradient tape is open, and `context` knows the device scope.
`GraphOrParentsInXlaContext` is whether XLA compiles a graph, which knows no ops of ours.
`BaseResourceVariable` is what optimizers and gradients take for a variable read through a handle;
`EagerResourceDeleter` deletes its table with it. `global_seed` is what tf.random.set_seed set, and
`uid` numbers what has no name of its own. `SaveableObject` and `SaveSpec` are what a Saver saves
beside dense variables, `register_checkpoint_saver` is how tf.train.Checkpoint learns to save other
things, and `MultiDeviceSaver` what calls it. `BulkSaverBuilder` makes the ops of a Saver.
`SessionInterface` is what it takes for a session. `Trackable` is an object in such a checkpoint,
`register_serializable` one in a SavedModel. `register_dispatchable_type` lets
tf.experimental.dispatch_for_api take a class that is no CompositeTensor.
`create_handle_data` and `set_handle_data` say what gradients of a handle look like.
`function_def_to_graph` is the body of a function as a graph, and `eager_mode` lets a TF1 program,
which may have switched eager execution off, write a SavedModel. `set_bool_attr` sets attrs of ops
that no public function sets. `checkpoint_utils` and `warm_starting_util` are where
stock's warm starts find the variables that they initialize. `WhileBodyGradGraph` is the gradient of
a body of tf.while_loop. `parsing_config` and `parsing_ops` make the arguments of an op of features,
and results of its outputs. `data_service_ops` has what gives a dataset to a tf.data service, and
`VariantDataset` is a dataset made of a tensor. Same signatures in TensorFlow 2.15 to 2.21.
"""

from typing import Any

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.python.checkpoint.functional_saver import MultiDeviceSaver
from tensorflow.python.client.session import SessionInterface
from tensorflow.python.data.experimental.ops import data_service_ops
from tensorflow.python.data.ops.dataset_ops import _VariantDataset as VariantDataset
from tensorflow.python.eager.context import context, eager_mode, global_seed
from tensorflow.python.eager.record import could_possibly_record
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph
from tensorflow.python.framework.ops import colocate_with, uid
from tensorflow.python.ops import parsing_config, parsing_ops
from tensorflow.python.ops.cond_v2 import cond_v2
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext
from tensorflow.python.ops.handle_data_util import create_handle_data, set_handle_data
from tensorflow.python.ops.resource_variable_ops import (
    BaseResourceVariable,
    EagerResourceDeleter,
    variable_accessed,
)
from tensorflow.python.ops.while_v2 import _WhileBodyGradFuncGraph as WhileBodyGradGraph
from tensorflow.python.saved_model.registration.registration import (
    register_checkpoint_saver,
    register_serializable,
)
from tensorflow.python.trackable.base import Trackable
from tensorflow.python.training import checkpoint_utils, warm_starting_util
from tensorflow.python.training.saver import BulkSaverBuilder
from tensorflow.python.training.saving.saveable_object import SaveableObject, SaveSpec
from tensorflow.python.util.dispatch import register_dispatchable_type

__all__ = [
    "BaseResourceVariable",
    "BulkSaverBuilder",
    "EagerResourceDeleter",
    "GraphOrParentsInXlaContext",
    "MultiDeviceSaver",
    "SaveSpec",
    "SaveableObject",
    "SessionInterface",
    "Trackable",
    "VariantDataset",
    "WhileBodyGradGraph",
    "checkpoint_utils",
    "colocate_with",
    "cond_v2",
    "control_flow_context",
    "could_possibly_record",
    "create_handle_data",
    "data_service_ops",
    "device_name",
    "eager_mode",
    "function_def_to_graph",
    "global_seed",
    "parsing_config",
    "parsing_ops",
    "register_checkpoint_saver",
    "register_dispatchable_type",
    "register_serializable",
    "set_bool_attr",
    "set_handle_data",
    "uid",
    "variable_accessed",
    "warm_starting_util",
]


def device_name() -> str:
    """The device that tf.device names here, eagerly; "": none."""
    return context().device_name or ""


def control_flow_context() -> Any:
    """The branch or loop of TF1 control flow that is built now, None outside of all."""
    return tf.compat.v1.get_default_graph()._get_control_flow_context()


def set_bool_attr(op: tf.Operation, name: str, value: bool) -> None:
    """Sets an attr of an op of a graph after it was made: where it is placed is known then."""
    op._set_attr(name, AttrValue(b=value))
