"""fe.dynamicemb.planner and .shard: the calls of DynamicEmb's example, and the tables they make."""

import dataclasses
import math
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from fused_embedding.dynamicemb import (
    DynamicEmbCheckMode,
    DynamicEmbInitializerArgs,
    DynamicEmbInitializerMode,
    DynamicEmbTableOptions,
)
from fused_embedding.dynamicemb.planner import (
    DynamicEmbeddingEnumerator,
    DynamicEmbeddingShardingPlanner,
    DynamicEmbParameterConstraints,
    EmbeddingBagConfig,
    EmbeddingConfig,
    HeuristicalStorageReservation,
    HKVConfig,
    PoolingType,
    ShardingType,
    Topology,
)
from fused_embedding.dynamicemb.shard import DynamicEmbeddingCollectionSharder

v1 = tf.compat.v1
GIB = 1 << 30


def seeds_plan(eb_configs, world_size=4, mode=DynamicEmbInitializerMode.UNIFORM, **kwargs):
    """The calls of DynamicEmb's example, with a world_size where it asks torch."""
    constraints = {}
    for config in eb_configs:
        constraints[config.name] = DynamicEmbParameterConstraints(
            sharding_types=[ShardingType.ROW_WISE.value],
            enforce_hbm=True,
            bounds_check_mode=None,
            use_dynamicemb=True,
            dynamicemb_options=DynamicEmbTableOptions(
                global_hbm_for_values=GIB,
                initializer_args=DynamicEmbInitializerArgs(mode=mode),
                safe_check_mode=DynamicEmbCheckMode.WARNING,
            ),
        )
    topology = Topology(
        local_world_size=1,
        world_size=world_size,
        compute_device="cpu",
        hbm_cap=80 * GIB,
        ddr_cap=512 * GIB,
        intra_host_bw=450e9,
        inter_host_bw=25e9,
    )
    enumerator = DynamicEmbeddingEnumerator(topology=topology, constraints=constraints, **kwargs)
    planner = DynamicEmbeddingShardingPlanner(
        eb_configs=eb_configs,
        topology=topology,
        constraints=constraints,
        batch_size=1024,
        enumerator=enumerator,
        storage_reservation=HeuristicalStorageReservation(percentage=0.05),
        debug=True,
    )
    sharder = DynamicEmbeddingCollectionSharder(
        fused_params={"learning_rate": 1e-3}, qcomm_codecs_registry=None, use_index_dedup=True
    )
    return constraints, sharder, planner.collective_plan(None, [sharder], None)


CONFIGS = [
    EmbeddingConfig(
        name="users",
        embedding_dim=8,
        num_embeddings=100_000,
        feature_names=["user"],
        data_type=tf.float32,
    ),
    EmbeddingBagConfig(
        num_embeddings=1000,
        embedding_dim=4,
        name="items",
        feature_names=["item", "seen"],
        pooling=PoolingType.MEAN,
    ),
]


def test_the_seeds_calls(capsys):
    constraints, sharder, plan = seeds_plan(CONFIGS)
    assert "max/mean" in capsys.readouterr().out  # debug
    assert sharder.use_index_dedup
    assert plan.world_size == 4
    for config, rows in ((CONFIGS[0], 1 << 15), (CONFIGS[1], 256)):
        assert plan.ranks(config.name) == (0, 1, 2, 3)
        options = constraints[config.name].dynamicemb_options
        assert options.max_capacity == rows == plan.table(config.name).rows_per_rank
        bound = math.sqrt(1 / config.num_embeddings)
        assert (options.initializer_args.lower, options.initializer_args.upper) == (-bound, bound)
        assert options.dim == config.embedding_dim
        assert (options.index_type, options.embedding_dtype) == (tf.int64, tf.float32)
        assert options.safe_check_mode == DynamicEmbCheckMode.WARNING


def test_rows_a_rank_are_multiples_of_the_bucket():
    constraints, _, plan = seeds_plan(CONFIGS, 3, rows_rounding="bucket")
    assert plan.table("users").rows_per_rank == 33_408  # 261 buckets of 128 for 33,334 rows
    assert constraints["items"].dynamicemb_options.max_capacity == 384
    with pytest.raises(ValueError, match="rows_rounding must be"):
        DynamicEmbeddingEnumerator(Topology(1), rows_rounding=128)


def test_other_first_values_have_no_bounds():
    constraints, _, _ = seeds_plan(CONFIGS, mode=DynamicEmbInitializerMode.NORMAL)
    args = constraints["users"].dynamicemb_options.initializer_args
    assert (args.lower, args.upper) == (None, None)


def test_tables_of_a_plan():
    _, sharder, plan = seeds_plan(CONFIGS)
    tables = sharder.shard(CONFIGS, plan)
    assert [len(table) for table in tables.values()] == [4, 4]
    bound = math.sqrt(1 / 100_000)
    rows = tf.nn.embedding_lookup(tables["users"], np.arange(1000)).numpy()
    assert 0.9 * bound < np.abs(rows).max() <= bound
    for part in tables["users"]:
        assert part.table_attributes["max_capacity"] == 1 << 15
        assert part.table_attributes["check_mode"] == "warning"
        assert part.table_attributes["eviction"] == "lru"
    plan.check(tables.values())


def test_tables_of_a_plan_are_on_servers():
    _, sharder, plan = seeds_plan(CONFIGS)
    with tf.Graph().as_default() as graph:
        tables = sharder.shard(CONFIGS, plan, device="/job:worker/task:0")
        for table in tables.values():
            devices = [part.handle.device for part in table]
            assert devices == [f"/job:ps/task:{rank}" for rank in range(4)]
        plan.check(graph)


def test_other_sharding_types_are_the_planners_choice():
    constraints = {
        "items": DynamicEmbParameterConstraints(
            sharding_types=["table_wise"],
            use_dynamicemb=True,
            dynamicemb_options=DynamicEmbTableOptions(dim=4, init_capacity=5000),
        ),
        "users": DynamicEmbParameterConstraints(),
    }
    planner = DynamicEmbeddingShardingPlanner(
        CONFIGS, Topology(4), constraints=constraints, debug=False
    )
    plan = planner.plan()
    assert len(plan.ranks("items")) == 1
    options = constraints["items"].dynamicemb_options
    assert (options.max_capacity, options.init_capacity) == (1024, 1024)
    assert constraints["users"].dynamicemb_options == DynamicEmbTableOptions()
    assert planner.collective_plan().digest == plan.digest


def test_one_server_without_a_topology():
    with pytest.warns(RuntimeWarning, match="no topology was given"):
        planner = DynamicEmbeddingShardingPlanner(eb_configs=CONFIGS, batch_size=8, debug=False)
    assert planner.plan().world_size == 1


def test_hkv_config_has_the_tables_options():
    assert HKVConfig is DynamicEmbTableOptions


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: DynamicEmbParameterConstraints(use_dynamicemb=True, dynamicemb_options=None),
            TypeError,
            "dynamicemb_options must be",
        ),
        (
            lambda: DynamicEmbeddingCollectionSharder(qcomm_codecs_registry={}),
            ValueError,
            "qcomm_codecs_registry",
        ),
        (
            lambda: DynamicEmbeddingEnumerator(Topology(1), estimator=7),
            TypeError,
            "estimator must be an fe.planner.Costs",
        ),
        (
            lambda: DynamicEmbeddingShardingPlanner(
                CONFIGS,
                Topology(2),
                constraints={
                    "users": DynamicEmbParameterConstraints(
                        use_dynamicemb=True, dynamicemb_options=DynamicEmbTableOptions(dim=9)
                    )
                },
            ).plan(),
            ValueError,
            "'users' have dim = 9, but its config has embedding_dim = 8",
        ),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


# --- Files of a plan's ranks ---


def trained(plan, sharder):
    """Tables with the rows of 200 keys and Adagrad's states."""
    model = tf.Module()
    tables = sharder.shard(CONFIGS, plan)
    model.users, model.items = tables["users"], tables["items"]
    optimizer = v1.train.AdagradOptimizer(0.1)
    for table in tables.values():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, np.arange(200) * 7) ** 2)
        parts = list(table)
        optimizer.apply_gradients(zip(tape.gradient(loss, parts), parts, strict=True))
    return model


def keys_in(path, rank, world_size, table="users"):
    return np.fromfile(f"{path}/model/{table}_emb_keys.rank_{rank}.world_size_{world_size}", "i8")


def test_files_of_the_plans_ranks(tmp_path):
    _, sharder, plan = seeds_plan(CONFIGS)
    model = trained(plan, sharder)
    path = str(tmp_path / "dumped")
    fe.dynamicemb.dump(path, model, optim=True, pg=plan)
    for rank, part in enumerate(model.users):
        assert sorted(keys_in(path, rank, 4)) == part.export().keys.numpy().tolist()
    want = model.users.export()
    other = trained(plan, sharder)
    other.users.erase(want.keys)
    fe.dynamicemb.load(path, other, optim=True, pg=plan)
    np.testing.assert_array_equal(other.users.export().keys, want.keys)
    np.testing.assert_array_equal(other.users.export().values, want.values)
    _, sharder, fewer = seeds_plan(CONFIGS, 2)
    other = trained(fewer, sharder)
    fe.dynamicemb.load(path, other, optim=True)  # divided anew
    np.testing.assert_array_equal(other.users.export().values, want.values)
    with pytest.raises(ValueError, match="'users' of 4 ranks, but pg is a plan for 2"):
        fe.dynamicemb.load(path, other, pg=fewer)
    with pytest.raises(ValueError, match="'users' has 2 partitions, but pg is a plan with 4"):
        fe.dynamicemb.dump(str(tmp_path / "other"), other, pg=plan)
    assert not os.path.exists(tmp_path / "other")


def test_a_rank_without_the_table_has_empty_files(tmp_path):
    plan = seeds_plan(CONFIGS)[2]
    table = dataclasses.replace(plan.table("items"), ranks=(2,), sharding_type="table_wise")
    plan = fe.planner.ShardingPlan([table], plan.loads, plan.budget)
    model = tf.Module()
    model.items = fe.get_embedding_variable("items", 4, ev_option=plan.ev_option("items"))
    tf.nn.embedding_lookup(model.items, [5, 6])
    fe.dynamicemb.dump(str(tmp_path / "dumped"), model, optim=True, pg=plan)
    sizes = [len(keys_in(tmp_path / "dumped", rank, 4, "items")) for rank in range(4)]
    assert sizes == [0, 0, len(model.items.export().keys), 0]
    model.items.upsert([99], np.ones([1, 4]))
    fe.dynamicemb.load(str(tmp_path / "dumped"), model, optim=True, pg=plan)
    assert 99 not in model.items.export().keys


def test_other_groups_are_refused(tmp_path):
    model = trained(*seeds_plan(CONFIGS)[:0:-1])
    for act in (fe.dynamicemb.dump, fe.dynamicemb.load):
        with pytest.raises(ValueError, match=r"pg must be a plan .* or None, got 'world'"):
            act(str(tmp_path / "dumped"), model, pg="world")


def test_the_example_of_the_page():
    page = pathlib.Path(__file__).parents[2] / "docs/migration/dynamicemb.md"
    text = page.read_text().split("## Planner and sharder")[1]
    example = "\n".join(line[4:] for line in text.splitlines() if line.startswith("    "))
    names = {"tf": tf}
    with tf.Graph().as_default() as graph:
        exec(compile(example, "dynamicemb.md", "exec"), names)
        names["plan"].check(graph)
    assert [part.handle.device for part in names["tables"]["users"]] == [
        f"/job:ps/task:{rank}" for rank in range(4)
    ]
    options = names["constraints"]["users"].dynamicemb_options
    assert options.max_capacity == 1 << 22
