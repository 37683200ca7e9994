"""fe.dynamicemb: dump and load, read and written by numpy alone."""

import json

import numpy as np
import pytest
import tensorflow as tf
from door_cases import KERASES

import fused_embedding as fe
import processes

demb = fe.dynamicemb
v1 = tf.compat.v1
DIM = 3
RANK = ".rank_0.world_size_1"
PROGRAM = """
import sys
import numpy as np, tensorflow as tf, fused_embedding as fe
folder, mode, first, last = sys.argv[1:]
model = tf.Module()
model.table = fe.dynamicemb.make_table("t", fe.dynamicemb.DynamicEmbTableOptions(dim=3), 1000)
optimizer = tf.compat.v1.train.AdagradOptimizer(0.5)
if mode == "load":
    fe.dynamicemb.load(folder, model, optim=True)
for step in range(int(first), int(last)):
    keys = tf.constant(np.random.default_rng(step).integers(-9, 9, 5))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.tanh(tf.nn.embedding_lookup(model.table, keys)))
    optimizer.apply_gradients([(tape.gradient(loss, model.table), model.table)])
if mode == "dump":
    fe.dynamicemb.dump(folder, model, optim=True)
print(*model.table.export().values.numpy().tobytes())
"""


def make(name="users", partitions=None, dtype=tf.float32, **fields):
    fields = {"dim": DIM, "max_capacity": 1000, "embedding_dtype": dtype, **fields}
    with v1.variable_scope(
        v1.get_variable_scope(),
        partitioner=partitions and v1.fixed_size_partitioner(partitions),
    ):
        return demb.make_table(name, demb.DynamicEmbTableOptions(**fields))


def make_model(**arguments):
    model = tf.Module()
    model.users, model.inner = make(**arguments), tf.Module()
    model.inner.ads = make("deep/ads", **arguments)
    return model


def train(table, keys, optimizer=None):
    parts = list(table) if isinstance(table, fe.PartitionedEmbeddingVariable) else [table]
    with tf.GradientTape() as tape:
        rows = fe.nn.group_embedding_lookup([table], [tf.constant(keys, tf.int64)])[0]
        loss = tf.reduce_sum(tf.tanh(rows) ** 2)
    pairs = list(zip(tape.gradient(loss, parts), parts, strict=True))
    (optimizer or v1.train.AdagradOptimizer(0.5)).apply_gradients(pairs)


def rows_of(table):
    exported = table.export()
    return dict(zip(exported.keys.numpy().tolist(), exported.values.numpy().tolist(), strict=True))


def slots_of(table):
    content = table.export_content()
    return dict(zip(content.keys.numpy().tolist(), content.slots.numpy().tolist(), strict=True))


def as_dict(folder, stem, width=DIM, dtype=np.float32):
    """What a key file and a value file hold, read by numpy."""
    keys = np.fromfile(folder / f"{stem}_keys{RANK}", np.int64)
    values = np.fromfile(folder / f"{stem}_values{RANK}", dtype).reshape(len(keys), width)
    return dict(zip(keys.tolist(), values.tolist(), strict=True))


@pytest.mark.parametrize("partitions", [None, 3])
def test_numpy_reads_what_was_dumped(tmp_path, partitions):
    model = make_model(partitions=partitions)
    train(model.users, [1, -7, 1 << 60])
    train(model.inner.ads, [5, 1])
    demb.dump(str(tmp_path / "out"), model, optim=True)
    folder = tmp_path / "out/model"
    assert as_dict(folder, "users_emb") == rows_of(model.users)
    assert as_dict(folder, "deep%2Fads_emb") == rows_of(model.inner.ads)
    accumulators = as_dict(folder, "users_opt_Adagrad%2Faccumulator")
    assert set(accumulators) == {1, -7, 1 << 60}
    if partitions is None:
        assert accumulators == slots_of(model.users)
    described = json.loads((folder / "users_opt_args.json").read_text())
    (slot,) = described["slots"]
    assert (slot["name"], slot["width"]) == ("Adagrad/accumulator", DIM)
    assert slot["initial"] == pytest.approx(0.1)
    assert len(list(folder.iterdir())) == 2 * 5


def test_states_of_several_optimizers_have_files_each(tmp_path):
    model = make_model()
    train(model.users, [1, 2], v1.train.AdamOptimizer(0.1))
    train(model.users, [1, 2])
    demb.dump(str(tmp_path / "out"), model, {"model": ["users"]}, True)
    names = sorted(path.name for path in (tmp_path / "out/model").iterdir())
    slots = ["Adagrad%2Faccumulator", "Adam%2Fm", "Adam%2Fv"]
    stems = [f"users_opt_{slot}_{kind}{RANK}" for slot in slots for kind in ("keys", "values")]
    emb = [f"users_emb_{kind}{RANK}" for kind in ("keys", "values")]
    assert names == sorted([*emb, *stems, "users_opt_args.json"])
    states = [as_dict(tmp_path / "out/model", f"users_opt_{slot}") for slot in slots]
    in_order = [states[1], states[2], states[0]]  # Adam trained first
    for key, row in slots_of(model.users).items():
        assert [number for state in in_order for number in state[key]] == row
    other = make_model()
    demb.load(str(tmp_path / "out"), other, ["users"], optim=True)
    assert slots_of(other.users) == slots_of(model.users)


@pytest.mark.slow
def test_training_goes_on_in_a_new_process(tmp_path):
    def run(*arguments):
        done = processes.run_program(PROGRAM, tmp_path / "out", *arguments, cwd=tmp_path)
        return processes.output_of(done)

    whole = run("", 0, 6).splitlines()[-1]
    run("dump", 0, 3)
    assert run("load", 3, 6).splitlines()[-1] == whole


@pytest.mark.parametrize(("saved", "loaded"), [(None, None), (2, None), (None, 2), (2, 3)])
def test_load_replaces_tables(tmp_path, saved, loaded):
    model = make_model(partitions=saved)
    train(model.users, [1, 2])
    train(model.inner.ads, [3])
    demb.dump(str(tmp_path / "out"), model, optim=True)
    other = make_model(partitions=loaded)
    train(other.users, [1, 99])
    demb.load(str(tmp_path / "out"), other, optim=True)
    assert rows_of(other.users) == rows_of(model.users)
    assert rows_of(other.inner.ads) == rows_of(model.inner.ads)
    demb.dump(str(tmp_path / "again"), other, optim=True)
    for path in (tmp_path / "out/model").iterdir():
        assert (tmp_path / "again/model" / path.name).read_bytes() == path.read_bytes()


def test_without_optim_optimizers_start_anew(tmp_path):
    model = make_model()
    train(model.users, [1, 2])
    demb.DynamicEmbDump(str(tmp_path / "out"), model, ["users"])
    other = make_model()
    demb.DynamicEmbLoad(str(tmp_path / "out"), other, table_names=["users"])
    assert rows_of(other.users) == rows_of(model.users)
    assert all(row == [] for row in slots_of(other.users).values())
    train(other.users, [1, 2])


def test_scores_of_lfu_tables_are_frequencies(tmp_path):
    strategy = demb.DynamicEmbEvictStrategy.LFU
    table = make(evict_strategy=strategy)
    tf.nn.embedding_lookup(table, tf.constant([7, 7, 7, 9], tf.int64))
    demb.dump(str(tmp_path / "out"), table)
    scores = np.fromfile(tmp_path / f"out/model/users_emb_scores{RANK}", np.int64)
    assert scores.tolist() == [3, 1]
    other = make(evict_strategy=strategy)
    demb.load(str(tmp_path / "out"), other)
    assert other.get_frequency([7, 9]).numpy().tolist() == [3, 1]


def write_by_numpy(folder, stem, rows, rank, world_size):
    folder.mkdir(parents=True, exist_ok=True)
    end = f".rank_{rank}.world_size_{world_size}"
    np.array(list(rows), np.int64).tofile(folder / f"{stem}_emb_keys{end}")
    np.array(list(rows.values()), np.float32).tofile(folder / f"{stem}_emb_values{end}")


def test_loads_what_several_ranks_of_dynamicemb_dumped(tmp_path):
    ranks = [{5: [1.0, 2.0, 3.0], -1: [0.5, 0.5, 0.5]}, {8: [9.0, 9.0, 9.0]}]
    for rank, rows in enumerate(ranks):
        write_by_numpy(tmp_path / "out/model.sparse.collection", "users", rows, rank, 2)
    table = make()
    demb.load(str(tmp_path / "out"), table)
    assert rows_of(table) == {**ranks[0], **ranks[1]}
    (tmp_path / "out/model.sparse.collection/users_emb_keys.rank_0.world_size_2").unlink()
    with pytest.raises(ValueError, match="not the files of all ranks of one dump"):
        demb.load(str(tmp_path / "out"), table)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_16_bit_values_come_back(tmp_path, dtype):
    model = make_model(dtype=dtype)
    train(model.users, [1, 2])
    demb.dump(str(tmp_path / "out"), model)
    other = make_model(dtype=dtype)
    demb.load(str(tmp_path / "out"), other)
    assert rows_of(other.users) == rows_of(model.users)
    assert as_dict(tmp_path / "out/model", "users_emb") == rows_of(model.users)


def test_in_a_session(tmp_path):
    with tf.Graph().as_default() as graph, v1.Session().as_default() as session:
        table = make()
        session.run(table.upsert([1, 2], np.arange(6.0).reshape(2, DIM)))
        demb.dump(str(tmp_path / "out"), graph)
        session.run(table.erase([1]))
        demb.load(str(tmp_path / "out"), table)
        assert session.run(table.export().keys).tolist() == [1, 2]
    assert as_dict(tmp_path / "out/model", "users_emb") == {1: [0, 1, 2], 2: [3, 4, 5]}
    with tf.Graph().as_default() as graph:
        make()
        with pytest.raises(ValueError, match=r"with session.as_default\(\)"):
            demb.dump(str(tmp_path / "other"), graph)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("keras", KERASES.values(), ids=KERASES)
def test_tables_of_keras_models(tmp_path, keras):
    layer = fe.keras.embedding_layer(keras)(DIM, combiner="sum", name="users")
    inputs = keras.Input([2], dtype="int64")
    model = keras.Model(inputs, keras.layers.Dense(1)(layer(inputs)))
    model(np.array([[1, 2]]), training=True)
    demb.dump(str(tmp_path / "out"), model)
    want = rows_of(layer.table)
    assert set(want) == {1, 2}
    assert as_dict(tmp_path / "out/model", "users%2Fembeddings_emb") == want
    layer.table.erase([1, 2])
    demb.load(str(tmp_path / "out"), model)
    assert rows_of(layer.table) == want


# --- What is refused ---


def test_wrong_arguments_are_refused(tmp_path):
    model, path = make_model(), str(tmp_path / "out")
    for call in (demb.dump, demb.load):
        with pytest.raises(ValueError, match="there are no process groups"):
            call(path, model, pg=object())
        with pytest.raises(ValueError, match=r"no tables \['x'\]; it has \['deep/ads', 'users'\]"):
            call(path, model, ["x"])
        with pytest.raises(ValueError, match=r"collections \['a'\], but there is one: 'model'"):
            call(path, model, {"a": ["users"]})
        with pytest.raises(TypeError, match="must be a list or a dict of one, got 'users'"):
            call(path, model, "users")
        with pytest.raises(TypeError, match=r"model must be what tf.train.Checkpoint takes"):
            call(path, {"users": 1.0})
        with pytest.raises(ValueError, match="model has no EmbeddingVariables"):
            call(path, tf.Module())
    model.again = make()
    with pytest.raises(ValueError, match="two tables of the name 'users'"):
        demb.dump(path, model)
    with pytest.raises(ValueError, match=r"'d' is float64, .* use tf.train.Checkpoint"):
        demb.dump(path, fe.get_embedding_variable("d", DIM, value_dtype=tf.float64))
    assert not (tmp_path / "out").exists()


def test_a_dump_is_whole_or_not_there(tmp_path, monkeypatch):
    model = make_model()
    train(model.users, [1, 2])
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("x")
    with pytest.raises(FileExistsError, match="exists, and is not overwritten"):
        demb.dump(str(tmp_path / "full"), model)
    (tmp_path / "empty").mkdir()
    demb.dump(str(tmp_path / "empty"), model)
    monkeypatch.setattr(json, "dump", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        demb.dump(str(tmp_path / "out"), model, optim=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "full"]


DAMAGES = {
    "users_emb_keys": (lambda data: data[:-3], "bytes, but rows of 1 int64 have 8"),
    "users_emb_values": (lambda data: data[:-12], "rows of 3 numbers, but there are 2 keys"),
    "users_opt_Adagrad%2Faccumulator_values": (lambda data: data[:-1], "it is cut off"),
    "users_opt_Adagrad%2Faccumulator_keys": (lambda data: data[::-1], "has other keys than"),
    "deep%2Fads_emb_keys": (lambda data: data[:8] * 2, "have a key twice"),
    "deep%2Fads_emb_values": (lambda data: None, "is missing; copy all files of a dump"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_before_a_table_changes(tmp_path, name):
    model, (damage, message) = make_model(), DAMAGES[name]
    train(model.users, [1, 2])
    train(model.inner.ads, [1, 2])
    demb.dump(str(tmp_path), model, optim=True)
    path = tmp_path / "model" / f"{name}{RANK}"
    damaged = damage(path.read_bytes())
    path.unlink()
    if damaged is not None:
        path.write_bytes(damaged)
    train(model.users, [3])
    before = rows_of(model.users), rows_of(model.inner.ads), slots_of(model.users)
    with pytest.raises(ValueError, match=message):
        demb.load(str(tmp_path), model, optim=True)
    assert (rows_of(model.users), rows_of(model.inner.ads), slots_of(model.users)) == before


def test_files_that_do_not_fit_are_refused(tmp_path):
    model = make_model()
    train(model.users, [1, 2])
    demb.dump(str(tmp_path / "out"), model, ["users"])
    with pytest.raises(FileNotFoundError, match=r"'deep/ads' needs the files .*deep%2Fads_emb"):
        demb.load(str(tmp_path / "out"), model)
    with pytest.raises(ValueError, match=r"opt_args.json, .* pass optim=False"):
        demb.load(str(tmp_path / "out"), model, ["users"], optim=True)
    with pytest.raises(ValueError, match="it is cut off, or of a table of another dim"):
        demb.load(str(tmp_path / "out"), make(dim=4))
    with pytest.raises(ValueError, match="has 2 rows, but the capacity of 'users' is 1; make"):
        demb.load(str(tmp_path / "out"), make(max_capacity=1))
