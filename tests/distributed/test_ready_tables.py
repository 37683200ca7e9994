"""What makes a table on a server ready, and who waits for it: docs/training.md.

The servers run in this process. `lose` empties them, as a restart does.
"""

import functools
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from distributed import cluster
from distributed.old_graph import DIM, KEYS

tf1 = tf.compat.v1
FailedPrecondition = tf.errors.FailedPreconditionError

JOBS = ("ps", "worker")
OLD_GRAPH = str(pathlib.Path(__file__).parent / "data" / "6743d72.meta")
NO_ROWS = [[0.0] * DIM] * 3
ONES = np.ones([3, DIM], np.float32)


@pytest.fixture(scope="module")
def servers():
    ports = cluster.free_ports(2)
    addresses = {job: [f"localhost:{port}"] for job, port in zip(JOBS, ports, strict=True)}
    return {job: tf.distribute.Server(addresses, job_name=job) for job in JOBS}


@pytest.fixture
def target(servers):
    """A worker's, whose parameter server has just started."""
    lose(servers["worker"].target)
    return servers["worker"].target


def lose(target):
    tf1.Session.reset(target)


class Model:
    """A table in one partition or two, and ordinary variables, on a parameter server."""

    def __init__(self, num_parts=None, server="/job:ps/task:0", has_saver=True):
        self.graph = tf.Graph()
        partitioner = num_parts and tf1.fixed_size_partitioner(num_parts)
        with self.graph.as_default(), tf.device(server):
            self.table = fe.get_embedding_variable(
                "table", DIM, initializer=tf.zeros_initializer(), partitioner=partitioner
            )
            self.parts = list(self.table) if num_parts else [self.table]
            # Before there is a global step, which lookups read.
            self.rows = tf.reduce_sum(self.parts[-1].lookup(tf.constant(KEYS, tf.int64)))
            self.step = tf1.train.get_or_create_global_step()
            self.dense = tf1.get_variable("dense", [1])
            self.warm_start = self.table.upsert(KEYS, ONES)
            self.count = self.table.total_count()
            if has_saver:
                tf1.train.Saver()

    def session(self, target):
        return tf1.Session(target, graph=self.graph)


def waits(model, target, ready_op=None):
    """Whether a worker waits for the model."""
    with model.graph.as_default():
        ready_op = tf1.report_uninitialized_variables() if ready_op is None else ready_op
    manager = tf1.train.SessionManager(graph=model.graph, ready_op=ready_op, recovery_wait_secs=9)
    try:
        manager.wait_for_session(target, max_wait_secs=1).close()
    except tf.errors.DeadlineExceededError:
        return True
    return False


# --- The table ---


@pytest.mark.parametrize("num_parts", [None, 2])
def test_it_is_initialized_as_variables_are(target, num_parts):
    model = Model(num_parts)
    names = {b"global_step", b"dense", *(part.op.name.encode() for part in model.parts)}
    with model.graph.as_default(), model.session(target) as session:
        report = tf1.report_uninitialized_variables()
        of_all = tf1.report_uninitialized_variables(tf1.global_variables())
        of_one = tf1.report_uninitialized_variables([model.step])
        with pytest.raises(FailedPrecondition, match=r"table.* is uninitialized: since"):
            session.run(model.rows)
        for reported in session.run([report, of_all]):
            assert set(reported) == names
        assert session.run(of_one).tolist() == [b"global_step"]
        assert not session.run(model.table.is_initialized())
        session.run(tf1.global_variables_initializer())
        assert session.run(report).size == 0
        assert session.run(model.table.is_initialized())
        session.run(model.warm_start)
        session.run(tf1.global_variables_initializer())  # changes no row
        assert session.run(model.count) == 3


INITIALIZERS = {
    "of all global variables": lambda model: tf1.variables_initializer(tf1.global_variables()),
    "of the table": lambda model: model.table.initializer,
    "of partitions": lambda model: model.table.initializer,
    "in a list": lambda model: tf1.variables_initializer([model.dense, model.table]),
}


@pytest.mark.parametrize("which", INITIALIZERS)
def test_initializers(target, which):
    model = Model(2 if which == "of partitions" else None)
    with model.graph.as_default(), model.session(target) as session:
        session.run(tf1.local_variables_initializer())
        session.run(tf1.variables_initializer([model.step]))
        assert not session.run(model.table.is_initialized())
        session.run(INITIALIZERS[which](model))
        assert session.run(model.rows) == 0


def test_what_reads_or_trains_fails_and_what_writes_does_not(target, tmp_path):
    model = Model()
    with model.graph.as_default(), model.session(target) as session:
        table, keys = model.table, tf.constant(KEYS, tf.int64)
        ids = tf.SparseTensor([[0, 0]], tf.constant([1], tf.int64), [1, 1])
        column = fe.nn.fused_safe_embedding_lookup_sparse(table, ids)
        slices = tf.IndexedSlices(tf.ones([3, DIM]), keys)
        reads = [model.rows, column, table.export().keys, table.get_version(keys)]
        reads.append(tf1.train.GradientDescentOptimizer(1.0).apply_gradients([(slices, table)]))
        for read in reads:
            with pytest.raises(FailedPrecondition, match="is uninitialized"):
                session.run(read)
        for saver in (tf1.train.Saver(), fe.train.Saver()):
            session.run(tf1.variables_initializer([model.step]))
            session.run(tf1.variables_initializer([model.dense]))
            with pytest.raises(FailedPrecondition, match="is uninitialized"):
                saver.save(session, str(tmp_path / "model"))
        for write in (model.warm_start, table.erase([9]), table.expire(1), table.prefetch([1])):
            session.run(write)
        assert session.run(table.statistics()["size"]) == 2
        assert not session.run(table.is_initialized())


def damaged(path):
    """A copy of a checkpoint without the ends of its files."""
    for file in pathlib.Path(path).parent.glob(f"{pathlib.Path(path).name}.*"):
        content = file.read_bytes()
        is_index = file.suffix == ".index"
        copy = file.with_name(file.name.replace("model", "damaged"))
        copy.write_bytes(content if is_index else content[: len(content) // 2])
    return path.replace("/model", "/damaged")


@pytest.mark.parametrize("make_saver", [tf1.train.Saver, fe.train.Saver])
@pytest.mark.parametrize("num_parts", [None, 2])
def test_a_restore_makes_it_ready(target, tmp_path, make_saver, num_parts):
    model = Model(num_parts)
    with model.graph.as_default(), model.session(target) as session:
        saver = make_saver()
        session.run([tf1.global_variables_initializer(), model.warm_start])
        path = saver.save(session, str(tmp_path / "model"))
        want = session.run(model.rows)
    lose(target)
    with model.session(target) as session:
        with pytest.raises(tf.errors.OpError):
            saver.restore(session, damaged(path))
        assert waits(model, target)
        saver.restore(session, path)
        assert not waits(model, target)
        assert session.run(model.rows) == want > 0


def test_tables_of_other_programs_are_always_ready():
    for device in ("", "/cpu:0", "/job:localhost/task:0"):
        model = Model(server=device)
        with model.graph.as_default(), tf1.Session() as session:
            assert model.table.op.get_attr("needs_initializer") is False
            assert model.table.initializer.type == "NoOp"
            assert session.run([model.rows, model.table.is_initialized()]) == [0, True]
            assert session.run(tf1.report_uninitialized_variables()).tolist() == [
                b"global_step",
                b"dense",
            ]


def test_a_table_that_no_saver_restores_is_always_ready(target):
    model = Model(has_saver=False)
    with model.graph.as_default(), model.session(target) as session:
        tf1.train.Saver([model.dense])
        session.run([model.step.initializer, model.dense.initializer])
        assert session.run(model.rows) == 0
        assert not waits(model, target)


def test_global_variables_are_saved_and_exported_as_before(target, tmp_path, caplog):
    model = Model()
    with model.graph.as_default(), model.session(target) as session:
        (stand_in,) = set(tf1.global_variables()) - {model.step, model.dense}
        assert (stand_in.op, stand_in.get_shape()) == (model.table.op, model.table.shape)
        saver = tf1.train.Saver(tf1.global_variables())
        session.run(tf1.global_variables_initializer())
        path = saver.save(session, str(tmp_path / "model"))
        assert {name for name, _ in tf.train.list_variables(path)} == {"dense", "global_step"}
    assert "not serialized" not in caplog.text
    with tf.Graph().as_default():
        tf1.train.import_meta_graph(f"{path}.meta")
        assert {v.op.name for v in tf1.global_variables()} == {"dense", "global_step"}


def test_a_graph_of_an_older_release_needs_no_initializer(target, tmp_path):
    model, graph = Model(), tf.Graph()
    with graph.as_default(), tf1.Session(target) as session:
        saver = tf1.train.import_meta_graph(OLD_GRAPH)
        with model.graph.as_default(), model.session(target) as other:
            assert not other.run(model.table.is_initialized())
            assert session.run("rows:0").tolist() == NO_ROWS
            assert other.run(model.table.is_initialized())  # it is the same table
        session.run("train")
        path = saver.save(session, str(tmp_path / "model"))
    lose(target)
    with graph.as_default(), tf1.Session(target) as session:
        assert session.run("rows:0").tolist() == NO_ROWS
        saver.restore(session, path)
        assert session.run("rows:0").tolist() == [[-1.0] * DIM] * 3


def test_a_graph_without_its_devices_needs_no_initializer(target):
    model = Model()
    with model.graph.as_default():
        meta_graph = tf1.train.Saver().export_meta_graph()
    with tf.Graph().as_default(), tf1.Session() as session:
        tf1.train.import_meta_graph(meta_graph, clear_devices=True)
        assert session.run(model.rows.name) == 0


# --- Those who prepare a session ---


def listed(model):
    return tf.group(*[variable.initializer for variable in tf1.global_variables()])


def warm(model, session):
    session.run(model.warm_start)


def no_table(model):
    return tf1.train.Saver([model.step, model.dense])


# Arguments of a Scaffold by the name of the case.
SCAFFOLDS = {
    "default": {},
    "init_op": {"init_op": lambda model: tf1.global_variables_initializer()},
    "init_op of a list": {"init_op": listed},
    "init_fn": {"init_fn": lambda model: lambda _, session: warm(model, session)},
    "init_fn and a list": {
        "init_op": listed,
        "init_fn": lambda model: lambda _, session: warm(model, session),
    },
    "var_list": {"saver": no_table},
}


def with_scaffold(case, model, target, folder):
    """A chief's session, what workers wait for, and the Saver."""
    scaffold = tf1.train.Scaffold(**{k: make(model) for k, make in SCAFFOLDS[case].items()})
    creator = tf1.train.ChiefSessionCreator(scaffold, target, checkpoint_dir=folder)
    return creator.create_session(), scaffold.ready_op, scaffold.saver


def with_supervisor(case, model, target, folder):
    options = {
        "default": {},
        "init_fn and a list": {
            "init_op": listed(model),
            "init_fn": functools.partial(warm, model),
        },
        "var_list": {"saver": no_table(model)},
    }
    supervisor = tf1.train.Supervisor(logdir=folder, summary_op=None, **options[case])
    session = supervisor.prepare_or_wait_for_session(target, start_standard_services=False)
    return session, supervisor.ready_op, supervisor.saver


CHIEFS = [(with_scaffold, case) for case in SCAFFOLDS]
CHIEFS += [(with_supervisor, case) for case in ("default", "init_fn and a list", "var_list")]


@pytest.mark.parametrize(("chief", "case"), CHIEFS)
def test_a_chief_makes_tables_ready_and_workers_wait_for_it(target, tmp_path, chief, case):
    for is_restart in (False, True):
        model = Model(2, has_saver=False)
        with model.graph.as_default():
            session, ready_op, saver = chief(case, model, target, str(tmp_path))
            assert not waits(model, target, ready_op)
            is_warm = "init_fn" in case
            assert session.run(model.count) == (3 if is_warm else 0)
            if not is_restart:
                saver.save(session, str(tmp_path / "model"), global_step=0)
            session.close()
        lose(target)
        assert waits(model, target, ready_op)
