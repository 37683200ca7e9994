"""EmbeddingVariables with everything in them that a checkpoint keeps, and what is in them."""

import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

import fused_embedding as fe

DIM = 3
NAME = "users"
NUM_STEPS = 6
PARTITIONS = (None, 1, 2, 3)  # None: no partitioner
OPTIONS: dict[str, Callable[[], fe.EmbeddingVariableOption]] = {
    "plain": fe.EmbeddingVariableOption,
    "counter": lambda: fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(3)),
    "bloom": lambda: fe.EmbeddingVariableOption(filter_option=fe.CBFFilter(3, 1000, 0.01)),
}
_EXTREMES = [-(2**63), -1, 0, 2**63 - 1]
Run = Callable[[Any], Any]


def keys_of_step(step: int) -> np.ndarray:
    """`[n]` distinct int64 keys, most of them in many steps."""
    rng = np.random.default_rng(step)
    return np.unique(np.r_[_EXTREMES, rng.integers(-40, 40, 30), rng.integers(-(2**63), 2**63, 5)])


def make(
    partitions: int | None = None,
    option: str = "plain",
    *,
    dim: int = DIM,
    dtype: tf.DType = tf.float32,
    initializer: Any = None,
) -> Any:
    """An EmbeddingVariable of the name NAME."""
    partitioner = partitions and tf.compat.v1.fixed_size_partitioner(partitions)
    return fe.get_embedding_variable(
        NAME,
        dim,
        value_dtype=dtype,
        initializer=initializer,
        partitioner=partitioner,
        ev_option=OPTIONS[option](),
    )


def parts_of(variable: Any) -> list[fe.EmbeddingVariable]:
    """All partitions."""
    is_partitioned = isinstance(variable, fe.PartitionedEmbeddingVariable)
    return list(variable) if is_partitioned else [variable]


RULES = {"adagrad": [0.1, 0.0, 0.2], "momentum": [0.1, 0.9, 0.0]}


def train_step(variable: Any, keys: Any, step: Any, rules: Any = tuple(RULES)) -> list[Any]:
    """Looks `[n]` distinct keys up, then updates their rows by one rule after the other."""
    keys = tf.convert_to_tensor(keys, tf.int64)
    parts = parts_of(variable)
    keys_of_parts = variable._partition(keys)[1] if len(parts) > 1 else [keys]
    made = []
    for part, part_keys in zip(parts, keys_of_parts, strict=True):
        counts = tf.cast(tf.math.floormod(part_keys, 3), tf.int32)
        found = fe.raw_ops.EmbeddingVariableLookup(
            resource=part.handle,
            keys=part_keys,
            counts=counts,
            step=tf.cast(step, tf.int64),
            insert=True,
            dtype=part.dtype,
        )
        for rule in rules:
            with tf.control_dependencies(made):
                update = fe.raw_ops.EmbeddingVariableApply(
                    resources=[part.handle],
                    keys=[part_keys],
                    handles=[found.handles],
                    grads=[found.embeddings + tf.cast(0.5, part.dtype)],
                    hyperparameters=[tf.constant(RULES[rule], tf.float64)],
                    rule=rule,
                    slot_prefixes=[rule.capitalize()],
                )
            made += [] if update is None else [update]
    return made


def rows_of(variable: Any, keys: tf.Tensor) -> tf.Tensor:
    """`[n, dim]` rows of `[n]` keys; a lookup that counts them."""
    keys = tf.convert_to_tensor(keys)
    num_keys = tf.shape(keys, tf.int64)[0]
    indices = tf.stack([tf.range(num_keys), tf.zeros_like(keys)], axis=1)
    sp_keys = tf.SparseTensor(indices, keys, tf.stack([num_keys, 1]))
    return fe.nn.fused_embedding_lookup_sparse(variable, sp_keys, combiner="sum")


def exports_of(variable: Any) -> list[dict[str, tf.Tensor]]:
    """All tensors of the content of each partition."""
    return [part.export_content()._asdict() for part in parts_of(variable)]


def content_of(variable: Any, run: Run) -> dict[str, np.ndarray]:
    """Everything in a table as arrays; `run` turns tensors into them."""
    return merged(run(exports_of(variable)))


def merged(exported: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Arrays of all partitions as those of one; rows and filtered keys in order of their keys."""
    whole = dict(exported[0])
    with_slots = max(exported, key=lambda part: len(part["slot_names"]))
    for name in ("slot_names", "slot_widths", "slot_initials"):
        whole[name] = with_slots[name]
    whole["step"] = max(part["step"] for part in exported)
    for first, names in (
        ("keys", ("keys", "values", "slots", "frequencies", "versions")),
        ("filtered_keys", ("filtered_keys", "filtered_frequencies", "filtered_versions")),
    ):
        order = np.argsort(np.concatenate([part[first] for part in exported]))
        for name in names:
            whole[name] = np.concatenate([part[name] for part in exported])[order]
    whole["bloom"] = np.concatenate([part["bloom"] for part in exported])
    return whole


def eager(tensors: Any) -> Any:
    """Arrays of eager tensors: a `run`."""
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), tensors)


def assert_same(got: dict[str, np.ndarray], want: dict[str, np.ndarray], but: tuple = ()) -> None:
    """Compares contents, bit by bit; `but`: names of what may differ."""
    assert got.keys() == want.keys()
    for name in want.keys() - set(but):
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)
        assert np.asarray(got[name]).dtype == np.asarray(want[name]).dtype, name


def assert_whole(content: dict[str, np.ndarray], option: str) -> None:
    """Checks that there is something of everything: a test on an empty table would be none."""
    assert len(content["keys"]) > 20
    assert len(set(content["frequencies"])) > 3
    assert len(set(content["versions"])) > 3
    assert list(content["slot_names"]) == [b"Adagrad/accumulator", b"Momentum/momentum"]
    assert content["step"] > 0
    assert (len(content["filtered_keys"]) > 0) == (option == "counter")
    assert (np.count_nonzero(content["bloom"]) > 0) == (option == "bloom")


class Program:
    """A graph with one EmbeddingVariable, trained, and a session to run it in."""

    def __init__(
        self,
        partitions: int | None,
        option: str = "plain",
        make_saver: Callable[[], Any] = tf.compat.v1.train.Saver,
        rules: Iterable[str] = tuple(RULES),
        **kwargs: Any,
    ):
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.variable = make(partitions, option, **kwargs)
            self.keys = tf.compat.v1.placeholder(tf.int64, [None])
            self.step = tf.compat.v1.placeholder(tf.int64, [])
            self.train_op = train_step(self.variable, self.keys, self.step, rules)
            self.saver = make_saver()
            self.session = tf.compat.v1.Session()

    def train(self, steps: Iterable[int]) -> None:
        for step in steps:
            self.session.run(self.train_op, {self.keys: keys_of_step(step), self.step: step})

    def content(self) -> dict[str, np.ndarray]:
        with self.graph.as_default():
            return content_of(self.variable, self.session.run)

    def save(self, path: pathlib.Path) -> str:
        with self.graph.as_default():
            return self.saver.save(self.session, str(path))

    def restore(self, path: Any) -> None:
        with self.graph.as_default():
            self.saver.restore(self.session, str(path))
