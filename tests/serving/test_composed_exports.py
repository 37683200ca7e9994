"""fe.export_for_serving of tables of several parts, their deltas and quantized rows."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from serving.serving_cases import (
    FEW_LOOKUPS,
    NO_IDS,
    OURS,
    SPECS,
    Deltas,
    assert_same,
    assert_served,
    batch,
    inferred,
    tensors,
)

v1 = tf.compat.v1
NUM_IDS = 16
SUM = {"sum": {"combiner": "sum"}}
WEIGHTED = {"weighted_mean": FEW_LOOKUPS["weighted_mean"]}
# With sums, these have each option of a lookup.
TWO_LOOKUPS = WEIGHTED | {"sqrtn_clipped": FEW_LOOKUPS["sqrtn_clipped"]}
OTHER_IDS = [0, 1, 2, 3, 5, 6, 7, 15]
# How often ids 0, 1, ... occur in training: 6 and 7 are counted and have no row.
OCCURRENCES = np.array([5, 5, 4, 3, 3, 2, 1, 1])


def partitioner(num_partitions):
    return v1.fixed_size_partitioner(num_partitions) if num_partitions > 1 else None


def multihash(operation):
    def make(num_partitions=1):
        dims = [[4, 2], [4, 3 if operation == "concat" else 2]]
        return fe.get_multihash_variable(
            operation, dims, operation=operation, partitioner=partitioner(num_partitions)
        )

    return make


def blocks(num_partitions=1):
    return fe.get_dynamic_dimension_embedding_variable(
        "blocks", 2, 3, partitioner=partitioner(num_partitions)
    )


def by_frequency(num_partitions=1):
    table = fe.get_dynamic_dimension_embedding_variable(
        "counted", 2, 2, partitioner=partitioner(num_partitions), blocknums="frequency"
    )
    table.bounds.assign([2, 4])
    return table


def adaptive(num_partitions=1):
    option = fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(filter_freq=2))
    return fe.get_adaptive_embedding_variable(
        "adaptive", 3, 5, ev_option=option, partitioner=partitioner(num_partitions)
    )


KINDS = {
    "concat": multihash("concat"),
    "add": multihash("add"),
    "mul": multihash("mul"),
    "blocks": blocks,
    "counted": by_frequency,
    "adaptive": adaptive,
}


class Model(tf.Module):
    """A result of each table for each of `lookups`; all tables of a lookup are in one group."""

    def __init__(self, kinds=tuple(KINDS), num_partitions=1, lookups=TWO_LOOKUPS):
        super().__init__()
        self.tables = {kind: KINDS[kind](num_partitions) for kind in kinds}
        self._lookups = lookups

        @tf.function(input_signature=list(SPECS.values()))
        def serve(ids, indices, dense_shape, weights):
            sparse = tf.SparseTensor(indices, ids, dense_shape)
            return self.look_up(sparse, sparse.with_values(weights))

        self.serve = serve

    def look_up(self, ids, weights):
        results = {}
        for name, options in self._lookups.items():
            tables = list(self.tables.values())
            is_weighted = options.get("weighted", False)
            rows = fe.nn.group_embedding_lookup_sparse(
                tables,
                [ids] * len(tables),
                [options.get("combiner", "mean")] * len(tables),
                [weights if is_weighted else None] * len(tables),
                max_norms=[options.get("max_norm")] * len(tables),
                default_ids=[options.get("default_id")] * len(tables),
                blocknums=[
                    ids.values % 5 - 1 if kind == "blocks" else None for kind in self.tables
                ],
            )
            results |= {f"{name}_{k}": r for k, r in zip(self.tables, rows, strict=True)}
        return results

    def train(self, ids=None, step=0):
        """Counts ids, and sets all rows to numbers of their own."""
        ids = np.repeat(np.arange(8), OCCURRENCES) if ids is None else np.asarray(ids)
        rows = tf.RaggedTensor.from_row_lengths(ids, np.ones_like(ids)).to_sparse()
        lookups, self._lookups = self._lookups, SUM
        self.look_up(rows, None)
        self._lookups = lookups
        rng = np.random.default_rng(step)
        for part in self.parts():
            if isinstance(part, fe.EmbeddingVariable):
                keys = part.export().keys
                part.upsert(keys, rng.normal(size=[len(keys), part.embedding_dim]))
            elif part.dtype.is_floating:
                part.assign(rng.normal(size=part.shape))

    def parts(self):
        for part in tf.train.TrackableView(self).descendants():
            if isinstance(part, fe.EmbeddingVariable | tf.Variable):
                yield part

    def export(self, folder, ops="stock", **options):
        return fe.export_for_serving(self, folder, ops, signatures=self.serve, **options)


def trained(*args, **options):
    model = Model(*args, **options)
    model.train()
    return model


@pytest.mark.slow
def test_stock_tensorflow_serves_all_kinds(tmp_path, server):
    model = trained()
    model.export(tmp_path)
    for given in (batch(), batch(OTHER_IDS), NO_IDS):
        assert_served(server, tmp_path, given, inferred(model.serve, given))


def test_stock_tensorflow_serves_partitions(tmp_path, server):
    model = trained(["counted", "adaptive"], num_partitions=2, lookups=WEIGHTED)
    model.export(tmp_path)
    for given in (batch(), batch(OTHER_IDS)):
        assert_served(server, tmp_path, given, inferred(model.serve, given))


@pytest.mark.parametrize("kind", ["mul", "counted", "adaptive"])
def test_a_v1_loader_reads_a_table_alone(tmp_path, server, kind):
    model = trained([kind])
    model.export(tmp_path)
    assert_served(server, tmp_path, batch(), inferred(model.serve, batch()), loader="v1")


def test_fused_ops_serve_all_kinds(tmp_path, fused_server):
    model = trained()
    model.export(tmp_path, ops="fused")
    got, ops = fused_server.serve(tmp_path, batch(), loader="v1")
    assert ops & OURS
    assert_same(got, inferred(model.serve, batch()))


@pytest.mark.parametrize("ops", ["stock", "fused"])
def test_of_a_session(tmp_path, request, ops):
    given = batch()
    with tf.Graph().as_default(), v1.Session() as session:
        model = Model(["counted", "adaptive"], num_partitions=2, lookups=WEIGHTED)
        inputs = {n: v1.placeholder(spec.dtype, spec.shape) for n, spec in SPECS.items()}
        sparse = tf.SparseTensor(inputs["indices"], inputs["ids"], inputs["dense_shape"])
        outputs = model.look_up(sparse, sparse.with_values(inputs["weights"]))
        session.run(v1.global_variables_initializer())
        feed = {inputs[name]: value for name, value in given.items()}
        for _ in range(3):
            session.run(outputs, feed)
        with fe.inference():
            inferred_outputs = model.look_up(sparse, sparse.with_values(inputs["weights"]))
        fe.export_for_serving(session, tmp_path, ops, inputs=inputs, outputs=outputs)
        want = session.run(inferred_outputs, feed)
    of_server = request.getfixturevalue("server" if ops == "stock" else "fused_server")
    assert_same(of_server.serve(tmp_path, given, loader="v1")[0], want)


def test_a_saved_model_that_was_loaded_is_exported(tmp_path):
    model = trained(["counted", "adaptive"], lookups=SUM)
    tf.saved_model.save(model, str(tmp_path / "ours"), signatures=model.serve)
    fe.export_for_serving(tf.saved_model.load(str(tmp_path / "ours")), tmp_path / "stock")
    loaded = tf.saved_model.load(str(tmp_path / "stock")).signatures["serving_default"]
    got = {name: rows.numpy() for name, rows in loaded(**tensors(batch())).items()}
    assert_same(got, inferred(model.serve, batch()))


def test_lookups_in_branches_and_loops(tmp_path):
    model = tf.Module()
    model.table = trained(["counted"]).tables["counted"]

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.int64), tf.TensorSpec([], tf.bool)])
    def serve(ids, is_first):
        def rows():
            sparse = tf.sparse.from_dense(ids + 1)
            return fe.nn.fused_safe_embedding_lookup_sparse(
                model.table, sparse.with_values(sparse.values - 1)
            )

        def body(i, total):
            return i + 1, total + tf.cond(is_first, rows, lambda: tf.zeros([8, 4]))

        return {"rows": tf.while_loop(lambda i, _: i < 2, body, [0, tf.zeros([8, 4])])[1]}

    model.serve = serve
    fe.export_for_serving(model, tmp_path, signatures=serve)
    given = {"ids": np.arange(8)[:, np.newaxis], "is_first": np.array(True)}
    loaded = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    want = inferred(serve, given)
    assert np.count_nonzero(want["rows"], axis=1).tolist() == [4, 4, 4, 2, 2, 2, 0, 0]
    assert_same({n: r.numpy() for n, r in loaded(**tensors(given)).items()}, want)


def test_counts_are_stored_for_tables_whose_lookups_read_them(tmp_path):
    model = trained(["blocks", "counted", "adaptive"], lookups=SUM)
    model.export(tmp_path)
    known = tf.train.list_variables(str(tmp_path / "variables" / "variables"))
    assert sum("/counts/" in name for name, _ in known) == 1
    counted = dict(zip(read(tmp_path, "names"), read(tmp_path, "counted"), strict=True))
    assert len(counted) == 6
    assert [name for name, is_counted in counted.items() if is_counted] == [b"counted/block0"]


def read(folder, name):
    reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    return reader.get_tensor(f"deltas/{name}/.ATTRIBUTES/VARIABLE_VALUE")


@pytest.mark.parametrize("quantize", [None, "int8"])
@pytest.mark.parametrize("num_partitions", [1, 2])
def test_deltas_bring_counts_and_rows(tmp_path, quantize, num_partitions):
    model = Model(["counted", "adaptive", "add"], num_partitions, lookups=SUM)
    manager = fe.train.IncrementalCheckpointManager(
        tf.train.Checkpoint(model=model), tmp_path / "saves", max_to_keep=9
    )
    model.train()
    manager.save()
    model.export(tmp_path / "export", quantize=quantize)
    loaded = tf.saved_model.load(str(tmp_path / "export")).signatures
    deltas = Deltas(tmp_path / "export", tmp_path / "delta")
    rng = np.random.default_rng(3)
    tolerance = {"rtol": 1e-6, "atol": 1e-6} if quantize is None else {"rtol": 0.0, "atol": 0.05}
    for step in range(1, 5):
        model.train(rng.integers(0, NUM_IDS, 9), step)
        if step == 2:
            model.tables["counted"].update_bounds()
        if step == 3:
            model.tables["counted"].blocks[0].erase([0, 1])
        loaded["apply_delta"](path=tf.constant(deltas.write(manager.save())))
        given = batch(OTHER_IDS)
        got = loaded["serving_default"](**tensors(given))
        want = inferred(model.serve, given)
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, **tolerance, err_msg=name)


def test_quantized_exports_admit_and_count(tmp_path, server):
    model = trained(["counted", "adaptive", "add"], lookups=SUM)
    quantize = dict.fromkeys(("counted/block0", "adaptive/hash_weights", "add/multhash_Q"), "int8")
    errors = model.export(tmp_path, quantize=quantize)
    assert errors.keys() == quantize.keys()
    got, ops = server.serve(tmp_path, batch())
    assert not ops & OURS
    want = inferred(model.serve, batch())
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, atol=0.05, err_msg=name)
        np.testing.assert_array_equal(got[name] == 0, value == 0)


def test_deltas_of_fused_ops(tmp_path):
    given = batch(OTHER_IDS)
    for kinds in (["adaptive", "blocks", "add"], ["counted"]):
        folder = tmp_path / kinds[0]
        model = Model(kinds, lookups=SUM)
        manager = fe.train.IncrementalCheckpointManager(
            tf.train.Checkpoint(model=model), folder / "saves", max_to_keep=9
        )
        model.train()
        manager.save()
        model.export(folder / "export", "fused")
        model.train([6, 7, 15, 2], 1)
        deltas = Deltas(folder / "export", folder / "delta")
        if kinds == ["counted"]:
            with pytest.raises(NotImplementedError, match=r"'counted/block0' have occurred.*stock"):
                deltas.write(manager.save())
            continue
        loaded = tf.saved_model.load(str(folder / "export")).signatures
        loaded["apply_delta"](path=tf.constant(deltas.write(manager.save())))
        got = loaded["serving_default"](**tensors(given))
        assert_same({n: r.numpy() for n, r in got.items()}, inferred(model.serve, given))


@pytest.mark.parametrize("kind", ["counted", "adaptive"])
def test_onnx_names_the_table(tmp_path, kind):
    pytest.importorskip("tf2onnx")
    model = trained([kind])
    with pytest.raises(NotImplementedError, match=f"EmbeddingVariable '{kind}/.*ONNX"):
        model.export(tmp_path / "model.onnx", format="onnx")
