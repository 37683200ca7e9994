"""Damo-Embedding's layer and files; `fe.damo` is its face."""

import dataclasses
import functools
import math
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding.keras import training_files
from fused_embedding.keras.fused import fused_optimizers
from fused_embedding.keras.layers import fused_layers
from fused_embedding.keras.rules import OwnRule
from fused_embedding.keras.table_training import PACKAGE, keras_of
from fused_embedding.lookup import deeprec_signatures
from fused_embedding.serving import export_for_serving
from fused_embedding.serving.onnx_arguments import Axes, OnnxArguments, export_onnx
from fused_embedding.serving.signatures import keras_specs
from fused_embedding.train.rules import Step
from fused_embedding.variable.options import EmbeddingVariableOption, StorageOption, StorageType

# Damo's groups are 16 bits; -1 is a layer that has a group of its own.
_MAX_GROUP = 2**16 - 1
_ONNX_FILE = "model.onnx"

Numbers = Mapping[str, float]


# --- What Damo's dictionaries say ---


class _Kind(NamedTuple):
    """One of the things that a dictionary's "name" chooses.

    Attributes:
        defaults: Its other entries.
        make: What it stands for, of the entries and what else the caller knows.
        zeros: Entries that must be 0: a table has no rule for them.
    """

    defaults: dict[str, float]
    make: Callable[..., Any]
    zeros: tuple[str, ...] = ()


def _uniform(keras: Any, limit: float) -> Any:
    return keras.initializers.RandomUniform(-limit, limit)


def _normal(keras: Any, _: int, n: Numbers) -> Any:
    return keras.initializers.RandomNormal(n["mean"], n["stddev"])


_NORMAL = {"mean": 0.0, "stddev": 1.0}
# THE list of initializers: of a Keras, a dim and the entries.
_INITIALIZERS = {
    "zeros": _Kind({}, lambda keras, dim, n: keras.initializers.Zeros()),
    "ones": _Kind({}, lambda keras, dim, n: keras.initializers.Ones()),
    "uniform": _Kind({}, lambda keras, dim, n: _uniform(keras, math.sqrt(1 / dim))),
    # A row is a tensor of one input and dim outputs.
    "xavier": _Kind({}, lambda keras, dim, n: _uniform(keras, math.sqrt(6 / (1 + dim)))),
    "random": _Kind(_NORMAL, _normal),
    "random_normal": _Kind(_NORMAL, _normal),
    "random_uniform": _Kind(
        {"min": -1.0, "max": 1.0},
        lambda keras, dim, n: keras.initializers.RandomUniform(n["min"], n["max"]),
    ),
    "truncate_normal": _Kind(
        _NORMAL,
        lambda keras, dim, n: keras.initializers.TruncatedNormal(n["mean"], n["stddev"]),
    ),
}


def _sgd(n: Numbers, _: tf.Tensor) -> Step:
    return Step("sgd", [n["gamma"]])


def _adagrad(n: Numbers, step: tf.Tensor) -> Step:
    learning_rate = n["gamma"] / (1 + (step - 1) * n["eta"])
    return Step("adagrad", [learning_rate, n["epsilon"], 0.0])


def _adam_hyperparameters(n: Numbers, step: tf.Tensor) -> list[Any]:
    powers = [tf.constant(n[beta], tf.float64) ** step for beta in ("beta1", "beta2")]
    # PyTorch adds epsilon to the root of the unbiased second moment, the rule to the biased one's.
    epsilon = n["epsilon"] * tf.sqrt(1 - powers[1])
    return [n["gamma"], n["beta1"], n["beta2"], epsilon, *powers]


def _adam(n: Numbers, step: tf.Tensor) -> Step:
    return Step("adam", _adam_hyperparameters(n, step))


def _adamw(n: Numbers, step: tf.Tensor) -> Step:
    return Step("adamw", [*_adam_hyperparameters(n, step), n["lambda"]])


def _ftrl(n: Numbers, _: tf.Tensor) -> Step:
    # The paper divides by (beta + sqrt(sum of g^2)) / gamma + lambda2, the rule by 2 l2 and that.
    l2 = n["lambda2"] / 2 + n["beta"] / (2 * n["gamma"])
    return Step("ftrl", [n["gamma"], -0.5, n["lambda1"], l2, 0.0, 0.0])


_ADAM = {"gamma": 1e-3, "beta1": 0.9, "beta2": 0.999, "lambda": 0.0, "epsilon": 1e-8}
# THE list of optimizers: of the entries and the number of the step. "lambda" decays weights.
_OPTIMIZERS = {
    "sgd": _Kind({"gamma": 1e-3, "lambda": 0.0}, _sgd, zeros=("lambda",)),
    "adagrad": _Kind(
        {"gamma": 1e-2, "lambda": 0.0, "eta": 0.0, "epsilon": 1e-10}, _adagrad, zeros=("lambda",)
    ),
    "adam": _Kind(_ADAM, _adam, zeros=("lambda",)),
    "adamw": _Kind({**_ADAM, "lambda": 1e-2}, _adamw),
    "ftrl": _Kind({"gamma": 5e-3, "beta": 0.0, "lambda1": 0.0, "lambda2": 0.0}, _ftrl),
}


def _read(argument: str, config: Any, kinds: dict[str, _Kind]) -> tuple[_Kind, Numbers]:
    """The kind that a user's dictionary names, and all its entries."""
    if not isinstance(config, Mapping) or "name" not in config:
        raise ValueError(
            f'{argument} must be a dictionary with a "name", one of {", ".join(kinds)}, got '
            f"{config!r}"
        )
    given = {key: value for key, value in config.items() if key != "name"}
    kind = kinds.get(config["name"])
    if kind is None:
        raise ValueError(
            f"{argument} {config['name']!r} is not one of those that a table has: use one of "
            f"{', '.join(kinds)}"
        )
    unknown = sorted(set(given) - set(kind.defaults))
    if unknown:
        known = ", ".join(kind.defaults) or "none beside its name"
        raise ValueError(
            f"{argument} {config['name']!r} was given {', '.join(unknown)}, but its entries are: "
            f"{known}"
        )
    numbers = {**kind.defaults, **{key: float(value) for key, value in given.items()}}
    _check_zeros(f"{argument} {config['name']!r}", kind, numbers)
    return kind, numbers


def _check_zeros(title: str, kind: _Kind, numbers: Numbers) -> None:
    for name in kind.zeros:
        if numbers[name]:
            raise ValueError(
                f"{title} was given {name} = {numbers[name]}, but a table decays weights by "
                f'"adamw" alone; use that, or {name} = 0'
            )


# --- The layer ---


def _with_workdir(
    option: EmbeddingVariableOption | None, workdir: str | os.PathLike[str] | None
) -> EmbeddingVariableOption | None:
    """The option of a table whose rows are in `workdir` where DRAM has no room for them."""
    if workdir is None:
        return option
    option = option or EmbeddingVariableOption()
    if option.storage_option != StorageOption():
        raise ValueError(
            f"workdir = {os.fspath(workdir)!r} was given, and an ev_option with a storage_option, "
            "but both say where rows live; leave one out: workdir stands for "
            "fe.StorageOption(fe.StorageType.DRAM_SSD, workdir)"
        )
    storage = StorageOption(StorageType.DRAM_SSD, workdir)
    return dataclasses.replace(option, storage_option=storage)


class _Embedding:
    """Damo-Embedding's Embedding: a layer with its own table and its own optimizer.

    Call it with dense int64 ids, `[batch, fields]` or any other shape. Any number except 0 is an
    id. 0 is padding: its embedding is zeros and is not trained.

    Compile the model with an optimizer of `fe.keras.optimizers`, or one that `fe.keras.wrap`
    returned. It trains the other variables, and this table by the rule of the table's own
    optimizer.

    Args:
        dim: Length of an embedding.
        group: 0 to 65535, a different number for each layer of a model; -1: chosen by the layer.
        initializer: First values: {"name": "truncate_normal", "mean": 0.0, "stddev": 0.01}. The
            names are zeros, ones, uniform, xavier, random, random_normal, random_uniform and
            truncate_normal. None: the default of fe.get_embedding_variable.
        optimizer: {"name": "adamw", "gamma": 0.001, "beta1": 0.9, "beta2": 0.999, "lambda": 0.0,
            "epsilon": 1e-8}. The names are sgd, adagrad, adam, adamw and ftrl. None: the model's
            optimizer.
        workdir: Folder on an SSD for the rows that do not fit into 1 GiB of memory
            (docs/storage_tiers.md; set another size by `ev_option`); None: all rows are in memory.
        ev_option: fe.EmbeddingVariableOption: filters, expiry, bounds.
        **kwargs: Arguments of keras.layers.Layer, such as `name` and `dtype`.
    """

    name: str
    compute_dtype: Any
    table: Any
    _keras: Any
    _params: Any
    _checked_ids: Any
    _reading: Any

    def __init__(
        self,
        dim: int,
        group: int = -1,
        *,
        initializer: Mapping[str, Any] | None = None,
        optimizer: Mapping[str, Any] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        ev_option: EmbeddingVariableOption | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(group, int) or not -1 <= group <= _MAX_GROUP:
            raise ValueError(
                f"group must be 0 to {_MAX_GROUP}, or -1 for a group of the layer's own, got "
                f"{group!r}"
            )
        first_values = rule = None
        if initializer is not None:
            kind, numbers = _read("initializer", initializer, _INITIALIZERS)
            first_values = kind.make(self._keras, dim, numbers)
        if optimizer is not None:
            kind, numbers = _read("optimizer", optimizer, _OPTIMIZERS)
            rule = OwnRule(optimizer["name"], functools.partial(kind.make, numbers))
        super().__init__(  # type: ignore[call-arg]
            output_dim=dim,
            embeddings_initializer=first_values,
            ev_option=_with_workdir(ev_option, workdir),
            **kwargs,
        )
        self.dim = dim
        self.group = group
        self.initializer = initializer
        self.optimizer = optimizer
        self._rule = rule

    def build(self, input_shape: Any = None) -> None:
        """Makes the table.

        Args:
            input_shape: Ignored.
        """
        super().build(input_shape)  # type: ignore[misc]
        if self._rule is not None:
            self._rule.give_to(self.table)

    def call(self, inputs: Any, training: Any = None) -> tf.Tensor:
        """Looks up ids.

        Args:
            inputs: `[...]` int64 ids.
            training: If False, the table does not change. A layer that is not trainable never
                changes it.

        Returns:
            `[..., dim]` embeddings.
        """
        ids = self._checked_ids(inputs)
        if isinstance(ids, tf.SparseTensor | tf.RaggedTensor):
            raise TypeError(
                f"the layer {self.name!r} was called with {ids}, but dense ids are required, in "
                "which 0 is padding; for others use fe.keras.layers.Embedding or EmbeddingBag"
            )
        # A row for each place, with its id or none: then it is zeros.
        of_places = tf.reshape(ids, [-1])
        places = tf.where(tf.not_equal(of_places, 0))
        ids_of_rows = tf.SparseTensor(
            tf.concat([places, tf.zeros_like(places)], axis=1),
            tf.gather_nd(of_places, places),
            [tf.size(of_places, tf.int64), 1],
        )
        with self._reading(training):
            rows = deeprec_signatures.fused_safe_embedding_lookup_sparse(
                self._params, ids_of_rows, combiner="sum", prune=False
            )
        rows = tf.reshape(rows, tf.concat([tf.shape(ids), [self.dim]], axis=0))
        rows.set_shape(ids.shape.concatenate([self.dim]))
        return tf.cast(rows, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """The arguments; a `workdir` is in `ev_option`.

        Returns:
            A dictionary.
        """
        config = super().get_config()  # type: ignore[misc]
        for name in ("input_dim", "output_dim", "mask_zero"):
            del config[name]
        for name in ("initializer", "regularizer", "constraint"):
            del config[f"embeddings_{name}"]
        return {
            **config,
            "dim": self.dim,
            "group": self.group,
            "initializer": self.initializer and dict(self.initializer),
            "optimizer": self.optimizer and dict(self.optimizer),
        }


@functools.cache
def _class(keras: Any) -> Any:
    base = fused_layers(keras).Embedding
    attributes = {"__module__": "fused_embedding.damo", "__doc__": _Embedding.__doc__}
    cls = type("Embedding", (_Embedding, base), attributes)
    return keras.saving.register_keras_serializable(package=f"{PACKAGE}.damo")(cls)


def embedding_class(keras: Any = None) -> Any:
    """The class Embedding for one Keras. `fe.damo.Embedding` is the class for tf.keras.

    Args:
        keras: The module that the class is for: keras, tf_keras, tf.keras; None: tf.keras.

    Returns:
        A keras.layers.Layer: `Embedding(dim, group=-1, initializer=None, optimizer=None,
        workdir=None, ev_option=None)`, described in its docstring.

    >>> layer = fe.damo.embedding_class()(4, initializer={"name": "ones"})
    >>> layer(tf.constant([[7, 0]])).numpy().tolist()
    [[[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]]
    """
    return _class(keras_of((keras or tf.keras).layers.Layer))


# --- Files ---


def _damo_layers(model: Any) -> Iterator[Any]:
    for layer in model.layers:
        if isinstance(layer, _Embedding):
            yield layer
        elif hasattr(layer, "layers"):
            yield from _damo_layers(layer)


def _check_groups(model: Any) -> None:
    groups = [layer.group for layer in _damo_layers(model) if layer.group != -1]
    twice = sorted({group for group in groups if groups.count(group) > 1})
    if twice:
        raise ValueError(
            f"the group {twice[0]} is that of {groups.count(twice[0])} layers of the model, but a "
            "group is the table of one layer; call one layer twice to share its rows, or give "
            "each layer a group"
        )


def _onnx_arguments(training: bool, arguments: dict[str, Any]) -> OnnxArguments | None:
    """Those that were given, or None."""
    given = {name: value for name, value in arguments.items() if value is not None}
    if not given:
        return None
    if training:
        raise ValueError(
            f"save_model was given {', '.join(given)}, which ask for an ONNX file, and training="
            "True, but such a file cannot be trained: pass training=False, or leave them out"
        )
    if "dummy_input" not in given:
        raise ValueError(
            f"save_model was given {', '.join(given)} without dummy_input: give an array that the "
            "model is called with"
        )
    return OnnxArguments(**given)


def save_model(  # noqa: PLR0913  # Damo's
    model: Any,
    output_dir: str | os.PathLike[str],
    training: bool = True,
    *,
    dummy_input: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_axes: Mapping[str, Axes] | None = None,
) -> None:
    """Saves a model for further training or for serving.

    Args:
        model: A Keras model that is built.
        output_dir: Folder, made if it does not exist.
        training: If true, writes the file model.keras with all weights, tables and slots, which
            `load_model` reads; for a subclassed model without get_config, model.weights.h5, which
            lacks the model's structure. If false, writes the SavedModel of
            `fe.export_for_serving` with stock ops, or, with a dummy_input, the file model.onnx.
        dummy_input: An array to call the model with, or a list or dictionary of arrays. Only their
            shapes and dtypes are used.
        input_names: A name for each array. None: the keys of a dictionary, else input_0 and so on.
        output_names: A name for each result. None: output_0 and so on.
        dynamic_axes: Axes that may have any size, by the name of an input or output:
            `{"ids": {0: "batch"}}`, or `{"ids": [0]}`. Other axes of inputs keep their sizes. None:
            all axes keep their sizes.

    Raises:
        ValueError: If two layers have the same group, there is no folder to write to, a name or
            axis is wrong, or the inputs of a SavedModel are not known.
        TypeError: If dummy_input has an element that is not an array.
        ImportError: If an ONNX file is requested and tf2onnx is not installed.
        NotImplementedError: For an op that cannot be converted to stock ops or ONNX.
    """
    onnx = _onnx_arguments(
        training,
        {
            "dummy_input": dummy_input,
            "input_names": input_names,
            "output_names": output_names,
            "dynamic_axes": dynamic_axes,
        },
    )
    if not os.fspath(output_dir):
        raise ValueError("output_dir must be a folder, got ''; pass '.' for this one")
    _check_groups(model)
    folder = pathlib.Path(output_dir)
    if onnx is not None:
        export_onnx(model, folder / _ONNX_FILE, onnx)
    elif training:
        training_files.save(model, folder)
    else:
        _check_inputs_are_known(model)
        export_for_serving(model, folder, ops="stock", overwrite=True)  # as the other forms


def _check_inputs_are_known(model: Any) -> None:
    if keras_specs(model) is not None:
        return
    raise ValueError(
        f"save_model was given the model {model.name!r} with training=False, but what a subclassed "
        "model is called with is not known to Keras: give a dummy_input, for an ONNX file, or call "
        'fe.export_for_serving(model, output_dir, ops="stock", signatures=...) with a tf.function '
        "that has an input_signature"
    )


def load_model(output_dir: str | os.PathLike[str], keras: Any = None, *, model: Any = None) -> Any:
    """Loads a model that `save_model` saved for training.

    Args:
        output_dir: The folder.
        keras: The Keras module of the model; None: tf.keras.
        model: A model of the same structure as the saved one, called on a batch and compiled in the
            same way: its weights, tables and slots are set to those of the file. Needed for
            subclassed models without a `get_config`, which Keras cannot make. None: Keras makes the
            model.

    Returns:
        The model, compiled like the saved one.

    Raises:
        FileNotFoundError: If the folder has no such model.
        ValueError: If Keras cannot make the model, or `model` has no weights yet or other weights.
        TypeError: If the file is of a class that Keras does not know.
    """
    keras = keras_of((keras or tf.keras).layers.Layer)
    embedding_class(keras)  # tells Keras of it
    fused_optimizers(keras)
    path = training_files.find(pathlib.Path(output_dir))
    if path is None:
        raise FileNotFoundError(
            f"there is no {pathlib.Path(output_dir) / training_files.MODEL}; fe.damo.load_model "
            f"reads what fe.damo.save_model(model, {str(output_dir)!r}, training=True) wrote"
        )
    if model is not None:
        training_files.load_into(model, path)
        return model
    way_out = (
        "make it as it was, call it on a batch, compile it, and pass it: "
        f"fe.damo.load_model({str(output_dir)!r}, model=model)"
    )
    if path.name == training_files.WEIGHTS:
        raise ValueError(
            f"{path} is of a subclassed model without get_config, which Keras cannot make anew: "
            f"{way_out}"
        )
    try:
        return keras.models.load_model(str(path))
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"Keras did not make the model of {path} anew; {way_out}. {error}") from error
