"""fe.export_for_serving(ops="fused", quantize=): one op decodes and adds up the rows of a group."""

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from oracle.small_rows import rounded_rows
from serving import serving_cases as cases
from serving.test_quantized_exports import Tables, op_types, served, served_in_session

v1 = tf.compat.v1
LOOKUP = "FusedEmbeddingStoredRowsGroupLookup"
FORMATS = ("int8", "int4", "bfloat16")
DIM = 6
CONSTANT = v1.constant_initializer(0.5)  # which each format has exactly


class Group(tf.Module):
    """A group of each kind of table."""

    def __init__(self, row_format=None, initializer=CONSTANT, side_by_side=False):
        super().__init__()
        rng = np.random.default_rng(3)
        self._side_by_side = side_by_side

        def rows(num_rows):
            numbers = rng.normal(size=[num_rows, DIM]).astype(np.float32)
            return rounded_rows(numbers, row_format) if row_format else numbers

        self.words = tf.Variable(rows(12), name="words")
        # Only bfloat16 makes rows of one number smaller.
        numbers = np.random.default_rng(4).normal(size=[12, 1]).astype(np.float32)
        if row_format == "bfloat16":
            numbers = rounded_rows(numbers, row_format)
        self.narrow = tf.Variable(numbers, name="narrow")
        self.users = fe.get_embedding_variable("users", DIM, initializer=initializer)
        self.ads = fe.get_embedding_variable(
            "ads",
            DIM,
            ev_option=fe.EmbeddingVariableOption(filter_option=fe.CounterFilter(filter_freq=2)),
        )
        for table in (self.users, self.ads):
            table.upsert(np.arange(10), rows(10))

    @tf.function(input_signature=list(cases.SPECS.values()))
    def serve(self, ids, indices, dense_shape, weights):
        sp_ids = tf.SparseTensor(indices, ids, dense_shape)
        sp_weights = tf.SparseTensor(indices, weights, dense_shape)
        tables = [self.words, self.users, self.narrow, self.ads, self.users, self.words]
        rows = fe.nn.group_embedding_lookup_sparse(
            tables,
            [sp_ids] * 6,
            ["mean", "sum", "sum", "sqrtn", "mean", "sum"],
            sp_weights=[None, sp_weights, None, sp_weights, None, sp_weights],
            max_norms=[None, None, None, 0.3, None, 1.0],
            default_ids=[3, None, None, 11, 3, None],
            concat=self._side_by_side,
        )
        # An id that `words` does not have is not looked up there: all ids are below 12.
        return {"rows": rows} if self._side_by_side else dict(zip("abcdef", rows, strict=True))


@pytest.mark.parametrize("side_by_side", [False, True])
@pytest.mark.parametrize("row_format", FORMATS)
def test_groups_compute_what_inference_does_of_rounded_rows(tmp_path, row_format, side_by_side):
    model = Group(side_by_side=side_by_side)
    twin = Group(row_format, side_by_side=side_by_side)
    fe.export_for_serving(model, tmp_path, ops="fused", signatures=model.serve, quantize=row_format)
    assert op_types(tmp_path) & cases.OURS == {LOOKUP}
    given = cases.batch()
    want = cases.inferred(twin.serve, given)
    got, got_of_none = served(tmp_path, given, cases.NO_IDS)
    cases.assert_same(got, want)
    cases.assert_same(got_of_none, cases.inferred(twin.serve, cases.NO_IDS))
    cases.assert_same(served_in_session(tmp_path, given), want)


@pytest.mark.parametrize("ops", ["stock", "fused"])
def test_an_export_that_is_loaded_is_exported_again(tmp_path, ops):
    model, twin = Group(), Group("int4")
    first, second = tmp_path / "1", tmp_path / "2"
    fe.export_for_serving(model, first, ops="fused", signatures=model.serve, quantize="int4")
    fe.export_for_serving(tf.saved_model.load(str(first)), second, ops=ops)
    assert op_types(second) & cases.OURS == ({LOOKUP} if ops == "fused" else set())
    given = cases.batch()
    cases.assert_same(*served(second, given), cases.inferred(twin.serve, given))


def test_partitions(tmp_path):
    """Of which no group is made: the stock ops read them."""
    model, twin = Tables(), Tables("int8")
    fe.export_for_serving(model, tmp_path, ops="fused", signatures=model.serve, quantize="int8")
    given = cases.batch()
    cases.assert_same(*served(tmp_path, given), cases.inferred(twin.serve, given))


def test_first_values_that_are_computed(tmp_path):
    """With a key that has none the stock ops compute, with none of these the fused op."""
    initializer = tf.keras.initializers.RandomNormal(seed=7)
    model, twin = Group(None, initializer), Group("int8", initializer)
    fe.export_for_serving(model, tmp_path, ops="fused", signatures=model.serve, quantize="int8")
    unknown = cases.batch()
    known = cases.batch(np.minimum(cases.IDS, 9))
    for given, answer in zip((known, unknown), served(tmp_path, known, unknown), strict=True):
        cases.assert_same(answer, cases.inferred(twin.serve, given))


def test_tables_of_other_dtypes_are_read_by_stock_ops(tmp_path):
    class Halves(tf.Module):
        def __init__(self):
            super().__init__()
            self.words = tf.Variable(tf.random.normal([12, 8], dtype=tf.float64), name="words")

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64, name="ids")])
        def serve(self, ids):
            sp_ids = tf.sparse.from_dense(ids)
            return {"rows": fe.nn.fused_safe_embedding_lookup_sparse(self.words, sp_ids)}

    model = Halves()
    errors = fe.export_for_serving(
        model, tmp_path, ops="fused", signatures=model.serve, quantize="int8"
    )
    assert not op_types(tmp_path) & cases.OURS
    given = {"ids": np.array([[1, 2], [3, 0]])}
    [answer] = served(tmp_path, given)
    want = cases.inferred(model.serve, given)["rows"]
    assert answer["rows"].dtype == np.float64
    np.testing.assert_allclose(answer["rows"], want, atol=2 * errors["words"].max_abs)


def test_deltas_change_what_the_op_reads(tmp_path):
    model = Group()
    manager = fe.train.IncrementalCheckpointManager(
        tf.train.Checkpoint(model=model), str(tmp_path / "saves"), max_to_keep=9
    )
    manager.save()
    export = tmp_path / "export"
    fe.export_for_serving(model, export, ops="fused", signatures=model.serve, quantize="int8")
    changed = np.full([2, DIM], 0.25, np.float32)
    model.users.upsert([2, 11], changed)
    model.users.erase([9])
    model.words.assign_add(tf.ones_like(model.words))
    fe.write_serving_delta(tmp_path / "delta", export, manager.save())
    loaded = tf.saved_model.load(str(export))
    loaded.signatures["apply_delta"](path=tf.constant(str(tmp_path / "delta")))
    answer = loaded.signatures["serving_default"](**cases.tensors(cases.batch()))

    twin = Group("int8")
    twin.users.upsert([2, 11], changed)
    twin.users.erase([9])
    twin.words.assign(rounded_rows(model.words.numpy(), "int8"))
    want = cases.inferred(twin.serve, cases.batch())
    cases.assert_same({name: value.numpy() for name, value in answer.items()}, want)


def test_first_values_that_a_format_does_not_have(tmp_path):
    model = Group(initializer=v1.constant_initializer(1e6))
    with pytest.raises(ValueError, match="row 0 of the initial values of 'users' has the number"):
        fe.export_for_serving(
            model, tmp_path, ops="fused", signatures=model.serve, quantize={"users": "int4"}
        )
    assert not list(tmp_path.iterdir())
