"""What completion shows a user: the public names, and no module or import beside them."""

import importlib
import re
import types

import pytest

import fused_embedding as fe
import public_names

MODULES = {
    "": {
        *("nn", "keras", "contrib", "get_embedding_variable", "EmbeddingVariable"),
        *("accelerate", "explain", "report"),
    },
    "nn": {"fused_safe_embedding_lookup_sparse", "group_embedding_lookup"},
    "feature_column": {"embedding_column", "DenseFeatures"},
    "keras": {"layers", "optimizers", "wrap"},
    "keras.layers": {
        *("Embedding", "EmbeddingBag", "EmbeddingGroup", "StringLookup", "IntegerLookup")
    },
    "keras.optimizers": {"SGD", "Adagrad", "RMSprop", "Adam", "AdamW", "Ftrl"},
    "train": {"Saver", "AdagradOptimizer", "read_changes"},
    "data": {"prefetch_embeddings"},
    "io": {"parse_example", "parse_single_example"},
    "convert": {"restore"},
    "damo": {"Embedding", "save_model"},
    "planner": {"EmbeddingShardingPlanner", "Topology", "ShardingPlan"},
    "one_embedding": {"make_table", "MultiTableEmbedding"},
    "dynamicemb": {"DynamicEmbTableOptions", "dump", "planner", "shard"},
    "dynamicemb.planner": {"DynamicEmbeddingShardingPlanner", "DynamicEmbeddingEnumerator"},
    "dynamicemb.shard": {"DynamicEmbeddingCollectionSharder"},
    "raw_ops": {"EmbeddingVariableLookup"},
    "compat": {"v1", "deeprec", "install"},
    "compat.v1": {"nn"},
    "compat.v1.nn": {"safe_embedding_lookup_sparse"},
    "compat.deeprec": {"install", "uninstall"},
    "contrib": {"layers"},
    "contrib.layers": {"embedding_column"},
}


@pytest.mark.parametrize("name", MODULES)
def test_dir_shows_the_public_names_alone(name):
    module = importlib.import_module(f"fused_embedding.{name}".rstrip("."))
    shown = dir(module)
    assert set(shown) >= MODULES[name] | set(getattr(module, "__all__", ()))
    assert [one for one in shown if one.startswith("_")] == []
    for one in shown:
        value = getattr(module, one)  # each is there
        if isinstance(value, types.ModuleType):
            path = re.sub(r"^fused_embedding\.?", "", value.__name__)
            assert path in MODULES, f"{one} is a module, but no public one"
    if name.startswith("keras."):
        assert set(shown) == MODULES[name]


@pytest.mark.parametrize("name", MODULES)
def test_the_api_reference_has_the_public_names(name):
    assert public_names.names_of(name) == dir(_module(name))


def test_the_api_reference_has_the_public_modules():
    assert set(public_names.MODULES) == set(MODULES)


def test_every_public_module_is_listed():
    reachable = {f"{name}.{one}".lstrip(".") for name in MODULES for one in dir(_module(name))}
    assert set(MODULES) - {""} <= reachable


def _module(name):
    return importlib.import_module(f"{fe.__name__}.{name}".rstrip("."))
