"""TensorFlow's checkpoints as files: read a tensor at a time, written a table at a time."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding.checkpoint.object_based import OBJECT_GRAPH
from fused_embedding.convert.table import ConvertError

# Tensors are collected to that many bytes before they are written.
_SHARD_BYTES = 64 << 20


class Bundle:
    """A checkpoint that is read.

    Attributes:
        prefix: What its files' names begin with.
        shapes: Of its tensors, by name.
        dtypes: Of its tensors, by name.
    """

    def __init__(self, path: str) -> None:
        """Opens it.

        Args:
            path: Prefix of the checkpoint, or the folder whose latest one is meant.

        Raises:
            ConvertError: If there is none, or it cannot be read.
        """
        path = path.removesuffix(".index")
        self.prefix = (tf.train.latest_checkpoint(path) or path) if os.path.isdir(path) else path
        if not os.path.exists(self.prefix + ".index"):
            raise ConvertError(
                f"there is no checkpoint {path!r}: give the prefix of one (the path of its .index "
                "file, without .index), or a folder with a file 'checkpoint'"
            )
        try:
            self._reader = tf.train.load_checkpoint(self.prefix)
        except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as error:
            raise self._damaged("the index", error) from error
        self.shapes: dict[str, list[int]] = self._reader.get_variable_to_shape_map()
        self.dtypes: dict[str, tf.DType] = self._reader.get_variable_to_dtype_map()

    @property
    def is_object_based(self) -> bool:
        """Whether tf.train.Checkpoint wrote it."""
        return OBJECT_GRAPH in self.shapes

    def read(self, name: str) -> np.ndarray:
        """A tensor.

        Raises:
            ConvertError: If it is not there or damaged.
        """
        if name not in self.shapes:
            raise ConvertError(
                f"the tensor {name!r} is missing in {self.prefix!r}: the checkpoint is incomplete; "
                "save it again"
            )
        try:
            return self._reader.get_tensor(name)
        except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as error:
            raise self._damaged(f"the tensor {name!r}", error) from error

    def _damaged(self, what: str, error: Exception) -> ConvertError:
        return ConvertError(
            f"{what} of {self.prefix!r} cannot be read ({error}): the files are damaged or not all "
            "there; copy the checkpoint again"
        )


class BundleWriter:
    """A checkpoint that is written beside its place, and moved there when it is whole."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._shards: list[str] = []
        self._names: set[str] = set()
        self._waiting: dict[str, Any] = {}
        self._num_bytes = 0

    def add(self, tensors: Mapping[str, Any]) -> None:
        """Writes tensors, sooner or later."""
        for name, tensor in tensors.items():
            if name in self._names:
                raise ConvertError(f"two tensors of the destination would be named {name!r}")
            self._names.add(name)
            self._waiting[name] = tensor
            self._num_bytes += np.asarray(tensor).nbytes
            if self._num_bytes > _SHARD_BYTES:
                self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        shard = os.path.join(self._folder, f"shard{len(self._shards)}", "part")
        tf.raw_ops.SaveV2(
            prefix=shard,
            tensor_names=list(self._waiting),
            shape_and_slices=[""] * len(self._waiting),
            tensors=[tf.convert_to_tensor(tensor) for tensor in self._waiting.values()],
        )
        self._shards.append(shard)
        self._waiting, self._num_bytes = {}, 0

    def finish(self, prefix: str) -> None:
        """Moves everything to the checkpoint `prefix`; its index, which makes it one, last."""
        self._flush()
        whole = os.path.join(self._folder, "whole")
        tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=self._shards, destination_prefix=whole, delete_old_dirs=False
        )
        files = [name for name in os.listdir(self._folder) if name.startswith("whole.")]
        for name in sorted(files, key=lambda name: name.endswith(".index")):
            os.replace(os.path.join(self._folder, name), prefix + name.removeprefix("whole"))


@contextlib.contextmanager
def folder_beside(path: str) -> Iterator[str]:
    """A folder for unfinished files on the file system of `path`, removed in the end."""
    parent = os.path.dirname(os.path.abspath(path))
    os.makedirs(parent, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=os.path.basename(path) + "_unfinished_", dir=parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
