"""DeepRec's names in stock TensorFlow, for programs that were written for DeepRec.

Nothing is changed before `install()`; `uninstall()` takes everything back. docs/deeprec.md lists
what is added and what differs.
"""

import functools
import importlib
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from fused_embedding import contrib, feature_column, nn, train
from fused_embedding.checkpoint import first_content
from fused_embedding.columns.input_layer import input_layer_of_groups
from fused_embedding.columns.sequence_input_layer import sequence_input_layer
from fused_embedding.compat import deeprec_absent, deeprec_compressed, deeprec_saving
from fused_embedding.lookup import stock_signatures
from fused_embedding.variable import composed, embedding_variable, options, partitions, scope

__all__ = ["install", "uninstall"]


def __dir__() -> list[str]:
    return sorted(__all__)


_MISSING = object()
_MULTIHASH_COLUMN = deeprec_compressed.categorical_column_with_multihash


class _Change(NamedTuple):
    """One attribute, or one entry of sys.modules, and what it was; of a list, what was added."""

    owner: Any
    name: str
    before: Any

    def undo(self) -> None:
        if isinstance(self.owner, list):
            self.owner.remove(self.before)
        elif isinstance(self.owner, dict):
            self.owner.pop(self.name, None)
            if self.before is not _MISSING:
                self.owner[self.name] = self.before
        elif self.before is _MISSING:
            # Set first: two modules of tf.compat.v1 may have one behind them, which has lost the
            # name already.
            setattr(self.owner, self.name, None)
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.before)


_changes: list[_Change] = []


class Installation:
    """What `install` returns: `with install():` uninstalls at its end."""

    def __enter__(self) -> "Installation":
        return self

    def __exit__(self, *exception: Any) -> None:
        uninstall()


def install() -> Installation:
    """Adds DeepRec's names to tf.compat.v1 and to the modules that DeepRec programs import.

    It applies to the whole process and all threads. Installing again changes nothing.

    Returns:
        A context manager that uninstalls.

    >>> with fe.compat.deeprec.install():
    ...     option = tf.compat.v1.EmbeddingVariableOption()
    >>> hasattr(tf.compat.v1, "EmbeddingVariableOption")
    False
    """
    if not _changes:
        for owner, names in _additions():
            for name, value in names.items():
                _set(owner, name, value)
        finder: Any = deeprec_absent.ContribFinder()
        sys.meta_path.insert(0, finder)
        _changes.append(_Change(sys.meta_path, "", finder))
    return Installation()


def uninstall() -> None:
    """Undoes `install`; does nothing if it is not installed."""
    while _changes:
        _changes.pop().undo()


def _set(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, dict):
        _changes.append(_Change(owner, name, owner.get(name, _MISSING)))
        owner[name] = value
    else:
        # Not getattr: tf.compat.v1 loads some names when they are first used.
        _changes.append(_Change(owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)


def _v1_modules() -> list[types.ModuleType]:
    """All modules that some code knows as tf.compat.v1: imports of Keras make further ones."""
    names = ("tensorflow.compat.v1", "tensorflow._api.v2.compat.v1")
    modules = [tf.compat.v1, *(sys.modules[name] for name in names if name in sys.modules)]
    return list({id(module): module for module in modules}.values())


def _additions() -> list[tuple[Any, dict[str, Any]]]:
    """Modules, classes and sys.modules, with what each is given."""
    python = sys.modules["tensorflow.python"]
    stock_embedding_ops = importlib.import_module("tensorflow.python.ops.embedding_ops")
    ev_options = {name: getattr(options, name) for name in options.__all__}
    variables = {"get_embedding_variable": get_embedding_variable, **deeprec_compressed.VARIABLES}
    variables_module = importlib.import_module("tensorflow.python.ops.variables")
    stock_initializer = variables_module.global_variables_initializer
    initializers = {
        "global_variables_initializer": first_content.loading_initializer(stock_initializer)
    }
    modules = _import_shims(ev_options)
    columns = _public(feature_column)
    columns["input_layer"] = input_layer_of_groups  # ours fuses columns of no group as well
    columns["categorical_column_with_multihash"] = _MULTIHASH_COLUMN
    additions: list[tuple[Any, dict[str, Any]]] = [
        (sys.modules, modules),
        (stock_embedding_ops, _fused_lookups()),
        *_column_modules(),
        (importlib.import_module("tensorflow.python.ops.variable_scope"), variables),
        (variables_module, {**ev_options, **initializers}),
    ]
    tf1_names = {
        **deeprec_absent.TF,
        **ev_options,
        **variables,
        **initializers,
        "contrib": modules["tensorflow.contrib"],
        # DeepRec's `tensorflow` is the package itself: import tensorflow.python.x as y
        "python": python,
        "core": sys.modules["tensorflow.core"],
    }
    for tf1 in _v1_modules():
        additions += [
            (tf1, tf1_names),
            (tf1.GraphKeys, {"EMBEDDING_VARIABLES": scope.EMBEDDING_VARIABLES}),
            (tf1.feature_column, columns),
            (
                tf1.nn,
                {
                    **_fused_lookups(),
                    **_group_lookups(),
                    **_stock_lookups(),
                    **deeprec_compressed.LOOKUPS,
                },
            ),
            (tf1.train, _training()),
            (tf1.data, deeprec_absent.DATA),
            (tf1.config.experimental, deeprec_absent.EXPERIMENTAL_CONFIG),
            (tf1.variable_scope, deeprec_absent.VARIABLE_SCOPE),
        ]
    return additions


def _column_modules() -> list[tuple[Any, dict[str, Any]]]:
    """TensorFlow's own modules of feature columns, with the columns that DeepRec has in them."""
    package = "tensorflow.python.feature_column"
    sequence_column = "sequence_categorical_column_with_embedding"
    adaptive_column = "categorical_column_with_adaptive_embedding"
    new = {
        "feature_column_v2": {
            "categorical_column_with_embedding": feature_column.categorical_column_with_embedding,
            "categorical_column_with_multihash": _MULTIHASH_COLUMN,
            adaptive_column: getattr(feature_column, adaptive_column),
        },
        "sequence_feature_column": {sequence_column: getattr(feature_column, sequence_column)},
    }
    return [
        (importlib.import_module(f"{package}.{name}"), columns) for name, columns in new.items()
    ]


def _public(module: types.ModuleType) -> dict[str, Any]:
    return {name: getattr(module, name) for name in module.__all__}


def get_embedding_variable(
    name: str,
    embedding_dim: int,
    key_dtype: Any = tf.int64,
    value_dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    custom_getter: Any = None,
    constraint: Any = None,
    init_data_source: str | None = None,
    ev_option: Any = None,
) -> Any:
    """`fe.get_embedding_variable` with DeepRec's signature.

    Args:
        name: Name in the variable scope.
        embedding_dim: Length of a row, > 0.
        key_dtype: tf.int64 or tf.int32.
        value_dtype: tf.float32, tf.float64, tf.float16 or tf.bfloat16; None: tf.float32.
        initializer: First value of a row; None: the scope's, or a truncated normal of standard
            deviation `1 / sqrt(embedding_dim)`.
        regularizer: Must be None: it would be called with a dense tensor.
        trainable: Whether lookups insert keys and the variable is in TRAINABLE_VARIABLES.
        collections: Further graph collections to add the variable to.
        caching_device: Ignored: rows are not cached.
        partitioner: Called with the shape `[2^62, embedding_dim]`; None: the scope's.
        validate_shape: Ignored.
        custom_getter: Must be None.
        constraint: Must be None.
        init_data_source: Must be None.
        ev_option: Filters, expiry, bounds, storage and more; None: the defaults.

    Returns:
        An EmbeddingVariable; with a partitioner a PartitionedEmbeddingVariable.

    Raises:
        NotImplementedError: If an argument that must be None is not.
        ValueError: For the values that `fe.get_embedding_variable` refuses.
        TypeError: For the types that `fe.get_embedding_variable` refuses.
    """
    deeprec_compressed.refuse_given(
        "EmbeddingVariable",
        name,
        regularizer=regularizer,
        custom_getter=custom_getter,
        constraint=constraint,
        init_data_source=init_data_source,
    )
    return scope.get_embedding_variable(
        name,
        embedding_dim,
        key_dtype=key_dtype,
        value_dtype=value_dtype or tf.float32,
        initializer=initializer,
        trainable=trainable,
        collections=collections,
        partitioner=partitioner,
        ev_option=ev_option,
    )


def _fused_lookups() -> dict[str, Callable[..., tf.Tensor]]:
    return {
        "fused_embedding_lookup_sparse": nn.fused_embedding_lookup_sparse,
        "fused_embedding_lookup_sparse_v2": nn.fused_embedding_lookup_sparse_v2,
        "fused_safe_embedding_lookup_sparse": nn.fused_safe_embedding_lookup_sparse,
    }


def _group_lookups() -> dict[str, Callable[..., Any]]:
    return {
        "group_embedding_lookup": nn.group_embedding_lookup,
        "group_embedding_lookup_sparse": nn.group_embedding_lookup_sparse,
    }


def _stock_lookups() -> dict[str, Callable[..., tf.Tensor]]:
    """tf.nn's own lookups, which in DeepRec take EmbeddingVariables too."""
    stock = importlib.import_module("tensorflow.python.ops.embedding_ops")
    ours = {
        "embedding_lookup_sparse": stock_signatures.embedding_lookup_sparse_v1,
        "safe_embedding_lookup_sparse": stock_signatures.safe_embedding_lookup_sparse_v1,
    }
    lookups = {name: _on_tables(getattr(stock, name), lookup) for name, lookup in ours.items()}
    lookups["embedding_lookup_sparse"] = _of_composed(
        lookups["embedding_lookup_sparse"], deeprec_compressed.embedding_lookup_sparse
    )
    rows = _of_composed(
        _of_whole_tables(stock.embedding_lookup), deeprec_compressed.embedding_lookup
    )
    return {**lookups, "embedding_lookup": rows}


def _of_composed(lookup: Any, ours: Any) -> Callable[..., tf.Tensor]:
    """`lookup`, but `ours` in tables of several parts and with `blocknums`."""

    @functools.wraps(lookup)
    def look_up(params: Any, *args: Any, **kwargs: Any) -> tf.Tensor:
        is_ours = stock_signatures.is_composed(params) or kwargs.get("blocknums") is not None
        return (ours if is_ours else lookup)(params, *args, **kwargs)

    return look_up


def _of_whole_tables(stock: Any) -> Callable[..., tf.Tensor]:
    """`stock`, but that a list of all partitions of a table is that table: keys are not divided.

    Lists of tables that a program divides by itself are stock's.
    """

    @functools.wraps(stock)
    def lookup(params: Any, *args: Any, **kwargs: Any) -> tf.Tensor:
        parts = params if isinstance(params, list | tuple) else []
        is_table = [isinstance(part, embedding_variable.EmbeddingVariable) for part in parts]
        is_whole = len(parts) > 1 and all(is_table) and parts[0].partition.count == len(parts)
        ours = stock_signatures.embedding_lookup_v1
        return (ours if is_whole else stock)(params, *args, **kwargs)

    return lookup


def _on_tables(stock: Any, ours: Any) -> Callable[..., tf.Tensor]:
    """A lookup that is `ours` where its first argument is an EmbeddingVariable."""

    def lookup(params: Any, *args: Any, **kwargs: Any) -> tf.Tensor:
        first = params[0] if isinstance(params, list | tuple) and params else params
        is_table = isinstance(first, _TABLES)
        return (ours if is_table else stock)(params, *args, **kwargs)

    lookup.__name__ = stock.__name__
    lookup.__doc__ = stock.__doc__
    return lookup


_TABLES = (
    embedding_variable.EmbeddingVariable,
    partitions.PartitionedEmbeddingVariable,
    composed.ComposedTable,
)


def _training() -> dict[str, Any]:
    """What DeepRec adds to tf.train, or has with other arguments there."""
    names = ("AdagradDecayOptimizer", "AdamAsyncOptimizer", "AdamWOptimizer")
    return {
        **{name: getattr(train, name) for name in names},
        # DeepRec's second one counts decays by row, which ours does anyway.
        "AdagradDecayOptimizerV2": train.AdagradDecayOptimizer,
        **_public(deeprec_saving),
        **deeprec_absent.TRAIN,
    }


def _import_shims(ev_options: dict[str, Any]) -> dict[str, types.ModuleType]:
    """Modules that DeepRec has and stock TensorFlow does not, by name."""
    layers = _public(contrib.layers)
    lookups = {
        **_fused_lookups(),
        "safe_embedding_lookup_sparse": stock_signatures.safe_embedding_lookup_sparse_v1,
    }
    columns = {name: value for name, value in layers.items() if "column" in name}
    inputs = {"input_from_feature_columns": columns.pop("input_from_feature_columns")}
    checkpoints = {
        name: getattr(tf.train, name)
        for name in ("list_variables", "load_checkpoint", "load_variable")
    }
    contents: dict[str, dict[str, Any]] = {
        **deeprec_absent.ABSENT_MODULES,
        "tensorflow.contrib": {},
        "tensorflow.contrib.feature_column": {"sequence_input_layer": sequence_input_layer},
        "tensorflow.contrib.framework": checkpoints,
        "tensorflow.contrib.framework.python": {},
        "tensorflow.contrib.framework.python.framework": {},
        "tensorflow.contrib.framework.python.framework.checkpoint_utils": checkpoints,
        "tensorflow.contrib.layers": {**layers, **lookups},
        "tensorflow.contrib.layers.python": {},
        "tensorflow.contrib.layers.python.layers": {**layers, **lookups},
        "tensorflow.contrib.layers.python.layers.feature_column": columns,
        "tensorflow.contrib.layers.python.layers.feature_column_ops": inputs,
        "tensorflow.contrib.layers.python.layers.embedding_ops": lookups,
        "tensorflow.core.framework.embedding": {},
        "tensorflow.core.framework.embedding.config_pb2": {
            name: ev_options[name] for name in ("CacheStrategy", "StorageType")
        },
    }
    modules: dict[str, types.ModuleType] = {}
    for name, content in contents.items():
        module = types.ModuleType(name, "DeepRec's module of this name, as fused_embedding has it.")
        module.__path__ = []  # a package, as far as imports can tell
        vars(module).update(content, __getattr__=_names_what_is_there(name, content))
        modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent in modules:
            setattr(modules[parent], child, module)
    return modules


def _names_what_is_there(module: str, content: dict[str, Any]) -> Callable[[str], Any]:
    """The `__getattr__` of a module, for names that it does not have."""

    def missing(name: str) -> Any:
        raise AttributeError(deeprec_absent.missing_in_contrib(f"{module}.{name}", list(content)))

    return missing
