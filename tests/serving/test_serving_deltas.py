"""fe.write_serving_delta, and exports that apply deltas while they answer."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from fused_embedding.serving.generations import Generations
from serving.serving_cases import Deltas

DIM = 4
KEYS = np.arange(400, dtype=np.int64)


class Model(tf.Module):
    """Two tables, one of them in partitions, whose rows a request reads together."""

    def __init__(self):
        super().__init__()
        initializer = tf.keras.initializers.RandomUniform(-1.0, 1.0)
        self.users = fe.get_embedding_variable("users", DIM, initializer=initializer)
        partitioner = tf.compat.v1.fixed_size_partitioner(2)
        self.items = fe.get_embedding_variable("items", DIM, partitioner=partitioner)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def serve(self, keys):
        ids = tf.RaggedTensor.from_row_lengths(keys, tf.ones_like(keys)).to_sparse()
        tables = (self.users, self.items)
        rows = [fe.nn.safe_embedding_lookup_sparse(t, ids, combiner="sum") for t in tables]
        return {"rows": tf.concat(rows, axis=1)}


class Trainer:
    """A model, its dictionary twin, its saves and its deltas."""

    def __init__(self, folder, ops):
        self.folder, self.ops = folder, ops
        self.model = Model()
        self.rows = {"users": {}, "items": {}}
        checkpoint = tf.train.Checkpoint(model=self.model)
        self.manager = fe.train.IncrementalCheckpointManager(
            checkpoint, str(folder / "saves"), max_to_keep=100
        )
        with fe.inference():
            first = self.model.serve.python_function(tf.constant(KEYS))["rows"].numpy()
        self.unknown = {"users": first[:, :DIM], "items": first[:, DIM:]}

    def step(self, number, keys, removed=()):
        """Every value of the step is its number: an answer of two states has two numbers."""
        keys, removed = np.asarray(keys, np.int64), np.asarray(removed, np.int64)
        for name, rows in self.rows.items():
            table = getattr(self.model, name)
            table.upsert(keys, np.full([len(keys), DIM], number, np.float32))
            rows |= dict.fromkeys(keys.tolist(), np.full(DIM, number, np.float32))
            if len(removed):
                table.erase(removed)
                for key in removed.tolist():
                    rows.pop(key, None)

    def want(self):
        """What a request for KEYS reads, by the twin."""
        columns = [
            np.stack([rows.get(k, self.unknown[name][i]) for i, k in enumerate(KEYS.tolist())])
            for name, rows in self.rows.items()
        ]
        return np.concatenate(columns, axis=1)

    def export(self):
        self.manager.save()
        self.path = str(self.folder / "export")
        fe.export_for_serving(self.model, self.path, self.ops, signatures=self.model.serve)
        names = {"users": "model/users", "items": "model/items"}
        self.written = Deltas(self.path, self.folder / "delta", names)

    def delta(self):
        return self.written.write(self.manager.save())

    @property
    def deltas(self):
        """Paths of those written."""
        return self.written.paths


def exported_trainer(folder, ops):
    made = Trainer(folder, ops)
    made.step(1, KEYS[:300])
    made.export()
    return made


@pytest.fixture(params=["stock", "fused"])
def trainer(tmp_path, request):
    return exported_trainer(tmp_path, request.param)


@pytest.fixture
def stock_trainer(tmp_path):
    return exported_trainer(tmp_path, "stock")


def loaded_functions(trainer):
    loaded = tf.saved_model.load(trainer.path)  # it owns the tables
    return (
        lambda: loaded.signatures["serving_default"](keys=tf.constant(KEYS))["rows"].numpy(),
        lambda path: int(loaded.signatures["apply_delta"](path=tf.constant(path))["generation"]),
    )


def run_server(trainer, deltas):
    request = trainer.folder / "request.npz"
    np.savez(request, keys=KEYS)
    script = str(pathlib.Path(__file__).with_name("delta_server.py"))
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    if trainer.ops == "stock":
        environment.pop("PYTHONPATH", None)
    run = subprocess.run(
        [sys.executable, script, trainer.ops, trainer.path, str(request), *deltas],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout.splitlines()[-1])
    return report, dict(np.load(f"{trainer.path}/answers.npz"))


@pytest.mark.slow
def test_answers_are_of_one_state_while_deltas_are_applied(trainer):
    states = [trainer.want()]
    for number in range(2, 40):
        first = 7 * number % 300
        trainer.step(number, KEYS[first : first + 100], KEYS[first + 60 : first + 70])
        trainer.delta()
        states.append(trainer.want())
    report, answers = run_server(trainer, trainer.deltas)
    assert (report["modules"] == []) == (trainer.ops == "stock")
    assert report["errors"] == []
    assert report["refused"] == []
    assert min(report["counts"]) > 10
    np.testing.assert_array_equal(answers["last"], states[-1])
    known = {state.tobytes() for state in states}
    assert len(answers["all"]) > 10
    for answer in answers["all"]:
        assert answer.tobytes() in known, answer


@pytest.mark.parametrize(("num_begun", "want"), [(0, [0]), (1, [0]), (2, [0, 1])])
def test_a_request_that_a_second_delta_overtakes_is_computed_again(num_begun, want):
    """The first delta that begins during a request changes nothing that it reads."""
    generations = Generations([], [])
    seen = []

    def deltas_begin(generation):
        if not seen:
            generations.begun.assign(num_begun)
            generations.current.assign(max(num_begun - 1, 0))
        seen.append(int(generation))
        return generation

    @tf.function
    def serve():
        def compute(is_odd):
            read = tf.numpy_function(deltas_begin, [tf.constant(is_odd, tf.int64)], tf.int64)
            return [tf.ensure_shape(read, [])]

        return generations.answer(compute, [tf.TensorSpec([], tf.int64)])[0]

    assert serve() == want[-1]
    assert seen == want


def test_rows_are_added_changed_and_removed(trainer):
    answer, apply = loaded_functions(trainer)
    np.testing.assert_array_equal(answer(), trainer.want())
    changes = [
        (KEYS[300:320], []),
        (KEYS[:10], KEYS[300:310]),
        ([], KEYS[5:8]),
        (KEYS[5:8], []),
        ([], []),
        (KEYS, KEYS[::2]),
        (KEYS[::2], KEYS[1::2]),
    ]
    for number, (keys, removed) in enumerate(changes):
        trainer.step(number + 2, keys, removed)
        assert apply(trainer.delta()) == number + 1
        np.testing.assert_array_equal(answer(), trainer.want())


def test_a_full_save_replaces_the_table(trainer):
    answer, apply = loaded_functions(trainer)
    for number in range(2, 20):  # a series has 16 saves
        trainer.step(number, KEYS[number : number + 5], KEYS[100 + number : 102 + number])
        apply(trainer.delta())
        np.testing.assert_array_equal(answer(), trainer.want())
    readers = map(tf.train.load_checkpoint, trainer.deltas)
    assert [i for i, r in enumerate(readers) if r.get_tensor("0/is_full")] == [15]


def test_memory_of_replaced_rows_is_used_again(stock_trainer):
    loaded = tf.saved_model.load(stock_trainer.path)
    sizes = []
    for number in range(2, 14):
        stock_trainer.step(number, KEYS[:200])
        loaded.signatures["apply_delta"](path=tf.constant(stock_trainer.delta()))
        sizes.append(sum(table["rows"].shape[0] for table in tables_of(loaded)))
    assert max(sizes[2:]) == sizes[2]


def tables_of(loaded):
    return [{"rows": table["rows"].read_value()} for table in loaded.embedding_tables]


def test_deltas_out_of_order_are_refused(trainer):
    answer, apply = loaded_functions(trainer)
    trainer.step(2, KEYS[:50])
    state_of_first = trainer.delta(), trainer.want()
    trainer.step(3, KEYS[50:100])
    second = trainer.delta()
    before = answer()
    with pytest.raises(tf.errors.InvalidArgumentError, match="but loaded is"):
        apply(second)
    np.testing.assert_array_equal(answer(), before)
    apply(state_of_first[0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="each once"):
        apply(state_of_first[0])
    np.testing.assert_array_equal(answer(), state_of_first[1])
    apply(second)
    np.testing.assert_array_equal(answer(), trainer.want())


@pytest.mark.slow
def test_damaged_deltas_are_refused_or_whole(trainer):
    """Bytes of the index and the data are altered, and files cut short."""
    answer, apply = loaded_functions(trainer)
    before = answer()
    trainer.step(2, KEYS[:50], KEYS[200:220])
    path = trainer.delta()
    num_refused, num_unread = 0, 0
    for file in (f"{path}.index", f"{path}.data-00000-of-00001"):
        whole = pathlib.Path(file).read_bytes()
        for damaged in damages(whole, every=11 if file.endswith("index") else 67):
            pathlib.Path(file).write_bytes(damaged)
            try:
                apply(path)
            except tf.errors.OpError:
                num_refused += 1
                np.testing.assert_array_equal(answer(), before)
            else:  # bytes that fill up, and are not read
                num_unread += 1
                np.testing.assert_array_equal(answer(), trainer.want())
                answer, apply = loaded_functions(trainer)
        pathlib.Path(file).write_bytes(whole)
    assert num_refused > 70
    assert num_unread < 8
    apply(path)
    np.testing.assert_array_equal(answer(), trainer.want())


def damages(whole, every):
    for i in range(0, len(whole), every):
        yield whole[:i] + bytes([whole[i] ^ 0x55]) + whole[i + 1 :]
    yield whole[: len(whole) // 2]
    yield b""


def test_a_delta_of_what_does_not_fit_is_refused(trainer, tmp_path):
    trainer.step(2, KEYS[:5])
    path = trainer.delta()
    with pytest.raises(ValueError, match="a delta is at"):
        fe.write_serving_delta(path, trainer.path, trainer.manager.save())
    elsewhere = tf.Module()
    elsewhere.users_of = {"model": trainer.model}
    others = fe.train.IncrementalCheckpointManager(
        tf.train.Checkpoint(deep=elsewhere), str(tmp_path / "others"), max_to_keep=1
    )
    with pytest.raises(ValueError, match="no files of 'users'"):
        fe.write_serving_delta(tmp_path / "new", trainer.path, others.save())
    with pytest.raises(ValueError, match=r"names has \['ads'\]"):
        fe.write_serving_delta(
            tmp_path / "new", trainer.path, trainer.manager.save(), names={"ads": "ads"}
        )
    signatures = {"apply_delta": trainer.model.serve}
    with pytest.raises(ValueError, match="rename yours"):
        fe.export_for_serving(trainer.model, tmp_path / "2", trainer.ops, signatures=signatures)
    empty = tf.Module()
    empty.serve = tf.function(lambda x: x, input_signature=[tf.TensorSpec([], name="x")])
    fe.export_for_serving(empty, tmp_path / "empty", trainer.ops, signatures=empty.serve)
    with pytest.raises(ValueError, match="no tables that deltas change"):
        fe.write_serving_delta(tmp_path / "new", tmp_path / "empty", trainer.manager.save())
