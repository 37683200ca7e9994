"""Plans as files, as text and in graphs."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf
from planner_cases import GB, planner

import fused_embedding as fe

v1 = tf.compat.v1
CONFIGS = [
    planner.EmbeddingConfig(10**8, 16, "scope/users"),
    planner.EmbeddingConfig(10**6, 8, "items"),
    planner.EmbeddingConfig(1000, 4, "days"),
]
TYPES = {"scope/users": "row_wise", "items": "table_wise", "days": "table_wise"}


def make_plan(world_size=4, constraints=None, **kwargs):
    topology = planner.Topology(world_size, ddr_cap=100 * GB, **kwargs)
    constraints = constraints or {
        name: planner.ParameterConstraints([kind]) for name, kind in TYPES.items()
    }
    return planner.EmbeddingShardingPlanner(topology, constraints=constraints).plan(CONFIGS)


def build(plan, configs=CONFIGS, **kwargs):
    """The tables of a plan as a worker's graph makes them, and a dense variable before each."""
    made, dense = {}, []
    with v1.device(plan.device_setter("/job:worker/task:1")):
        for config in configs:
            dense.append(v1.get_variable(f"{config.name}_bias", [1], use_resource=True))
            scope, _, name = config.name.rpartition("/")
            with v1.variable_scope(scope or v1.get_variable_scope()):
                arguments = {
                    "partitioner": plan.partitioner(config.name),
                    "ev_option": plan.ev_option(config.name),
                    **kwargs,
                }
                made[config.name] = fe.get_embedding_variable(
                    name, config.embedding_dim, **arguments
                )
    return made, dense


def parts_of(table):
    return list(table) if isinstance(table, fe.PartitionedEmbeddingVariable) else [table]


def test_tables_are_on_their_servers():
    plan = make_plan()
    with tf.Graph().as_default() as graph:
        made, dense = build(plan)
        for name, table in made.items():
            devices = [part.handle.device for part in parts_of(table)]
            assert devices == [f"/job:ps/task:{rank}" for rank in plan.ranks(name)]
        assert [one.device for one in dense] == [f"/job:ps/task:{task}" for task in range(3)]
        plan.check(graph)
        plan.check(made.values())
        with v1.device(plan.device_setter()):
            assert tf.constant(1).device == "/job:worker"
    assert isinstance(made["scope/users"], fe.PartitionedEmbeddingVariable)
    assert isinstance(made["items"], fe.EmbeddingVariable)


def test_tables_have_the_planned_rows():
    plan = make_plan()
    with tf.Graph().as_default():
        made, _ = build(plan)
        for name, table in made.items():
            for part in parts_of(table):
                assert part.table_attributes["max_capacity"] == plan.table(name).rows_per_rank
                assert part.table_attributes["eviction"] == "lru"
    rows = plan.table("scope/users").rows_per_rank
    assert rows & (rows - 1) == 0


def test_a_planned_table_is_trained():
    """The plan of one server, in one process."""
    plan = planner.EmbeddingShardingPlanner(planner.Topology(1)).plan(CONFIGS)
    with tf.Graph().as_default():
        option = plan.ev_option("items")
        table = fe.get_embedding_variable("items", 8, ev_option=option)
        rows = tf.nn.embedding_lookup(table, [3, 4, 3])
        train = v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(rows))
        with v1.Session() as session:
            before = session.run(rows)
            session.run(train)
            assert session.run(rows)[:, 0] == pytest.approx(before[:, 0] - [2, 1, 2])
            plan.check([table, *_others(plan)])


def _others(plan):
    return [
        fe.get_embedding_variable("scope/users", 16, ev_option=plan.ev_option("scope/users")),
        fe.get_embedding_variable("days", 4, ev_option=plan.ev_option("days")),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"partitioner": v1.fixed_size_partitioner(2)}, "partitions 2, planned"),
        ({"value_dtype": tf.float16}, "dtype 'float16', planned 'float32'"),
    ],
)
def test_other_tables_are_refused(change, message):
    plan = make_plan()
    with tf.Graph().as_default() as graph:
        for config in CONFIGS:
            fe.get_embedding_variable(
                config.name,
                config.embedding_dim,
                **{"partitioner": plan.partitioner(config.name), **change},
            )
        with pytest.raises(ValueError, match=f"not as planned: .*{message}"):
            plan.check(graph)


def test_tables_on_other_servers_are_refused():
    plan = make_plan()
    with tf.Graph().as_default() as graph:
        with v1.device(v1.train.replica_device_setter(ps_tasks=4)):
            v1.get_variable("shifts_the_turn", [1])
            for config in CONFIGS:
                fe.get_embedding_variable(
                    config.name, config.embedding_dim, partitioner=plan.partitioner(config.name)
                )
        with pytest.raises(ValueError, match="'scope/users' is not as planned: tasks"):
            plan.check(graph)
    with pytest.raises(ValueError, match=r"'scope/users' is planned, but the program has \[\]"):
        plan.check([])


def test_more_partitions_than_planned_are_refused():
    plan = make_plan()
    with (
        tf.Graph().as_default(),
        v1.device(plan.device_setter()),
        pytest.raises(ValueError, match=r"makes partition 1 of the table 'items', but 1"),
    ):
        fe.get_embedding_variable("items", 8, partitioner=v1.fixed_size_partitioner(2))


def test_types_that_tensorflow_cannot_apply():
    constraints = {
        "scope/users": planner.ParameterConstraints(),
        "days": planner.ParameterConstraints(["data_parallel", "table_wise"]),
    }
    plan = make_plan(constraints=constraints)
    assert plan.ranks("days") == ()
    assert "each worker" in plan.report()
    for ask in (plan.partitioner, plan.ev_option):
        with pytest.raises(NotImplementedError, match="'days' is planned as data_parallel"):
            ask("days")
    with (
        tf.Graph().as_default(),
        v1.device(plan.device_setter()),
        pytest.raises(NotImplementedError, match="'days' is planned as data_parallel"),
    ):
        fe.get_embedding_variable("days", 4)


def test_options_of_tables():
    own = fe.EmbeddingVariableOption(
        filter_option=fe.CounterFilter(3), max_capacity=5, eviction="lfu"
    )
    constraints = {"items": planner.ParameterConstraints(ev_option=own)}
    plan = make_plan(constraints=constraints)
    option = plan.ev_option("items")
    assert option.filter_option == fe.CounterFilter(3)
    assert (option.max_capacity, option.eviction) == (plan.table("items").rows_per_rank, "lfu")
    given = plan.ev_option("items", fe.EmbeddingVariableOption(check_mode="warning"))
    assert (given.check_mode, given.filter_option) == ("warning", None)


def test_rows_on_the_ssd_have_a_folder(tmp_path):
    config = planner.EmbeddingConfig(10**8, 16, "table")
    for path in (None, str(tmp_path)):
        topology = planner.Topology(2, ddr_cap=2 * GB, ssd_cap=100 * GB, ssd_path=path)
        plan = planner.EmbeddingShardingPlanner(topology).plan([config])
        assert plan.table("table").is_tiered
        if path is None:
            with pytest.raises(ValueError, match="has no ssd_path"):
                plan.ev_option("table")
            continue
        plan.save(tmp_path / "plan.json")
        for one in (plan, planner.ShardingPlan.load(tmp_path / "plan.json")):
            option = one.ev_option("table", fe.EmbeddingVariableOption(max_capacity=3))
            assert option.max_capacity is None
            assert option.storage_option.storage_path == path
            assert option.storage_option.dram_bytes == plan.table("table").dram_bytes


# --- Files ---


def test_a_plan_is_saved_and_loaded(tmp_path):
    plan = make_plan(ssd_path="/ssd", ssd_cap=GB)
    path = tmp_path / "plan.json"
    plan.save(path)
    loaded = planner.ShardingPlan.load(path, plan.digest)
    assert loaded.tables == plan.tables
    assert (loaded.loads, loaded.budget) == (plan.loads, plan.budget)
    assert (loaded.ssd_path, loaded.digest) == ("/ssd", plan.digest)
    assert loaded.report() == plan.report()


def test_the_digest_is_the_same_in_another_process():
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_plan import make_plan; "
        "print(make_plan().digest)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, os.path.dirname(__file__)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "5"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == [make_plan().digest]


@pytest.mark.parametrize(
    "field", ["name", "dim", "dtype", "ranks", "rows_per_rank", "sharding_type"]
)
def test_an_edited_plan_is_refused(tmp_path, field):
    path = tmp_path / "plan.json"
    make_plan().save(path)
    content = json.loads(path.read_text())
    table = content["tables"][1]
    table[field] = {
        "name": "others",
        "dim": 9,
        "dtype": "float16",
        "ranks": [(table["ranks"][0] + 1) % 4],
        "rows_per_rank": 7,
        "sharding_type": "row_wise",
    }[field]
    path.write_text(json.dumps(content))
    with pytest.raises(
        ValueError, match=r"has the digest .*, but its tables have .*: it was edited"
    ):
        planner.ShardingPlan.load(path)


def test_predictions_are_not_in_the_digest(tmp_path):
    path = tmp_path / "plan.json"
    make_plan().save(path)
    content = json.loads(path.read_text())
    content["tables"][1]["seconds"] *= 2
    path.write_text(json.dumps(content))
    assert planner.ShardingPlan.load(path).digest == make_plan().digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "is no plan"),
        ("{", "is no plan"),
        ('{"format": "other"}', "its format and version are"),
        ('{"format": "fused_embedding sharding plan", "version": 2}', "version"),
        ('{"format": "fused_embedding sharding plan", "version": 1}', "is no plan: 'tables'"),
    ],
)
def test_other_files_are_refused(tmp_path, text, message):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        planner.ShardingPlan.load(tmp_path / "plan.json")


def test_another_plan_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    make_plan(3).save(path)
    with pytest.raises(ValueError, match=f"but {make_plan(4).digest} is required"):
        planner.ShardingPlan.load(path, make_plan(4).digest)


def test_costs_are_saved_and_loaded(tmp_path):
    costs = planner.Costs(key_seconds=1e-6, read_seconds=0.0)
    costs.save(tmp_path / "costs.json", machine="mine")
    assert planner.Costs.load(tmp_path / "costs.json") == costs
    assert json.loads((tmp_path / "costs.json").read_text())["machine"] == "mine"
    for text in ("{}", "[1]", '{"format": "fused_embedding costs 1", "costs": {"other": 1}}'):
        (tmp_path / "costs.json").write_text(text)
        with pytest.raises(ValueError, match="holds no costs"):
            planner.Costs.load(tmp_path / "costs.json")


# --- Checkpoints ---


def train_and_save(folder, plan):
    with tf.Graph().as_default():
        v1.get_variable("dense", [2])
        v1.train.get_or_create_global_step()
        listeners = [plan.saver_listener()] if plan else []
        saver = v1.train.Saver(max_to_keep=1)
        v1.add_to_collection(v1.GraphKeys.SAVERS, saver)
        hook = v1.train.CheckpointSaverHook(str(folder), save_steps=1, listeners=listeners)
        step = v1.assign_add(v1.train.get_global_step(), 1)
        with v1.train.MonitoredSession(hooks=[hook]) as session:
            for _ in range(3):
                session.run(step)
    return tf.train.latest_checkpoint(folder)


def test_a_checkpoint_keeps_the_digest(tmp_path):
    plan, other = make_plan(4), make_plan(3)
    prefix = train_and_save(tmp_path, plan)
    plan.check_digest(prefix)
    with pytest.raises(
        ValueError, match=f"saved with the plan {plan.digest}, but .*{other.digest}"
    ):
        other.check_digest(prefix)
    # Files of checkpoints that were removed are gone.
    assert len([one for one in os.listdir(tmp_path) if "digst" in one]) == 1
    assert tf.train.load_checkpoint(prefix).has_tensor("dense")


SMALL = [planner.EmbeddingConfig(1000, 4, "days")]


def planned_days(num_slots):
    """A small plan; the number of slots changes the memory that is planned, not the digest."""
    constraints = {"days": planner.ParameterConstraints(["table_wise"], num_slots=num_slots)}
    topology = planner.Topology(1, ddr_cap=GB)
    return planner.EmbeddingShardingPlanner(topology, constraints=constraints).plan(SMALL)


def train_days(plan, folder, **kwargs):
    """Rows of the table after a monitored session, which restores what is in the folder."""
    with tf.Graph().as_default():
        step = v1.assign_add(v1.train.get_or_create_global_step(), 1)
        table = fe.get_embedding_variable("days", 4, ev_option=plan.ev_option("days"))
        lookup = tf.nn.embedding_lookup(table, tf.constant([1, 2, 3], tf.int64))
        size = table.statistics()["size"]
        scaffold = v1.train.Scaffold(saver=plan.saver(**kwargs))
        hooks = [v1.train.CheckpointSaverHook(folder, save_steps=1, scaffold=scaffold)]
        with v1.train.SingularMonitoredSession(hooks, scaffold, checkpoint_dir=folder) as session:
            before = session.run(size)
            session.run([lookup, step])
        return before


def test_the_saver_of_a_plan_keeps_its_digest_and_refuses_others(tmp_path):
    plan, like_it = planned_days(1), planned_days(2)
    assert like_it.digest == plan.digest
    other = make_plan()
    folder = str(tmp_path)
    assert train_days(plan, folder) == 0
    prefix = tf.train.latest_checkpoint(folder)
    plan.check_digest(prefix)
    assert train_days(like_it, folder) == 3
    # In a graph of its own: eagerly, the global step would remain for all that runs later.
    with (
        tf.Graph().as_default(),
        pytest.raises(ValueError, match=f"saved with the plan {plan.digest}, but .*{other.digest}"),
    ):
        other.saver([v1.train.get_or_create_global_step()]).restore(None, prefix)
    renamed = planner.ShardingPlan(list(plan.tables.values()), [*plan.loads] * 2, plan.budget)
    assert renamed.digest != plan.digest
    with pytest.raises(ValueError, match="name it in from_plans"):
        train_days(renamed, folder)
    assert train_days(renamed, folder, from_plans=[plan.digest]) == 3
    renamed.check_digest(tf.train.latest_checkpoint(folder))


def test_a_checkpoint_without_a_digest_is_accepted(tmp_path):
    prefix = train_and_save(tmp_path, None)
    make_plan().check_digest(prefix)
    with pytest.raises(ValueError, match="there is no checkpoint"):
        make_plan().check_digest(prefix + "0")


# --- Text and plot ---


def test_the_report():
    plan = make_plan()
    report = plan.report()
    assert plan.digest[:12] in report
    for name, table in plan.tables.items():
        (line,) = [line for line in report.splitlines() if line.startswith(name + " ")]
        assert table.sharding_type in line
        assert f"{table.rows_per_rank:,}" in line
    seconds = [load.seconds for load in plan.loads]
    assert f"max/mean {max(seconds) / (sum(seconds) / 4):.3f}" in report
    many = [planner.EmbeddingConfig(10 + i, 4, f"table{i}") for i in range(60)]
    plan = planner.EmbeddingShardingPlanner(planner.Topology(40)).plan(many)
    assert "and 20 tables that cost less" in plan.report()
    assert "and 24 ranks" in plan.report()


def test_the_plot(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    make_plan().plot(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        make_plan().plot(tmp_path / "other.png")


def test_an_unknown_table():
    for ask in (make_plan().table, make_plan().ev_option, make_plan().partitioner):
        with pytest.raises(ValueError, match="the plan has no table 'x'"):
            ask("x")


def test_the_example_of_the_page(tmp_path, monkeypatch, capsys):
    page = pathlib.Path(__file__).parents[2] / "docs/planner.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(example, "planner.md", "exec"), names)
    assert planner.ShardingPlan.load("plan.json").digest == names["plan"].digest
    assert "max/mean" in capsys.readouterr().out
    assert len(names["graph"].get_collection(fe.EMBEDDING_VARIABLES)) == sum(
        len(table.ranks) for table in names["plan"].tables.values()
    )
