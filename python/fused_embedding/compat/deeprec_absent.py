"""What DeepRec has and this package has not: an error that names it, and what to do instead."""

import sys
import types
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from typing import Any, NoReturn

__all__ = [
    "ABSENT_MODULES",
    "KV_HANDLE",
    "Absent",
    "ContribFinder",
    "advice_for",
    "missing_in_contrib",
]

_STAGES = (
    "let tf.data prepare batches in the background, with dataset.prefetch(n), and rows of tables "
    "on an SSD with fe.data.prefetch_embeddings; leave tf.make_prefetch_hook() out"
)
_EXECUTOR = "stock TensorFlow has one executor; leave the line out"
_STREAMS = "stock TensorFlow computes on one stream of a GPU; leave the line out"
_WORK_QUEUE = (
    "divide the files among the workers with tf.data: "
    "tf.data.Dataset.from_tensor_slices(files).shard(num_workers, worker)"
)
_PARQUET = "read the files with fe.data.parquet"
_KAFKA = "read topics with tfio.experimental.streaming of tensorflow-io"
_COLLECTIVE = (
    "leave the strategy out for one process, or place the tables on parameter servers: "
    "docs/checkpoints.md, Parameter servers"
)
_ODPS = "read the table into files of TFRecords first, and these with tf.data"
_COMPRESSION = "leave the call out: results are the same"
_KEEP_WEIGHTS = (
    "cast the inputs and leave keep_weights out, or keep the layers in float32: "
    "tf.variable_scope(name)"
)


class Absent:
    """A function, class or module of DeepRec that is not here: every use of it is an error.

    It can be imported, as programs import what they then do not use.
    """

    def __init__(self, name: str, advice: str) -> None:
        self.__name__ = self.__qualname__ = name
        self._advice = advice

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises NotImplementedError."""
        raise NotImplementedError(
            f"{self.__name__} is DeepRec's, and fused_embedding does not have it; {self._advice}"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python itself looks for
            raise AttributeError(name)
        return self()

    def __repr__(self) -> str:
        return f"<{self.__name__}, which fused_embedding does not have>"


def _absent(prefix: str, advice_of_name: Mapping[str, str]) -> dict[str, Any]:
    return {name: Absent(f"{prefix}.{name}", advice) for name, advice in advice_of_name.items()}


TF = _absent(
    "tf",
    {
        "staged": _STAGES,
        "make_prefetch_hook": _STAGES,
        "stream": _STREAMS,
        "ExecutorPolicy": _EXECUTOR,
        "TableRecordReader": _ODPS,
        "graph_optimizer": _COMPRESSION,
    },
)
TRAIN = _absent("tf.train", {"mark_target_node": _STAGES})
DATA = _absent(
    "tf.data",
    {
        "KafkaDataset": _KAFKA,
        "KafkaGroupIODataset": _KAFKA,
        "ParquetDataset": _PARQUET,
        "TableRecordDataset": _ODPS,
    },
)
EXPERIMENTAL_CONFIG = _absent(
    "tf.config.experimental", {"enable_distributed_strategy": _COLLECTIVE}
)
# What DeepRec adds to classes of stock.
VARIABLE_SCOPE = _absent("tf.variable_scope", {"keep_weights": _KEEP_WEIGHTS})
# Modules that stock TensorFlow does not have, by name.
ABSENT_MODULES: dict[str, dict[str, Any]] = {
    name: _absent(name, content)
    for name, content in {
        "tensorflow.python.ops.work_queue": {"WorkQueue": _WORK_QUEUE},
        "tensorflow.python.data.experimental.ops.parquet_dataset_ops": dict.fromkeys(
            ("DataFrame", "ParquetDataset", "read_parquet"), _PARQUET
        ),
        "tensorflow.python.data.experimental.ops.kafka_dataset_ops": dict.fromkeys(
            ("KafkaDataset", "KafkaGroupIODataset"), _KAFKA
        ),
        "tensorflow.python.distribute.group_embedding_collective_strategy": {
            "CollectiveStrategy": _COLLECTIVE
        },
    }.items()
}

KV_HANDLE = "KvVarHandleOp"
# What TensorFlow says of a field, protocol or argument of DeepRec's -> what to do.
_IN_MESSAGES = {
    "do_smart_stage": _STAGES,
    "do_async_embedding": _STAGES,
    "async_embedding_options": _STAGES,
    "session_stage_subgraph_thread_pool": _STAGES,
    "stage_multi_stream": _STREAMS,
    "use_multi_stream": _STREAMS,
    "multi_stream_opts": _STREAMS,
    "executor_policy": _EXECUTOR,
    "device_placement_optimization": "EmbeddingVariables are on the CPU anyway; leave the line out",
    "tensor_fuse": 'servers here speak "grpc", which joins no messages; leave the argument out',
    "grpc++": 'servers here speak protocol="grpc"; leave the argument out',
    "star_server": 'servers here speak protocol="grpc"; leave the argument out',
    "save_incr_model": "export with fe.export_for_serving, and update what is served with "
    "fe.write_serving_delta: docs/serving.md",
    "sparse_operation_kit": _COLLECTIVE,
    "-freqs not found": "the tensor is called NAME-frequencies here, and NAME has no partitions; "
    "list tables with python -m fused_embedding inspect CHECKPOINT",
    KV_HANDLE: "the op is called EmbeddingVariableHandle here; list tables with "
    "python -m fused_embedding inspect CHECKPOINT",
    "'estimator'": "tf.estimator left TensorFlow with release 2.16: install TensorFlow 2.15, or "
    "train in a tf.train.MonitoredTrainingSession",
    "not available with Keras 3": "tf.layers and tf.nn.rnn_cell need Keras 2: pip install "
    "tf_keras, and TF_USE_LEGACY_KERAS=1 python -m fused_embedding run PROGRAM.py",
}


def advice_for(message: str) -> str | None:
    """What to do about an error that TensorFlow raises for what only DeepRec has.

    Args:
        message: Of the error that a program ended with.

    Returns:
        A line; None for other errors.
    """
    for feature, advice in _IN_MESSAGES.items():
        if feature in message:
            return f"fused_embedding: {feature.strip(chr(39))}: {advice} (docs/deeprec.md)"
    return None


# Of tf.contrib: names that programs for DeepRec have, and what takes their place.
_INSTEAD_OF_CONTRIB = {
    "batch_norm": "tf.layers.batch_normalization",
    "compiler": "tf.xla.experimental.jit_scope",
    "experimental_jit_scope": "tf.xla.experimental.jit_scope",
    "fully_connected": "tf.layers.dense",
    "HParams": "a dict, or argparse.Namespace",
    "l1_regularizer": "tf.keras.regularizers.l1",
    "l2_regularizer": "tf.keras.regularizers.l2",
    "rnn": "tf.nn.rnn_cell",
    "variance_scaling_initializer": "tf.variance_scaling_initializer",
    "xavier_initializer": "tf.glorot_uniform_initializer",
}


def missing_in_contrib(name: str, there: list[str]) -> str:
    """The message for a name of tf.contrib that is not here.

    Args:
        name: In full, `tensorflow.contrib.layers.fully_connected`.
        there: Names that its module has.

    Returns:
        What was asked for, what there is, and what to do.
    """
    module, _, member = name.rpartition(".")
    instead = _INSTEAD_OF_CONTRIB.get(member, "what TensorFlow 2 has for it")
    return (
        f"{name} was asked for, but fused_embedding has no more of {module} than "
        f"{', '.join(sorted(there)) or 'its modules'}; use {instead}"
    )


class ContribFinder:
    """An importer that says why a module or name of tf.contrib cannot be imported."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """None for all but tf.contrib.

        Raises:
            ModuleNotFoundError: For what tf.contrib does not have here.
        """
        if not name.startswith("tensorflow.contrib."):
            return None
        parent = sys.modules.get(name.rpartition(".")[0], types.ModuleType(""))
        there = [member for member in vars(parent) if not member.startswith("_")]
        # Without `name`: for `from package import name` Python would put its own message here.
        raise ModuleNotFoundError(missing_in_contrib(name, there))
