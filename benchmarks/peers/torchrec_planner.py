"""Whether fe.planner and TorchRec's planner agree that tables fit.

    python -m benchmarks.peers.torchrec_planner --write=cases.json
    torchrec/bin/python benchmarks/peers/torchrec_planner.py --read=cases.json

The first command makes random models, plans them with fe.planner without slots and without a
margin, and writes what fits. The second runs where torchrec is installed and TensorFlow need not
be, and adds what TorchRec's planner says of the same tables and budgets. It prints how often both
agree.
"""

import argparse
import collections
import json
import pathlib
from typing import Any

_CASES = 40


def main() -> None:
    """Runs one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=pathlib.Path, help="File of cases to write.")
    parser.add_argument("--read", type=pathlib.Path, help="File of cases to complete.")
    parser.add_argument("--margins", default="clear", choices=["clear", "narrow"])
    options = parser.parse_args()
    if options.write:
        content = {"margins": options.margins, "cases": _our_cases(options.margins)}
        options.write.write_text(json.dumps(content, indent=1) + "\n")
    if options.read:
        content = json.loads(options.read.read_text()) | _versions()
        for case in content["cases"]:
            case["fits_torchrec"], case["why_not"] = _fits_torchrec(case)
        agreement = collections.Counter(
            f"ours {case['fits']}, torchrec {case['fits_torchrec']}" for case in content["cases"]
        )
        content["agreement"] = dict(agreement)
        options.read.write_text(json.dumps(content, indent=1) + "\n")
        print(content["agreement"])


def _our_cases(margins: str) -> list[dict[str, Any]]:
    """Models and budgets: a fifth to a tenth less than needed, or ten to 63 times that."""
    import numpy as np

    cases = []
    for seed in range(_CASES):
        rng = np.random.default_rng(seed)
        world_size = int(rng.integers(2, 9))
        tables = [
            (f"t{i}", int(10 ** rng.uniform(3, 7)), int(rng.choice([8, 16, 64])))
            for i in range(int(rng.integers(2, 12)))
        ]
        if margins == "narrow":
            factor = float(rng.uniform(0.5, 4.0))
        else:
            factor = float(10 ** (rng.uniform(-0.7, -0.05) if seed % 2 else rng.uniform(1.0, 1.8)))
        total = sum(rows * 4 * dim for _, rows, dim in tables)
        case = {"world_size": world_size, "tables": tables, "factor": factor}
        case["bytes_of_rank"] = int(factor * total / world_size)
        cases.append(case | {"fits": _fits_ours(case)})
    return cases


def _fits_ours(case: dict[str, Any]) -> bool:
    import fused_embedding as fe

    planner = fe.planner
    configs = [planner.EmbeddingConfig(rows, dim, name) for name, rows, dim in case["tables"]]
    constraints = {config.name: planner.ParameterConstraints(num_slots=0) for config in configs}
    topology = planner.Topology(case["world_size"], ddr_cap=case["bytes_of_rank"])
    enumerator = planner.EmbeddingEnumerator(topology, 512, constraints, rows_rounding=1)
    reservation = planner.FixedPercentageStorageReservation(0.0)
    try:
        planner.EmbeddingShardingPlanner(
            enumerator=enumerator, storage_reservation=reservation
        ).plan(configs)
    except planner.PlannerError:
        return False
    return True


def _versions() -> dict[str, str]:
    import torch
    import torchrec

    return {"torch": torch.__version__, "torchrec": getattr(torchrec, "__version__", "")}


def _fits_torchrec(case: dict[str, Any]) -> tuple[bool, str]:
    import torch
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
    from torchrec.distributed import embeddingbag, planner
    from torchrec.distributed.planner import storage_reservations, types

    tables = [
        EmbeddingBagConfig(name=name, embedding_dim=dim, num_embeddings=rows, feature_names=[name])
        for name, rows, dim in case["tables"]
    ]
    model = torch.nn.Module()
    model.ebc = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    topology = planner.Topology(
        world_size=case["world_size"],
        compute_device="cpu",
        ddr_cap=case["bytes_of_rank"],
        local_world_size=1,
    )
    kinds = ["table_wise", "row_wise"]
    constraints = {
        name: planner.ParameterConstraints(sharding_types=kinds) for name, _, _ in case["tables"]
    }
    reservation = storage_reservations.FixedPercentageStorageReservation(0.0)
    made = planner.EmbeddingShardingPlanner(
        topology=topology,
        batch_size=1,
        constraints=constraints,
        storage_reservation=reservation,
        debug=False,
    )
    try:
        made.plan(model, [embeddingbag.EmbeddingBagCollectionSharder()])
    except types.PlannerError as error:
        return False, str(error)[:100]
    return True, ""


if __name__ == "__main__":
    main()
