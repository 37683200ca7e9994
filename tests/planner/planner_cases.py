"""Tables and servers that several files plan."""

import numpy as np

import fused_embedding as fe

planner = fe.planner
GB = 10**9


def large_case(num_tables=1000, world_size=256, num_rows=10**12, ddr_cap=1000 * GB, seed=1):
    """Log-normal sizes, dims, pooling factors and exponents of a large model."""
    rng = np.random.default_rng(seed)
    rows = np.exp(rng.normal(14, 4, num_tables))
    rows = np.maximum(rows / rows.sum() * num_rows, 3).astype(np.int64)
    rows[rows.argmax()] += max(num_rows - rows.sum(), 0)
    configs, constraints = [], {}
    for i, num_embeddings in enumerate(rows.tolist()):
        config = planner.EmbeddingConfig(
            num_embeddings, int(rng.choice([8, 16, 32, 64])), f"table{i}"
        )
        configs.append(config)
        constraints[config.name] = planner.ParameterConstraints(
            pooling_factors=[float(rng.choice([1, 1, 1, 5, 20]))],
            distribution=planner.KeyDistribution.zipf(num_embeddings, rng.uniform(1.02, 1.4)),
        )
    topology = planner.Topology(world_size, ddr_cap=ddr_cap, ssd_cap=16000 * GB, num_workers=64)
    return configs, constraints, topology
