"""Stand-ins for Keras's StringLookup and IntegerLookup, fast for large vocabularies."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fused_embedding.keras.vocabulary import (
    MAX_SMALL,
    TokensInitializer,
    decoded,
    integer_tokens,
    read_tokens,
    sortable,
    text_tokens,
    write_tokens,
)

# The attribute of a table that has its tokens, `[num_tokens]` in the order of their indices.
_TOKENS = "_fe_tokens"


class _Lookup:
    """Mixin for a stock lookup layer; it precedes that layer in the bases.

    Arguments, results and errors are stock's. A method that finds anything unusual calls stock's:
    a repeated token, tokens of another type, tf-idf, graph mode.
    """

    encoding = "utf-8"
    input_vocabulary: Any
    lookup_table: Any
    vocabulary_dtype: Any
    output_mode: str
    invert: bool
    mask_token: Any
    oov_token: Any
    num_oov_indices: int
    max_tokens: int | None
    token_counts: Any
    _packed: str | None = None  # the constructor's large vocabulary as lines of text
    _is_keras_3: bool
    _has_input_vocabulary: bool
    _default_value: Any
    _key_dtype: Any
    _value_dtype: Any
    _oov_start_index: Any
    _token_start_index: Any
    _record_vocabulary_size: Any
    _num_tokens: Any

    def __new__(cls, *_: Any, **__: Any) -> Any:
        """Hides the arguments from Keras, which flattens them for a `get_config` that is unused."""
        return super().__new__(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "input_vocabulary":
            self._packed = self._pack(value)
            # Keras and SavedModels would track each token of a list.
            value = value if self._packed is None else None
        super().__setattr__(name, value)

    def _pack(self, vocabulary: Any) -> str | None:
        """A large vocabulary as lines of text; None if a token has a newline."""
        tokens = self._plain_tokens(vocabulary)
        if tokens is None or len(tokens) <= MAX_SMALL:
            return None
        text = "\n".join(tokens if self._is_string else map(str, tokens))
        return text if text.count("\n") == len(tokens) - 1 else None

    @classmethod
    def _unpack(cls, text: str) -> Any:
        return text.split("\n")

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Makes a layer from what `get_config` returned.

        Args:
            config: The arguments of the constructor.

        Returns:
            A layer.
        """
        vocabulary = config.get("vocabulary")
        if isinstance(vocabulary, dict):
            config = {**config, "vocabulary": cls._unpack(vocabulary["lines"])}
        return super().from_config(config)  # type: ignore[misc]

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, for serialization.

        Returns:
            A dictionary. A "vocabulary" of more than 1,000 tokens is `{"lines": text}` with a token
            per line, which `from_config` reads: Keras handles a list token by token.
        """
        config: dict[str, Any] = super().get_config()  # type: ignore[misc]
        if self._packed is not None:
            config["vocabulary"] = {"lines": self._packed}
        return config

    @property
    def _is_string(self) -> bool:
        return bool(tf.as_dtype(self.vocabulary_dtype) == tf.string)

    def _plain_tokens(self, vocabulary: Any) -> Sequence[str] | np.ndarray | None:
        """A vocabulary as text or an array of integers; None if stock has to look at it."""
        if not tf.executing_eagerly():
            return None
        if self._is_string:
            return text_tokens(vocabulary, self.encoding)
        return integer_tokens(vocabulary, tf.as_dtype(self.vocabulary_dtype))

    def _special_tokens(self) -> list[Any]:
        """The tokens in front of those of the table."""
        return [self.mask_token] * self._oov_start_index() + [self.oov_token] * self.num_oov_indices

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Sets the vocabulary, as stock's layer does.

        Args:
            vocabulary: `[num_tokens]` list, tuple, array or tensor of distinct tokens, or the path
                of a file with a token per line.
            idf_weights: `[num_tokens]` weights for `output_mode="tf_idf"`, else None.

        Raises:
            ValueError: A token is repeated or reserved, there are no tokens or more than
                `max_tokens`, or the file does not exist.
        """
        is_weighted = idf_weights is not None or self.output_mode == "tf_idf"
        table = None if is_weighted else self._table_of(vocabulary)
        if table is None:
            super().set_vocabulary(vocabulary, idf_weights)  # type: ignore[misc]
            return
        self.lookup_table = table
        self._record_vocabulary_size()

    def _table_of(self, vocabulary: Any) -> Any:
        """The table of a vocabulary; None if stock has to look at it, which raises its error."""
        tokens = self._plain_tokens(vocabulary)
        if tokens is None:
            return None
        start = self._token_start_index()
        if list(tokens[:start]) == self._special_tokens():
            tokens = tokens[start:]
        if not 0 < len(tokens) <= (self.max_tokens or np.inf) - start:
            return None
        try:
            table = self._lookup_table_from_tokens(tokens)
            return None if self._has_reserved(table) else table
        except (tf.errors.OpError, ValueError):  # a token is repeated, or is no Unicode
            return None

    def _has_reserved(self, table: Any) -> bool:
        """Whether a token is the mask token, or one that an inverted table returns for others."""
        if self.invert:
            initializer = TokensInitializer(getattr(table, _TOKENS), 0, tf.int64)
            table = tf.lookup.StaticHashTable(initializer, -1)  # raises if a token is repeated
        tokens = [self.mask_token, self.oov_token if self.invert else None]
        reserved = [token for token in tokens if token is not None]
        indices = table.lookup(tf.constant(reserved, self.vocabulary_dtype))
        return bool(tf.reduce_any(indices != table.default_value))

    def _lookup_table_from_tokens(self, tokens: Any) -> Any:
        with tf.init_scope(), tf.device("CPU:0"):
            if not tf.executing_eagerly():
                return super()._lookup_table_from_tokens(tokens)  # type: ignore[misc]
            # tf.convert_to_tensor, unlike tf.constant, has Python code per token.
            if not tf.is_tensor(tokens):
                tokens = tf.constant(tokens, self.vocabulary_dtype)
            dtype = tf.as_dtype(self._key_dtype if self.invert else self._value_dtype)
            initializer = TokensInitializer(tokens, self._token_start_index(), dtype, self.invert)
            table = tf.lookup.StaticHashTable(initializer, self._default_value)
        setattr(table, _TOKENS, tokens)
        return table

    def _tokens(self) -> Any:
        """`[num_tokens]` tokens of the table in the order of their indices; None if one has none.

        A table that was read from a text file or a SavedModel gets them here.
        """
        table = self.lookup_table
        if hasattr(table, _TOKENS) or not tf.executing_eagerly() or not table.size():
            return getattr(table, _TOKENS, None)
        tokens, indices = reversed(table.export()) if self.invert else table.export()
        order = np.argsort(indices)
        start = self._token_start_index()
        if not np.array_equal(indices.numpy()[order], np.arange(start, start + len(order))):
            return None
        setattr(table, _TOKENS, tf.gather(tokens, order))
        return getattr(table, _TOKENS)

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """Returns the vocabulary, as stock's layer does.

        Args:
            include_special_tokens: Whether the mask token and the tokens of unknown values are in
                it, so that each token is at its index.

        Returns:
            The tokens in the order of their indices.
        """
        tokens, special = self._tokens(), self._special_tokens()
        if tokens is None or bytes in map(type, special):
            vocabulary: list[Any] = super().get_vocabulary(include_special_tokens)  # type: ignore[misc]
            return vocabulary
        array = tokens.numpy()
        words = decoded(array, self.encoding) if self._is_string else list(array)
        return special + words if include_special_tokens else words

    @property
    def _counts_tokens(self) -> bool:
        """Whether `adapt` has to count tokens, and no documents with them."""
        return self.output_mode != "tf_idf" and not self._has_input_vocabulary

    def _whole_batch(self, data: Any) -> tf.Tensor | None:
        """An array or tensor of tokens as a tensor; None if it is another thing, or empty."""
        if isinstance(data, np.ndarray) and data.dtype.kind in ("OSU" if self._is_string else "i"):
            # TensorFlow converts a list of strings faster than an array.
            data = tf.constant(data.tolist() if self._is_string else data, self.vocabulary_dtype)
        is_whole = isinstance(data, tf.Tensor) and data.dtype == self.vocabulary_dtype
        return data if is_whole and tf.size(data) else None

    def adapt(self, data: Any, *args: Any, **kwargs: Any) -> None:
        """Learns the vocabulary of data, as stock's layer does: the most frequent tokens first.

        Args:
            data: A dataset of batches, or an array or tensor, which is one batch.
            *args: Further arguments of stock's `adapt`, such as `steps`.
            **kwargs: The same by name.
        """
        is_fast = self._counts_tokens and not args and not kwargs
        batch = self._whole_batch(data) if is_fast else None
        if batch is None:
            super().adapt(data, *args, **kwargs)  # type: ignore[misc]
        elif not self._is_keras_3:
            # Stock's Keras 2 would count 32 rows at a time.
            super().adapt(tf.data.Dataset.from_tensors(batch))  # type: ignore[misc]
        else:
            self.reset_state()
            self._learn(*self._num_tokens(batch))
            self._record_vocabulary_size()

    def finalize_state(self) -> None:
        """Makes the table of the tokens that were counted."""
        if not self._counts_tokens or not self.token_counts.size():
            super().finalize_state()  # type: ignore[misc]
            return
        self._learn(*self.token_counts.export())
        self.reset_state()
        self._record_vocabulary_size()

    def _learn(self, tokens: tf.Tensor, counts: tf.Tensor) -> None:
        """Makes the table of tokens in descending order of their counts, then of themselves."""
        order = np.lexsort((sortable(tokens), counts.numpy()))[::-1]
        for token in (self.mask_token, self.oov_token):
            if token is not None:
                place = tf.where(tokens == tf.constant(token, tokens.dtype)).numpy()
                order = order[~np.isin(order, place)]
        if self.max_tokens:
            order = order[: self.max_tokens - self._token_start_index()]
        self.lookup_table = self._lookup_table_from_tokens(tf.gather(tokens, order))

    def reset_state(self) -> None:
        """Forgets the tokens that were counted."""
        if not self._counts_tokens:
            super().reset_state()  # type: ignore[misc]
            return
        tf.raw_ops.LookupTableImportV2(
            table_handle=self.token_counts.resource_handle,
            keys=tf.constant([], self.vocabulary_dtype),
            values=tf.constant([], tf.int64),
        )

    @property
    def _is_in_config(self) -> bool:
        return self.input_vocabulary is not None or self._packed is not None

    def save_assets(self, dir_path: str) -> None:
        """Writes the vocabulary to a file of the model's archive.

        Args:
            dir_path: Folder of the file.
        """
        if self._is_in_config:
            return
        tokens, special = self._tokens(), self._special_tokens()
        is_plain = self.encoding == "utf-8" and None not in special
        if self.output_mode == "tf_idf" or tokens is None or not is_plain:
            super().save_assets(dir_path)  # type: ignore[misc]
            return
        write_tokens(dir_path, list(map(str, special)), tokens)

    def load_assets(self, dir_path: str) -> None:
        """Reads the vocabulary from a file of this layer or of stock's.

        Args:
            dir_path: Folder of the file.
        """
        if self._is_in_config:
            return
        if self.output_mode == "tf_idf":
            super().load_assets(dir_path)  # type: ignore[misc]
            return
        tokens = read_tokens(dir_path)
        self.set_vocabulary(tokens if self._is_string else list(map(int, tokens)))


class _StringLookup(_Lookup):
    """Indices of strings: keras.layers.StringLookup, fast for vocabularies of millions.

    Arguments, results and errors are stock's. Building from a list, `adapt`, `get_vocabulary`,
    files and exports have no Python code per token.
    """


class _IntegerLookup(_Lookup):
    """Indices of integers: keras.layers.IntegerLookup, fast for vocabularies of millions.

    Arguments, results and errors are stock's. Building from an array, `adapt`, `get_vocabulary`,
    files and exports have no Python code per token.
    """

    @classmethod
    def _unpack(cls, text: str) -> Any:
        return list(map(int, text.split("\n")))


# THE list of stand-ins for stock's layers of the same name.
STAND_INS: dict[str, Any] = {"StringLookup": _StringLookup, "IntegerLookup": _IntegerLookup}
