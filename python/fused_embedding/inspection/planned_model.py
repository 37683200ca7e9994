"""A model to be planned, as `fused-embedding plan` reads it: tables, topology, statistics.

    {"topology": {"world_size": 4, "ddr_cap": 64000000000, "num_workers": 8},
     "batch_size": 4096,
     "checkpoint": "model.ckpt-1000",
     "tables": [{"name": "users", "num_embeddings": 100000000, "embedding_dim": 16,
                 "pooling_factors": [5], "alpha": 1.1},
                {"name": "items", "num_embeddings": 1000000, "embedding_dim": 32,
                 "ids": "items.npy"}]}

Keys of a table are those of fe.planner.EmbeddingConfig and ParameterConstraints. How often its keys
occur is said by `ids`, a log of ids, else by the frequencies of the table in `checkpoint`, else by
`alpha`, the exponent of Zipf.
"""

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fused_embedding.inspection.checkpoint_tables import CheckpointError, DamagedTable, find_tables
from fused_embedding.inspection.id_log import read_ids
from fused_embedding.planner.costs import Costs
from fused_embedding.planner.enumerators import (
    BATCH_SIZE,
    DEFAULT_SHARDING_TYPES,
    EmbeddingEnumerator,
)
from fused_embedding.planner.planners import EmbeddingShardingPlanner
from fused_embedding.planner.statistics import KeyDistribution
from fused_embedding.planner.types import EmbeddingConfig, ParameterConstraints, Topology

_MODEL_KEYS = ("topology", "batch_size", "checkpoint", "sharding_types", "rows_rounding", "tables")
_CONFIG_KEYS = [field.name for field in dataclasses.fields(EmbeddingConfig)]
_CONSTRAINT_KEYS = [
    *("sharding_types", "min_partition", "pooling_factors", "num_poolings", "batch_sizes"),
    *("num_slots", "num_shards"),
]
_STATISTICS_KEYS = ("alpha", "ids")


def read_model(
    path: str, costs: str | None = None
) -> tuple[EmbeddingShardingPlanner, list[EmbeddingConfig]]:
    """Reads the description of a model.

    Args:
        path: The JSON file. Paths in it are relative to its folder.
        costs: File of `fused-embedding calibrate`; None: defaults.

    Returns:
        A planner and the tables.

    Raises:
        ValueError: If the description is not as the module's docstring says.
        LogError: If a log of ids cannot be read.
        CheckpointError: If the checkpoint cannot be read.
        OSError: If the file cannot be read.
    """
    with open(path) as file:
        try:
            model = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path} is not JSON: {error}") from error
    _check_keys(path, model, _MODEL_KEYS, ("topology", "tables"))
    folder = os.path.dirname(path)
    counted = _frequencies(folder, model)
    configs, constraints = [], {}
    for table in model["tables"]:
        known = (*_CONFIG_KEYS, *_CONSTRAINT_KEYS, *_STATISTICS_KEYS)
        needed = ("name", "num_embeddings", "embedding_dim")
        _check_keys(f"a table of {path}", table, known, needed)
        config = EmbeddingConfig(**_some(table, _CONFIG_KEYS))
        configs.append(config)
        constraints[config.name] = ParameterConstraints(
            **_some(table, _CONSTRAINT_KEYS), distribution=_distribution(folder, table, counted)
        )
    enumerator = EmbeddingEnumerator(
        Topology(**model["topology"]),
        model.get("batch_size", BATCH_SIZE),
        constraints,
        Costs.load(costs) if costs else None,
        sharding_types=model.get("sharding_types", DEFAULT_SHARDING_TYPES),
        rows_rounding=model.get("rows_rounding", "power_of_two"),
    )
    return EmbeddingShardingPlanner(enumerator=enumerator), configs


def _check_keys(what: str, given: Any, known: Sequence[str], needed: Sequence[str]) -> None:
    if not isinstance(given, dict):
        raise ValueError(f"{what} must be an object of JSON, got {given!r}")
    unknown, missing = sorted({*given} - {*known}), sorted({*needed} - {*given})
    if unknown or missing:
        raise ValueError(
            f"{what} has the unknown keys {unknown} and lacks {missing}; the keys are "
            f"{', '.join(known)}"
        )


def _some(table: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: table[name] for name in names if name in table}


def _distribution(
    folder: str, table: dict[str, Any], counted: dict[str, np.ndarray]
) -> KeyDistribution | None:
    if "ids" in table:
        ids = np.concatenate(list(read_ids(os.path.join(folder, table["ids"]))))
        return KeyDistribution.from_counts(np.unique(ids, return_counts=True)[1])
    if table["name"] in counted and "alpha" not in table:
        return KeyDistribution.from_counts(counted[table["name"]])
    if "alpha" in table:
        return KeyDistribution.zipf(table["num_embeddings"], table["alpha"])
    return None


def _frequencies(folder: str, model: dict[str, Any]) -> dict[str, np.ndarray]:
    """How often each key of the tables of the checkpoint occurred, by the tables' names."""
    if not model.get("checkpoint"):
        return {}
    found: dict[str, list[np.ndarray]] = {}
    for name, frequencies in _read_frequencies(os.path.join(folder, model["checkpoint"])):
        found.setdefault(name, []).append(frequencies)
    joined = {name: np.concatenate(one) for name, one in found.items()}
    return {name: counts for name, counts in joined.items() if counts.any()}


def _read_frequencies(path: str) -> Iterator[tuple[str, np.ndarray]]:
    for read in find_tables(path):
        table = read()
        if isinstance(table, DamagedTable):
            raise CheckpointError(f"table {table.name}: {'; '.join(table.errors)}")
        # "users, partition 1 of 2" and "users/part_1" are the table "users".
        name = table.name.partition(", ")[0].partition("/part_")[0]
        yield name, table.use.frequencies
