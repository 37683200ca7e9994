"""Vocabularies as lists, tensors, tables and files, without Python code per token."""

import json
import operator
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# Up to here, what Keras and TensorFlow do token by token costs little: configurations and graphs
# are stock's.
MAX_SMALL = 1000

# Of padded tokens over unpadded ones: one long token must not make an array of gigabytes.
MAX_PADDING = 16

TEXT_FILE, JSON_FILE = "vocabulary.txt", "vocabulary.json"

# Where str.splitlines, with which stock reads its file, ends a line; beside "\n".
_LINE_ENDS = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


def decoded(tokens: np.ndarray, encoding: str) -> list[str]:
    """Tokens as text.

    Args:
        tokens: `[num_tokens]` bytes.
        encoding: Of the bytes.

    Returns:
        `[num_tokens]` text.

    Raises:
        UnicodeError: A token is not of the encoding.
    """
    return list(map(operator.methodcaller("decode", encoding), tokens))


def text_tokens(vocabulary: Any, encoding: str) -> Sequence[str] | None:
    """The tokens of a vocabulary of strings.

    Args:
        vocabulary: A list, tuple, array or tensor of rank 1, or anything else.
        encoding: Of the strings of a tensor.

    Returns:
        `[num_tokens]` text; None for anything else, for bytes, and for tokens with a NUL, which
        stock's arrays drop where it ends a token.
    """
    if isinstance(vocabulary, tf.Tensor) and vocabulary.dtype == tf.string:
        try:
            vocabulary = decoded(vocabulary.numpy().ravel(), encoding)
        except UnicodeError:
            return None
    if isinstance(vocabulary, np.ndarray):
        vocabulary = vocabulary.tolist()
    is_text = isinstance(vocabulary, list | tuple) and set(map(type, vocabulary)) <= {str, np.str_}
    return vocabulary if is_text and "\0" not in "".join(vocabulary) else None


def integer_tokens(vocabulary: Any, dtype: tf.DType) -> np.ndarray | None:
    """The tokens of a vocabulary of integers.

    Args:
        vocabulary: A list, tuple, array or tensor of rank 1, or anything else.
        dtype: Of the vocabulary.

    Returns:
        `[num_tokens]` integers of that dtype; None for anything else.
    """
    if not isinstance(vocabulary, list | tuple | np.ndarray | tf.Tensor):
        return None
    try:
        array = np.asarray(vocabulary)
    except ValueError:  # lists of several lengths
        return None
    return array if array.ndim == 1 and array.dtype == dtype else None


class TokensInitializer(tf.lookup.KeyValueTensorInitializer):
    """Fills a table from tokens to indices, or the inverse.

    In a SavedModel the tokens of a large vocabulary are one string, which an op of stock's parses:
    TensorFlow converts a constant of strings token by token.

    Args:
        tokens: `[num_tokens]`.
        start: Index of the first token.
        dtype: Of the indices.
        invert: Whether the table is from indices to tokens.
    """

    def __init__(self, tokens: tf.Tensor, start: int, dtype: tf.DType, invert: bool = False):
        self._tokens = tokens
        self._range = tf.range(start, start + len(tokens), dtype=dtype)
        self._invert = invert
        super().__init__(*self._pairs(tokens, self._range))

    def _pairs(self, tokens: tf.Tensor, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return (indices, tokens) if self._invert else (tokens, indices)

    def initialize(self, table: Any) -> Any:
        """Fills the table, or adds the op to the function that a SavedModel calls.

        Args:
            table: A table that is empty.

        Returns:
            The op.
        """
        if tf.executing_eagerly() or len(self._tokens) <= MAX_SMALL:
            return super().initialize(table)
        with tf.init_scope():
            packed = tf.io.serialize_tensor(self._tokens)
        tokens = tf.io.parse_tensor(packed, self._tokens.dtype)
        keys, values = self._pairs(tokens, self._range)
        return tf.raw_ops.InitializeTableV2(
            table_handle=table.resource_handle, keys=keys, values=values
        )


def sortable(tokens: tf.Tensor) -> np.ndarray:
    """Tokens as numpy sorts them fastest: strings in one array, not as objects.

    Args:
        tokens: `[num_tokens]`.

    Returns:
        `[num_tokens]`, in the same order.
    """
    array: np.ndarray = tokens.numpy()
    if array.dtype != object or not array.size:
        return array
    lengths = tf.strings.length(tokens).numpy()
    if lengths.max() * array.size > MAX_PADDING * lengths.sum():
        return array
    padded = array.astype("S")
    # Padding hides NULs at the end of a token.
    return padded if np.array_equal(np.char.str_len(padded), lengths) else array


def joined(tokens: tf.Tensor) -> str:
    """Tokens as lines of text.

    Args:
        tokens: `[num_tokens]` integers or UTF-8.

    Returns:
        The text, without a newline at its end.
    """
    texts = tokens if tokens.dtype == tf.string else tf.strings.as_string(tokens)
    return str(tf.strings.reduce_join(texts, separator="\n").numpy().decode())


def _is_read_by_stock(text: str, num_tokens: int) -> bool:
    """Whether stock, which drops empty last lines, reads the tokens from lines of text."""
    has_other_ends = any(end in text for end in _LINE_ENDS)
    is_last_empty = not text or text.endswith("\n")
    return text.count("\n") == num_tokens - 1 and not is_last_empty and not has_other_ends


def write_tokens(dir_path: str, special: list[str], tokens: tf.Tensor) -> None:
    """Writes stock's file if stock reads the tokens from it, else a JSON file.

    Args:
        dir_path: Folder of the file.
        special: Tokens in front of the others.
        tokens: `[num_tokens]` integers or UTF-8.
    """
    text = "\n".join([*special, joined(tokens)])
    name = TEXT_FILE
    if not _is_read_by_stock(text, len(special) + len(tokens)):
        name, text = JSON_FILE, json.dumps([*special, *decoded(tokens.numpy(), "utf-8")])
    with open(os.path.join(dir_path, name), "w", encoding="utf-8") as file:
        file.write(text)


def read_tokens(dir_path: str) -> list[str]:
    """Reads the file of `write_tokens`, or stock's.

    Args:
        dir_path: Folder of the file.

    Returns:
        The tokens as text, special ones first.
    """
    json_path = os.path.join(dir_path, JSON_FILE)
    if os.path.exists(json_path):
        with open(json_path, encoding="utf-8") as file:
            tokens: list[str] = json.load(file)
        return tokens
    with open(os.path.join(dir_path, TEXT_FILE), encoding="utf-8") as file:
        return file.read().rstrip("\n").splitlines()
