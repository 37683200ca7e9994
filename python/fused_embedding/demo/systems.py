"""The systems that the demo compares: one program, built and run in four ways."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import fused_embedding as fe
from fused_embedding.demo import model
from fused_embedding.demo.trainer import Run, open_session

Fusion = Literal["v1", "v2", True]

DEFAULT = "stock, default options"
BEST = "stock at its best"
ACCELERATED = "fe.accelerate()"
# The system with default options trains on that many steps at most: they take longer.
DEFAULT_STEPS = 100


@dataclass(frozen=True)
class System:
    """One way to build and run the program.

    Attributes:
        name: The name in the output.
        build: Builds the program, from the embedding dimension, the seed and
            `make_inputs` of `model.build`.
        is_tuned: Whether its session has the options with which stock is fastest.
    """

    name: str
    build: Callable[[int, int, model.MakeInputs], model.Model]
    is_tuned: bool = True


def systems(fusion: Fusion) -> list[System]:
    """All systems.

    Args:
        fusion: `do_fusion` of the system whose columns are edited.
    """
    return [
        System(DEFAULT, _build, is_tuned=False),
        System(BEST, _build),
        System(f"do_fusion={fusion}", functools.partial(_build_fused, fusion)),
        System(ACCELERATED, _build_accelerated),
    ]


def start(system: System, embedding_dim: int, seed: int, make_inputs: model.MakeInputs) -> Run:
    """Builds the program of a system and opens its session."""
    built = system.build(embedding_dim, seed, make_inputs)
    return Run(system.name, built, open_session(built.graph, system.is_tuned))


def _build(embedding_dim: int, seed: int, make_inputs: model.MakeInputs) -> model.Model:
    return model.build(embedding_dim, seed, make_inputs=make_inputs)


def _build_fused(
    fusion: Fusion, embedding_dim: int, seed: int, make_inputs: model.MakeInputs
) -> model.Model:
    column = functools.partial(fe.feature_column.embedding_column, do_fusion=fusion)
    return model.build(embedding_dim, seed, column, make_inputs)


def _build_accelerated(embedding_dim: int, seed: int, make_inputs: model.MakeInputs) -> model.Model:
    with fe.accelerate() as acceleration:
        built = model.build(embedding_dim, seed, make_inputs=make_inputs)
    print("\n".join(f"        {line}" for line in str(acceleration).splitlines()))
    return built
