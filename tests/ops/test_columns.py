"""EmbeddingVariableExport and EmbeddingVariableImport: the content of a table as tensors."""

import numpy as np
import pytest
import tensorflow as tf
from table_cases import (
    DIM,
    apply,
    export,
    int64,
    lookup,
    make_table,
    metadata,
    statistics,
    upsert,
    values_of,
)

import oracle.lookup
from checking import VALUE_DTYPES, dtype_name
from fused_embedding import raw_ops
from stages import INT64_MAX, INT64_MIN, SHAPE_ERROR

InvalidArgumentError = tf.errors.InvalidArgumentError
KEYS = [7, INT64_MIN, -1, INT64_MAX, 0, 3]


def import_(table, content, **attrs):
    raw_ops.EmbeddingVariableImport(resource=table, **content, **attrs)


def assert_same_content(table, want, dtype=tf.float32):
    for name, got in export(table, dtype)._asdict().items():
        np.testing.assert_array_equal(got, want[name], name)


def full_table(dtype=tf.float32, **attrs):
    """Rows with values, slots of two optimizers, counts, steps."""
    table = make_table(dtype, **attrs)
    for step in range(3):
        lookup(table, KEYS[step:], range(step + 1, len(KEYS) + 1), step=step + 5, dtype=dtype)
    upsert(table, [7], [[0.5, 1.5, -2.5]], dtype)
    grad = tf.cast(np.arange(6 * DIM).reshape(6, DIM) / 4, dtype)
    apply(table, KEYS, grad, "adagrad", [0.5, 0.0, 0.25], slot_prefix="A")
    apply(table, KEYS[:2], grad[:2], "rmsprop", [0.5, 0.5, 0.5, 1.0], slot_prefix="B")
    return table


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_export(dtype):
    table = full_table(dtype)
    content = export(table, dtype)
    assert content.keys.numpy().tolist() == sorted(KEYS)
    np.testing.assert_array_equal(content.values, values_of(table, sorted(KEYS), dtype))
    frequencies, versions = metadata(table, sorted(KEYS))
    assert content.frequencies.numpy().tolist() == frequencies
    assert content.versions.numpy().tolist() == versions
    assert content.slot_names.numpy().tolist() == [b"A/accumulator", b"B/rms", b"B/momentum"]
    assert content.slot_widths.numpy().tolist() == [DIM] * 3
    assert content.slot_initials.numpy().tolist() == [0.25, 1.0, 0.0]
    assert content.slots.dtype == (tf.float64 if dtype == tf.float64 else tf.float32)
    assert int(content.step) == 2
    assert content.initializer == b"debug"


def test_an_empty_table():
    content = export(make_table(initializer="uniform", initializer_b=2.0, seed=-5))
    shapes = [getattr(content, name).shape.as_list() for name in ("keys", "values", "slots")]
    assert shapes == [[0], [0, DIM], [0, 0]]
    assert (content.initializer, int(content.seed)) == (b"uniform", -5)
    assert content.initializer_parameters.numpy().tolist() == [0.0, 2.0]
    assert content.initializer_matrix.shape == (0, DIM)


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"initializer": "uniform", "initializer_b": 1.0, "seed": 9},
        {"initializer": "matrix", "initializer_matrix": np.ones([2, DIM], np.float32).tobytes()},
        {"admission": "counter", "min_frequency": 9},
        {
            "admission": "bloom",
            "min_frequency": 9,
            "bloom_counters": 1000,
            "bloom_hashes": 3,
        },
    ],
    ids=lambda attrs: "_".join(map(str, attrs.values()))[:20],
)
def test_an_import_is_what_was_exported(attrs):
    content = export(full_table(**attrs))._asdict()
    table = make_table(**attrs)
    lookup(table, [1000, 1001, 7], [100, 100, 100])  # goes
    apply(table, [7], np.ones([1, DIM], np.float32), "adagrad", [0.5, 0.0, 0.1], slot_prefix="C")
    import_(table, content)
    assert_same_content(table, content)
    assert statistics(table)["size"] == len(content["keys"])


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=dtype_name)
def test_an_import_of_every_dtype(dtype):
    content = export(full_table(dtype), dtype)._asdict()
    table = make_table(dtype)
    import_(table, content)
    assert_same_content(table, content, dtype)


def test_a_table_goes_on_where_the_other_was():
    """Counts of keys not admitted, slots and first values of later keys too."""
    attrs = {"admission": "counter", "min_frequency": 8, "initializer": "normal", "seed": 3}
    attrs["initializer_b"] = 1.0
    tables = [full_table(**attrs), make_table(**attrs | {"seed": 4})]
    import_(tables[1], export(tables[0])._asdict())
    assert [int(raw_ops.EmbeddingVariableSeed(resource=table)) for table in tables] == [3, 3]
    for table in tables:
        lookup(table, [*KEYS, 50], [*range(6), 9], step=20)
        apply(table, KEYS, np.ones([6, DIM], np.float32), "adagrad", [0.5, 0.0, 0.25])
    assert_same_content(tables[1], export(tables[0])._asdict())
    assert 50 in export(tables[1]).keys.numpy()


@pytest.mark.parametrize("strategy", ["hash", "mod_ev"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_partitions_share_the_keys(count, strategy):
    source = make_table(admission="counter", min_frequency=2)
    keys = np.arange(-500, 500)
    lookup(source, keys, np.random.default_rng(0).integers(1, 3, len(keys)))
    content = export(source)._asdict()
    parts = []
    for index in range(count):
        table = make_table(admission="counter", min_frequency=2)
        attrs = {"partition_index": index, "num_partitions": count, "partition_strategy": strategy}
        import_(table, content, **attrs)
        parts.append(export(table))
    for name in ("keys", "filtered_keys"):
        got = [getattr(part, name).numpy() for part in parts]
        want = content[name].numpy()
        shard_rows = [0] * count
        owned, _ = oracle.lookup.partition(want, shard_rows, strategy)
        for g, w in zip(got, owned, strict=True):
            np.testing.assert_array_equal(g, w, name)
        assert all(len(g) for g in got)


def with_changes(**changes):
    def change(content):
        return content | {name: f(content[name].numpy()) for name, f in changes.items()}

    return change


WRONG = {
    "fewer_values": (with_changes(values=lambda v: v[1:]), r"values must have shape \[6, 3\]"),
    "other_dim": (with_changes(values=lambda v: v[:, 1:]), r"values must have shape \[6, 3\]"),
    "other_rank": (with_changes(values=lambda v: v[0]), "values must have shape"),
    "slots_of_other_rows": (with_changes(slots=lambda v: v[1:]), "slots must be"),
    "slots_too_narrow": (with_changes(slots=lambda v: v[:, 1:]), "slot_widths must add up"),
    "negative_width": (
        with_changes(slot_widths=lambda v: v * [1, -1, 3]),
        "slot_widths must add up",
    ),
    "huge_width": (
        with_changes(slot_widths=lambda v: int64([INT64_MAX, INT64_MAX, 11])),
        "slot_widths must add up",
    ),
    "fewer_widths": (with_changes(slot_widths=lambda v: v[1:]), "slot_widths must have 3"),
    "fewer_initials": (with_changes(slot_initials=lambda v: v[1:]), "slot_initials must have 3"),
    "fewer_frequencies": (with_changes(frequencies=lambda v: v[1:]), "frequencies must have 6"),
    "fewer_versions": (with_changes(versions=lambda v: v[1:]), "versions must have 6"),
    "negative_frequency": (with_changes(frequencies=lambda v: -v), "frequencies must not be neg"),
    "negative_version": (with_changes(versions=lambda v: -v), "versions must not be negative"),
    "negative_count": (
        lambda content: (
            content
            | {
                "filtered_keys": int64([1]),
                "filtered_frequencies": int64([-1]),
                "filtered_versions": int64([1]),
            }
        ),
        "filtered_frequencies must be in",
    ),
    "fewer_counts": (with_changes(filtered_keys=lambda v: int64([1])), "filtered_frequencies"),
    "keys_of_rank_2": (with_changes(keys=lambda v: v[None]), "keys"),
    "unknown_initializer": (with_changes(initializer=lambda v: "zipf"), "initializer"),
    "other_parameters": (with_changes(initializer_parameters=lambda v: v[:1]), "must have 2"),
    "nan_parameters": (
        lambda content: (
            content | {"initializer": "constant", "initializer_parameters": np.array([np.nan, 0.0])}
        ),
        "finite",
    ),
    "no_matrix": (with_changes(initializer=lambda v: "matrix"), "matrix"),
    "matrix_of_other_dim": (
        lambda content: (
            content | {"initializer": "matrix", "initializer_matrix": np.ones([2, 2], np.float32)}
        ),
        "matrix",
    ),
    "other_dtype": (
        lambda content: (
            content
            | {
                "values": content["values"].numpy().astype(np.float64),
                "initializer_matrix": np.ones([1, DIM]),
            }
        ),
        "values is double, but the table holds float",
    ),
    "other_slot_dtype": (with_changes(slots=lambda v: v.astype(np.float64)), "slots must be"),
    "one_slot_twice": (
        with_changes(slot_names=lambda v: np.array([b"A", b"A", b"C"], object)),
        "slot names must be distinct, got A twice",
    ),
    "zero_width": (
        lambda content: (
            content
            | {
                "slot_names": np.array([b"A", b"B"], object),
                "slot_widths": int64([9, 0]),
                "slot_initials": np.zeros(2),
            }
        ),
        "slot B must have a width",
    ),
    "bloom_of_another_filter": (
        with_changes(bloom=lambda v: np.zeros([64], np.uint8)),
        "Bloom filter of 0 bytes, not 64",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_import_changes_nothing(case):
    change, message = WRONG[case]
    content = export(full_table())._asdict()
    table = make_table()
    lookup(table, [70, 71])
    apply(table, [70], np.ones([1, DIM], np.float32), "momentum", [0.5, 0.5, 0.0])
    before = export(table)._asdict()
    with pytest.raises(InvalidArgumentError, match=message):
        import_(table, change(content))
    assert_same_content(table, before)


def test_more_rows_than_a_table_may_have():
    content = export(full_table())._asdict()
    table = make_table(max_capacity=3)
    lookup(table, [70, 71])
    before = export(table)._asdict()
    with pytest.raises(
        tf.errors.ResourceExhaustedError, match=r"rows for a table of max_capacity = 3"
    ):
        import_(table, content)
    assert_same_content(table, before)


def test_more_rows_than_a_table_that_evicts_may_have():
    content = export(full_table())._asdict()
    table = make_table(max_capacity=3, eviction="lru")
    import_(table, content)
    after = export(table)
    kept = np.isin(content["keys"], after.keys)
    assert kept.sum() == 3 < len(content["keys"])
    order = np.argsort(after.keys)
    np.testing.assert_array_equal(
        after.values.numpy()[order],
        content["values"].numpy()[kept][np.argsort(content["keys"].numpy()[kept])],
    )


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"partition_index": 2, "num_partitions": 2}, "partition"),
        ({"partition_index": -1, "num_partitions": 2}, "partition"),
        ({"num_partitions": 0}, "partition"),
        ({"partition_strategy": "div"}, "partition_strategy"),
    ],
)
def test_wrong_partitions(attrs, message):
    with pytest.raises((InvalidArgumentError, TypeError), match=message):
        import_(make_table(), export(full_table())._asdict(), **attrs)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"dtype": tf.float64, "slot_dtype": tf.float64}, "dtype is double"),
        ({"dtype": tf.float32, "slot_dtype": tf.float64}, "slot_dtype must have 4 bytes"),
    ],
)
def test_export_of_another_dtype(attrs, message):
    with pytest.raises(InvalidArgumentError, match=message):
        raw_ops.EmbeddingVariableExport(resource=full_table(), **attrs)


def test_shapes():
    @tf.function
    def traced():
        return tuple(export(make_table()))

    ranks = [out.shape.rank for out in traced.get_concrete_function().outputs]
    want = [out.shape.rank for out in export(make_table())]
    assert ranks == want


@pytest.mark.parametrize("position", range(17))
def test_shape_function_rejects_other_ranks(position):
    @tf.function
    def traced(*content):
        import_(make_table(), dict(zip(export(make_table())._fields, content, strict=True)))

    specs = [tf.TensorSpec([None] * t.shape.rank, t.dtype) for t in export(make_table())]
    traced.get_concrete_function(*specs)
    specs[position] = tf.TensorSpec([1, 1, 1], specs[position].dtype)
    with pytest.raises(ValueError, match=SHAPE_ERROR):
        traced.get_concrete_function(*specs)
