"""Incremental saves of a table on two parameter servers, by fe.train.Saver of workers."""

import functools
import os
import signal

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from distributed import cluster
from distributed.test_table_servers import (
    DIM,
    assert_same,
    build_for_worker,
    connect,
    content,
    ids_of_step,
    train_alone,
    train_step,
)

tf1 = tf.compat.v1

pytestmark = pytest.mark.slow

SAVES = 4
make_saver = functools.partial(fe.train.Saver, incremental=True, max_to_keep=10)


@pytest.fixture(scope="module")
def addresses():
    with cluster.running({"ps": 2, "worker": 2}) as running:
        yield running


def is_full(path):
    """Whether each partition's file has all of it."""
    return [changed.is_full for changed in fe.train.read_changes(path, "table", DIM)]


def start(session, graph, model):
    """Servers outlive sessions, and tables their graphs."""
    with graph.as_default():
        session.run(tf1.global_variables_initializer())
        for part, rows in zip(model.table, model.exports, strict=True):
            keys = session.run([rows["keys"], rows["filtered_keys"]])
            session.run(part.erase(np.concatenate(keys)))


@pytest.mark.parametrize("is_sharded", [True, False])
def test_each_save_of_a_worker_restores_on_the_servers(addresses, tmp_path, is_sharded):
    saver = lambda sharded: make_saver(sharded=is_sharded)  # noqa: E731
    graph, model = build_for_worker(addresses, task=0, make_saver=saver)
    with graph.as_default(), connect(addresses["worker"][0], graph) as session:
        start(session, graph, model)
        paths, contents = [], []
        for step in range(SAVES):
            train_step(session, model, step)
            paths.append(model.saver.save(session, str(tmp_path / "model"), global_step=step))
            contents.append(content(session, model))
        assert [is_full(path) for path in paths] == [[True] * 2, *([[False] * 2] * (SAVES - 1))]
        assert_same(contents[-1], train_alone(SAVES)[1])
        for path, want in zip(paths, contents, strict=True):
            model.saver.restore(session, path)
            for got, one in zip(content(session, model), want, strict=True):
                np.testing.assert_array_equal(got, one)
        train_step(session, model, SAVES)
        path = model.saver.save(session, str(tmp_path / "model"), global_step=SAVES)
        assert is_full(path) == [True] * 2  # it was restored meanwhile


def test_a_change_holds_the_keys_of_the_step(addresses, tmp_path):
    graph, model = build_for_worker(addresses, task=1, make_saver=make_saver)
    with graph.as_default(), connect(addresses["worker"][1], graph) as session:
        start(session, graph, model)
        for step in range(3):
            train_step(session, model, step)
        model.saver.save(session, str(tmp_path / "model"), global_step=0)
        train_step(session, model, 7)
        path = model.saver.save(session, str(tmp_path / "model"), global_step=1)
        changed = list(fe.train.read_changes(path, "table", DIM))
        keys = np.concatenate([part.keys for part in changed])
        admitted = np.concatenate([session.run(part.export().keys) for part in model.table])
        assert sorted(keys) == sorted(set(ids_of_step(7)) & set(admitted))
        assert len(keys) < len(admitted)


def test_workers_that_save_in_turn_each_save_all(addresses, tmp_path):
    """Each begins a series of its own, and ends that of the other."""
    workers = [build_for_worker(addresses, task, make_saver=make_saver) for task in range(2)]
    sessions = [
        connect(address, graph)
        for address, (graph, _) in zip(addresses["worker"], workers, strict=True)
    ]
    start(sessions[0], *workers[0])
    saved = []
    for step in range(4):
        session, (graph, model) = sessions[step % 2], workers[step % 2]
        train_step(session, model, step)
        with graph.as_default():
            path = model.saver.save(session, str(tmp_path / f"model-of-{step % 2}"), step)
        saved.append((path, content(session, model)))
    assert [is_full(path) for path, _ in saved] == [[True] * 2] * 4
    for path, want in saved:
        with workers[1][0].as_default():
            workers[1][1].saver.restore(sessions[1], path)
        for got, one in zip(content(sessions[0], workers[0][1]), want, strict=True):
            np.testing.assert_array_equal(got, one)
    for session in sessions:
        session.close()


@pytest.mark.kills
def test_a_server_that_is_lost_is_restored_from_an_incremental_save(tmp_path):
    num_steps = 6
    want_losses, want = train_alone(num_steps)
    with cluster.running_processes({"ps": 2, "worker": 1}) as (addresses, processes):
        graph, model = build_for_worker(addresses, task=0, make_saver=make_saver)
        master, prefix = addresses["worker"][0], str(tmp_path / "model")
        session = connect(master, graph)
        losses = []
        with graph.as_default():
            session.run(tf1.global_variables_initializer())
            for step in range(4):
                losses.append(train_step(session, model, step))
                path = model.saver.save(session, prefix, global_step=step)
        assert is_full(path) == [False] * 2
        train_step(session, model, 77)  # is lost
        files = sorted(os.listdir(tmp_path))
        os.kill(processes["ps", 1], signal.SIGKILL)
        with graph.as_default(), pytest.raises(tf.errors.OpError):
            model.saver.save(session, prefix, global_step=77)
        assert sorted(os.listdir(tmp_path)) == files
        with cluster.replaced(addresses, "ps", 1):
            session.close()
            with graph.as_default(), connect(master, graph) as session:
                cluster.when_reached(lambda: model.saver.restore(session, path))
                for step in range(4, num_steps):
                    losses.append(train_step(session, model, step))
                    path = model.saver.save(session, prefix, global_step=step)
                assert is_full(path) == [False] * 2
                model.saver.restore(session, path)
                assert_same(content(session, model), want)
    np.testing.assert_allclose(losses, want_losses, rtol=1e-6)
