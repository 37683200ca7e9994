"""fe.data.parquet: rows as pyarrow was given them, in every order, from any batch on."""

import itertools
import subprocess
import sys

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import fused_embedding as fe
import processes

arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
import pyarrow.parquet as pq  # noqa: E402

tf1 = tf.compat.v1
TEXTS = ["", "a", "b\0c", "ü", "longer than a small string of TensorFlow's"]

# Type of the column, and a value of it by a number.
COLUMNS = {
    **{
        name: (getattr(arrow, name)(), lambda i, name=name: getattr(np, name)(i % 100))
        for name in [
            *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
            *("float16", "float32", "float64"),
        ]
    },
    "large": (arrow.int64(), lambda i: -(2**63) + i),
    "bool": (arrow.bool_(), lambda i: i % 3 == 0),
    "string": (arrow.string(), lambda i: TEXTS[i % 5]),
    "large_string": (arrow.large_string(), lambda i: TEXTS[i % 5]),
    "binary": (arrow.binary(), lambda i: b"\xff\0"[: i % 3]),
    "large_binary": (arrow.large_binary(), lambda i: b"\xff\0"[: i % 3]),
    "dictionary": (arrow.dictionary(arrow.int32(), arrow.string()), lambda i: TEXTS[i % 4]),
    "list": (arrow.list_(arrow.int64()), lambda i: [i] * (i % 4) or [None, []][i % 2]),
    "large_list": (arrow.large_list(arrow.float32()), lambda i: [i / 2] * (i % 3)),
    "texts": (arrow.list_(arrow.string()), lambda i: TEXTS[: i % 6]),
    "nested": (
        arrow.list_(arrow.list_(arrow.int32())),
        lambda i: [[i] * (i % 2), [], [1, 2]][: i % 4],
    ),
    "fixed": (arrow.list_(arrow.float32(), 2), lambda i: [i, -i]),
    "fixed_texts": (arrow.list_(arrow.string(), 1), lambda i: [TEXTS[i % 5]]),
}


def write(path, numbers, columns=("int64",), rows_of_group=4):
    table = {
        name: arrow.array([COLUMNS[name][1](int(i)) for i in numbers], COLUMNS[name][0])
        for name in columns
    }
    pq.write_table(arrow.table(table), path, row_group_size=rows_of_group)
    return str(path)


def as_written(value):
    """A value of a tensor's list as Python has it, in which strings are bytes."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return [as_written(one) for one in value]
    return [] if value is None else value


def rows_of(batches, name):
    return [
        row
        for batch in batches
        for row in (
            batch[name].to_list()
            if isinstance(batch[name], tf.RaggedTensor)
            else batch[name].numpy().tolist()
        )
    ]


def numbers_of(dataset):
    """Of files of the column int64: the rows, by batch."""
    return [batch["int64"].numpy().tolist() for batch in dataset]


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_values_are_those_that_were_written(tmp_path, name, batch_size):
    path = write(tmp_path / "rows", range(11), [name])
    dataset = fe.data.parquet(path, batch_size=batch_size)
    batches = list(dataset)
    assert rows_of(batches, name) == [as_written(COLUMNS[name][1](i)) for i in range(11)]
    spec = dataset.element_spec[name]
    assert all(spec.is_compatible_with(batch[name]) for batch in batches)
    dtypes = {"list": tf.int64, "fixed": tf.float32, "nested": tf.int32, "large_list": tf.float32}
    dtypes |= {"large": tf.int64, "bool": tf.bool}
    is_number = hasattr(np, name)
    assert spec.dtype == dtypes.get(name, tf.as_dtype(name) if is_number else tf.string)


def test_batches_go_on_over_row_groups_and_files(tmp_path):
    write(tmp_path / "b.parquet", range(10, 17))
    write(tmp_path / "a.parquet", range(10), rows_of_group=3)
    write(tmp_path / "c.parquet", [])
    paths = [tmp_path / "c.parquet", f"{tmp_path}/[ab].parquet"]
    batches = numbers_of(fe.data.parquet(paths, batch_size=5))
    assert batches == [[*range(5)], [*range(5, 10)], [*range(10, 15)], [15, 16]]


def test_only_the_columns_that_are_asked_for(tmp_path):
    path = write(tmp_path / "rows", range(3), ["int64", "bool", "string"])
    dataset = fe.data.parquet(path, ["string", "int64"], batch_size=2)
    assert list(dataset.element_spec) == ["string", "int64"]


def test_files_without_rows(tmp_path):
    path = write(tmp_path / "rows", [])
    dataset = fe.data.parquet(path, batch_size=2, shuffle=fe.data.Shuffle(1), resume=7)
    assert [*dataset, *dataset] == []


@pytest.mark.parametrize("shuffle", [None, fe.data.Shuffle(seed=3, row_groups=2)])
@pytest.mark.parametrize("resume", range(12))
def test_what_follows_is_the_same_from_any_batch_on(tmp_path, resume, shuffle):
    paths = [write(tmp_path / "a", range(9)), write(tmp_path / "b", range(9, 20))]
    options = {"batch_size": 6, "shuffle": shuffle}
    whole = fe.data.parquet(paths, **options)
    epochs = [numbers_of(whole) for _ in range(4)]
    assert [len(epoch) for epoch in epochs] == [4] * 4
    later = fe.data.parquet(paths, **options, resume=resume)
    got = [batch for _ in range(4 - resume // 4) for batch in numbers_of(later)]
    assert got == list(itertools.chain(*epochs))[resume:]


def test_each_epoch_has_an_order_of_its_own(tmp_path):
    path = write(tmp_path / "rows", range(40))
    epochs = {}
    for seed in (1, 2):
        dataset = fe.data.parquet(path, batch_size=40, shuffle=fe.data.Shuffle(seed))
        again = fe.data.parquet(path, batch_size=40, shuffle=fe.data.Shuffle(seed))
        epochs[seed] = numbers_of(dataset.repeat(2))
        assert numbers_of(again) + numbers_of(again) == epochs[seed]
    orders = [*epochs[1], *epochs[2], list(range(40))]
    assert len(set(map(tuple, orders))) == 5
    assert all(sorted(order) == list(range(40)) for order in orders)


def test_a_shuffle_mixes_row_groups(tmp_path):
    path = write(tmp_path / "rows", range(40))
    [order] = numbers_of(
        fe.data.parquet(path, batch_size=40, shuffle=fe.data.Shuffle(seed=1, row_groups=5))
    )
    groups = [{i // 4 for i in order[at : at + 20]} for at in (0, 20)]
    assert [len(of_window) for of_window in groups] == [5, 5]
    assert len({i // 4 for i in order[:4]}) > 1


def test_row_groups_before_are_not_read(tmp_path, monkeypatch):
    path = write(tmp_path / "rows", range(20))
    read = []
    read_row_group = pq.ParquetFile.read_row_group

    def spy(self, number, *args, **kwargs):
        read.append(number)
        return read_row_group(self, number, *args, **kwargs)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", spy)
    assert numbers_of(fe.data.parquet(path, batch_size=3, resume=5)) == [[15, 16, 17], [18, 19]]
    assert read == [3, 4]
    read.clear()
    fe.data.parquet(path, batch_size=3)
    assert read == []


def test_two_iterators_at_a_time(tmp_path):
    path = write(tmp_path / "rows", range(30))
    dataset = fe.data.parquet(path, batch_size=4)
    pairs = list(tf.data.Dataset.zip((dataset, dataset)))
    assert len(pairs) == 8
    for first, second in pairs:
        np.testing.assert_array_equal(first["int64"], second["int64"])


@hypothesis.given(st.data())
def test_each_row_is_in_one_shard_once(tmp_path_factory, data):
    sizes = data.draw(st.lists(st.integers(0, 8), min_size=1, max_size=3))
    rows_of_group = data.draw(st.integers(1, 5))
    folder = tmp_path_factory.mktemp("shards")
    ends = list(itertools.accumulate(sizes, initial=0))
    names = ["int64", "list", "string"]
    paths = [
        write(folder / str(i), range(*pair), names, rows_of_group)
        for i, pair in enumerate(itertools.pairwise(ends))
    ]
    num_groups = sum(-(-size // rows_of_group) for size in sizes)
    count = data.draw(st.integers(1, min(max(num_groups, 1), 6)))
    seed = data.draw(st.none() | st.integers(0, 3))
    shuffle = None if seed is None else fe.data.Shuffle(seed, data.draw(st.integers(1, 3)))
    batch_size = data.draw(st.integers(1, 8))
    seen = []
    for index in range(count):
        batches = list(
            fe.data.parquet(paths, batch_size=batch_size, shuffle=shuffle, shard=(index, count))
        )
        assert all(len(batch["int64"]) == batch_size for batch in batches[:-1])
        seen += zip(*(rows_of(batches, name) for name in names), strict=True)
    want = [tuple(as_written(COLUMNS[name][1](i)) for name in names) for i in range(ends[-1])]
    assert sorted(seen) == sorted(want)


def test_in_a_graph_of_tf1(tmp_path):
    path = write(tmp_path / "rows", range(5), ["int64", "list"])
    with tf.Graph().as_default(), tf1.Session() as session:
        iterator = tf1.data.make_initializable_iterator(fe.data.parquet(path, batch_size=3))
        batch = iterator.get_next()
        for _ in range(2):
            session.run(iterator.initializer)
            values = [session.run(batch)["list"] for _ in range(2)]
            assert [value.to_list() for value in values] == [
                [as_written(COLUMNS["list"][1](i)) for i in of_batch]
                for of_batch in ([0, 1, 2], [3, 4])
            ]
            with pytest.raises(tf.errors.OutOfRangeError):
                session.run(batch)


def test_batches_feed_columns_and_layers(tmp_path):
    path = write(tmp_path / "rows", range(8), ["list"])
    rows = [as_written(COLUMNS["list"][1](i)) for i in range(8)]
    [batch] = fe.data.parquet(path, batch_size=8)
    table = np.arange(40, dtype=np.float32).reshape(20, 2)
    layers = fe.keras.layers
    bag = layers.EmbeddingBag(
        20, 2, embeddings_initializer=tf.constant_initializer(table), combiner="sum"
    )
    got = layers.EmbeddingGroup({"list": bag})(batch)
    want = [table[row].sum(axis=0) for row in rows]
    np.testing.assert_array_equal(got["list"] if isinstance(got, dict) else got, want)


def test_batches_feed_an_input_layer(tmp_path):
    path = write(tmp_path / "rows", range(8), ["int64", "string"])
    fc = tf.feature_column
    columns = [
        fc.embedding_column(fc.categorical_column_with_identity("int64", 100), 2),
        fc.embedding_column(fc.categorical_column_with_hash_bucket("string", 10), 2),
    ]
    by_hand = {name: [COLUMNS[name][1](i) for i in range(8)] for name in ("int64", "string")}
    with tf.Graph().as_default(), tf1.Session() as session:
        iterator = tf1.data.make_initializable_iterator(fe.data.parquet(path, batch_size=8))
        rows = []
        for features in (iterator.get_next(), by_hand):
            tensors = {name: tf.convert_to_tensor(values) for name, values in features.items()}
            with tf1.variable_scope("layer", reuse=tf1.AUTO_REUSE):
                rows.append(fe.feature_column.input_layer(tensors, columns))
        session.run([tf1.global_variables_initializer(), iterator.initializer])
        np.testing.assert_array_equal(*session.run(rows))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size is 0; it must be at least 1"),
        ({"resume": -1}, ValueError, "resume is -1; it must be at least 0"),
        ({"shuffle": fe.data.Shuffle(-1)}, ValueError, "shuffle.seed is -1; it must be at least 0"),
        ({"shuffle": fe.data.Shuffle(1, 0)}, ValueError, "shuffle.row_groups is 0; it must be"),
        ({"shard": (2, 2)}, ValueError, r"shard is \(2, 2\); the index must be below"),
        ({"shard": (0, 9)}, ValueError, "have 3 row groups, too few for 9 shards; write them with"),
        ({"columns": []}, ValueError, r"the columns are \[\]; give at least one"),
        ({"columns": ["int64"] * 2}, ValueError, "and each once"),
        ({"columns": ["id"]}, ValueError, r"'id' is 0 times in .*/rows, which has \['int64'"),
        ({"paths": []}, FileNotFoundError, "`paths` is empty; give files, or patterns"),
        ({"paths": "/no/such"}, FileNotFoundError, "'/no/such' is no file"),
        ({"paths": "/no/such*"}, FileNotFoundError, "no pattern that matches files"),
        ({"columns": ["when"]}, TypeError, r"'when' has Arrow's type timestamp\[us\]; tensors are"),
        ({"columns": ["of"]}, TypeError, "'of' has Arrow's type struct"),
    ],
    ids=str,
)
def test_what_is_refused(tmp_path, arguments, error, message):
    numbers = arrow.array(range(10), arrow.int64())
    structs = arrow.array([{"a": 1}] * 10)
    columns = {"int64": numbers, "when": numbers.cast(arrow.timestamp("us")), "of": structs}
    pq.write_table(arrow.table(columns), tmp_path / "rows", row_group_size=4)
    arguments = {"paths": tmp_path / "rows", "columns": ["int64"], "batch_size": 2} | arguments
    with pytest.raises(error, match=message):
        fe.data.parquet(**arguments)


def test_a_column_has_one_type_in_all_files(tmp_path):
    pq.write_table(arrow.table({"a": arrow.array([1], arrow.int64())}), tmp_path / "1")
    pq.write_table(arrow.table({"a": arrow.array([1], arrow.int32())}), tmp_path / "2")
    with pytest.raises(TypeError, match=r"'a' has type int32 in .*/2 and int64 in .*/1; write"):
        fe.data.parquet(f"{tmp_path}/*", batch_size=1)


@pytest.mark.parametrize(
    "column",
    [
        arrow.array([1, 2, 3, None, 5]),
        arrow.array([[1], [2], [3], [None], None]),
        arrow.array(["a", "b", "c", None, "d"]).dictionary_encode(),
        arrow.array([[1, 2], [3, 4], [5, 6], None, [7, 8]], arrow.list_(arrow.int64(), 2)),
        arrow.array([[1, 2], [3, 4], [5, 6], [7, None], [7, 8]], arrow.list_(arrow.int64(), 2)),
    ],
    ids=lambda column: str(column.type),
)
def test_a_value_that_is_null_is_an_error(tmp_path, column):
    pq.write_table(arrow.table({"a": column}), tmp_path / "rows", row_group_size=3)
    dataset = fe.data.parquet(tmp_path / "rows", batch_size=2)
    message = "column 'a' has 1 null values in row group 1 of .*/rows; tensors have none: fill"
    if arrow.types.is_fixed_size_list(column.type):  # some versions of Arrow cannot read it
        message = f"{message}|row group 1 of .*/rows cannot be read: Expected all lists"
    for _ in range(2):  # the error is there again
        assert len(list(dataset.take(1))) == 1
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            list(dataset)


def test_a_damaged_file_is_an_error(tmp_path):
    path = write(tmp_path / "rows", range(1000), rows_of_group=500)
    with open(path, "r+b") as file:
        file.seek(4)
        file.write(b"\xff" * 200)
    with pytest.raises(tf.errors.OpError, match=r"row group 0 of .*/rows cannot be read"):
        list(fe.data.parquet(path, batch_size=1000))


ENDS = """
import os, signal, sys
import fused_embedding as fe

# Each program is a fork of one that imports TensorFlow once, and ends as any other does.
for _ in range(3):
    program = os.fork()
    if program == 0:
        signal.alarm(100)  # seconds, then one that does not end is killed
        batches = iter(fe.data.parquet(sys.argv[1], batch_size=1000).repeat().prefetch(3))
        print(len(next(batches)["string"]))
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]), flush=True)
"""


def test_a_program_ends_while_a_batch_is_read(tmp_path):
    names = ["int64", "list", "string"]
    path = write(tmp_path / "rows", range(20_000), names, rows_of_group=2000)
    command = [sys.executable, "-c", ENDS, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=360)
    assert (done.returncode, done.stdout) == (0, "1000\n0\n" * 3), done.stderr


PROGRAM = """
import sys
import fused_embedding as fe
assert "pyarrow" not in sys.modules
sys.modules["pyarrow"] = sys.modules["pyarrow.parquet"] = None
try:
    fe.data.parquet(sys.argv[1], batch_size=2)
except ImportError as error:
    print(error)
"""


def test_without_pyarrow_the_error_names_the_extra(tmp_path):
    printed = processes.output_of(processes.run_program(PROGRAM, write(tmp_path / "rows", [1])))
    assert "this needs the Python package pyarrow" in printed
    assert "install the extra 'parquet': pip install " in printed
