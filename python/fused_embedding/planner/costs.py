"""What a step costs a server: seconds of CPU and of network, from measured constants."""

import dataclasses
import json
import os
from typing import Any

import tensorflow as tf

_FORMAT = "fused_embedding costs 1"
_KEY_BYTES = 12  # a key and its count in a message


@dataclasses.dataclass(frozen=True)
class Costs:
    """What parts of a step cost a server.

    `fused-embedding calibrate` measures them. The defaults are rough: no machine was measured for
    them.

    Attributes:
        key_seconds: CPU of a key: probe of the lookup and probe of the update.
        value_seconds: CPU of each value of a row: copy of the lookup and arithmetic of the update.
        shard_seconds: CPU of a lookup and an update of a shard, beside their keys.
        step_seconds: CPU of a worker's step, beside its messages.
        message_seconds: CPU of a message.
        byte_seconds: CPU of a byte of a message.
        read_seconds: A key that is read from the SSD.
        messages_of_server: Messages of a worker's step between it and a server: keys, rows and
            gradients of all tables are one each.
        messages_of_shard: Further messages of each shard: 0, or 4 where lookups are not grouped.

    Raises:
        ValueError: For numbers < 0.
    """

    key_seconds: float = 1.0e-7
    value_seconds: float = 2.0e-9
    shard_seconds: float = 4.0e-5
    step_seconds: float = 2.0e-4
    message_seconds: float = 1.5e-4
    byte_seconds: float = 4.0e-10
    read_seconds: float = 2.5e-6
    messages_of_server: float = 3.0
    messages_of_shard: float = 0.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not value >= 0:
                raise ValueError(f"{field.name} must be >= 0, got {value}")

    def save(self, path: str | os.PathLike[str], **notes: Any) -> None:
        """Writes a JSON file.

        Args:
            path: The file.
            **notes: What else the file says, such as the machine: strings and numbers.
        """
        content = {"format": _FORMAT, "costs": dataclasses.asdict(self), **notes}
        with open(path, "w") as file:
            json.dump(content, file, indent=2)
            file.write("\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Costs":
        """Reads the file of `save` or of `fused-embedding calibrate`.

        Args:
            path: The file.

        Returns:
            The costs.

        Raises:
            ValueError: If the file holds something else.
            OSError: If it cannot be read.
        """
        with open(path) as file:
            try:
                content = json.load(file)
                if content.get("format") != _FORMAT:
                    raise ValueError(f"its format is {content.get('format')!r}, not {_FORMAT!r}")
                return cls(**content["costs"])
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(
                    f"{os.fspath(path)} holds no costs: {error}; write it with fused-embedding "
                    "calibrate"
                ) from error

    def bytes_of_key(self, dim: int, dtype: Any) -> float:
        """Bytes that a distinct key of a step moves: key and count, row, gradient.

        Args:
            dim: Length of a row.
            dtype: Of its values.
        """
        return _KEY_BYTES + 2.0 * dim * tf.as_dtype(dtype).size

    def seconds_of_key(self, dim: int, dtype: Any, bandwidth: float) -> float:
        """What a distinct key of a step costs its server, where its row is in memory.

        Args:
            dim: Length of a row.
            dtype: Of its values.
            bandwidth: Bytes a second of the server's network; infinite: CPU alone.
        """
        moved = self.bytes_of_key(dim, dtype) * (self.byte_seconds + 1 / bandwidth)
        return self.key_seconds + dim * self.value_seconds + moved

    @property
    def seconds_of_server(self) -> float:
        """What a step of one worker costs a server, beside its shards."""
        return self.step_seconds + self.messages_of_server * self.message_seconds

    @property
    def seconds_of_shard(self) -> float:
        """What a step of one worker costs a server for each shard, beside its keys."""
        return self.shard_seconds + self.messages_of_shard * self.message_seconds
