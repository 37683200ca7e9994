"""fe.io.parse_example against tf.io.parse_example, bit by bit: values, what is accepted, errors."""

import doctest

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from cases.example_traps import BIG, DENSE, TRAP_SPECS, TRAPS, F, I, S
from cases.examples import (
    SPARSE,
    delimited,
    entry,
    example,
    floats,
    integers,
    is_same,
    outcome,
    says_details,
    sequence,
    tagged_floats,
    tagged_integers,
    texts,
    varint,
)
from fused_embedding.input.parsing import WantedKeys, parse_keys

VarLen, Fixed, Ragged = tf.io.VarLenFeature, tf.io.FixedLenFeature, tf.io.RaggedFeature
LONG = b"a text of more than 22 bytes, which is not inline"


def assert_stock(serialized, features, **more):
    """Asserts that both functions have the same outcome, and returns it."""
    want = outcome(tf.io.parse_example, serialized, features, **more)
    got = outcome(fe.io.parse_example, serialized, features, **more)
    assert is_same(got, want), f"got {got}\nwant {want}\nof {serialized}"
    return want


ROWS = [
    example(
        entry(b"s", texts(b"x", LONG, b"")),
        entry(b"f", floats(0.5, -1.5)),
        entry(b"i", integers(-1, 2**62, 0)),
        entry(b"unused", texts(b"")),
    ),
    b"",
    example(entry(b"f", tagged_floats(3.0, 4.0)), entry(b"i", tagged_integers(7, -(2**63), 5))),
    example(entry(b"i", integers()), entry(b"s", texts(b"y"))),
]
WITH_DEFAULTS = {
    "s": Fixed([1], tf.string, b"none"),
    "f": Fixed([2], tf.float32, [1.0, 2.0]),
    "i": Fixed([3], tf.int64, [7, 8, 9]),
}
SPECS = {
    "sparse": SPARSE,
    "padded": {"s": sequence(tf.string), "f": sequence(tf.float32), "i": sequence(tf.int64)},
    "padded with": {
        "s": sequence(tf.string, default_value=LONG),
        "f": sequence(tf.float32, [2], default_value=-1.0),
        "i": sequence(tf.int64, [3, 1], default_value=5),
    },
    "ragged": {"s": Ragged(tf.string), "f": Ragged(tf.float32, row_splits_dtype=tf.int64)},
    "ragged int64": {"i": Ragged(tf.int64, row_splits_dtype=tf.int64), "f": VarLen(tf.float32)},
    "nested": {"r": Ragged(tf.float32, "f", [Ragged.UniformRowLength(2)])},
    "all": {
        "s": VarLen(tf.string),
        "f": Ragged(tf.float32),
        "i": sequence(tf.int64),
        "z": Fixed([], tf.string, LONG),
    },
}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], ROWS[1:2], [], ROWS * 40], ids=len)
def test_batches(spec, rows):
    outcome_of_stock = assert_stock(tf.constant(rows, tf.string, [len(rows)]), SPECS[spec])
    assert not isinstance(outcome_of_stock, str), outcome_of_stock


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("row", range(len(ROWS)))
def test_single_examples(spec, row):
    assert_stock(ROWS[row], SPECS[spec])
    want = outcome(tf.io.parse_single_example, ROWS[row], SPECS[spec])
    assert is_same(outcome(fe.io.parse_single_example, ROWS[row], SPECS[spec]), want)


def test_fixed_features():
    present = example(
        entry(b"s", texts(LONG)), entry(b"f", floats(0.1, 0.2)), entry(b"i", integers(1, 2, 3))
    )
    assert_stock([present, b"", present], WITH_DEFAULTS)
    assert_stock(
        [present] * 3, {name: Fixed([*f.shape], f.dtype) for name, f in WITH_DEFAULTS.items()}
    )
    matrix = {"i": Fixed([1, 3], tf.int64), "f": Fixed([2, 1], tf.float32, [[1.0], [2.0]])}
    assert_stock([present, present], matrix)
    assert_stock(present, matrix)


def test_sparse_feature_of_two_keys():
    row = example(
        entry(b"v", floats(1.0, 2.0)), entry(b"i", integers(3, 1)), entry(b"j", integers(0, 4))
    )
    feature = tf.io.SparseFeature(["i", "j"], "v", tf.float32, [5, 6], already_sorted=False)
    for rows in ([row, b"", row], row):
        assert_stock(rows, {"w": feature, "i": VarLen(tf.int64)})


@pytest.mark.parametrize(
    "partition",
    [
        Ragged.RowSplits("p"),
        Ragged.RowLengths("p"),
        Ragged.RowStarts("p"),
        Ragged.RowLimits("p"),
        Ragged.ValueRowIds("p"),
        Ragged.UniformRowLength(1),
    ],
    ids=lambda partition: type(partition).__name__,
)
def test_partitions_of_ragged_features(partition):
    splits = {
        "RowSplits": (0, 1, 3),
        "RowLengths": (1, 2),
        "RowStarts": (0, 1),
        "RowLimits": (1, 3),
    }
    ids = splits.get(type(partition).__name__, (0, 1, 1))
    row = example(entry(b"v", texts(b"a", b"b", b"c")), entry(b"p", integers(*ids)))
    for rows in ([row, row], row):
        assert_stock(rows, {"r": Ragged(tf.string, "v", [partition], row_splits_dtype=tf.int64)})


@pytest.mark.parametrize("spec", TRAP_SPECS)
@pytest.mark.parametrize("group", "12345")
def test_traps(group, spec):
    """In a batch with plain examples, alone, and without a batch."""
    traps = {name: text for name, text in TRAPS.items() if name.startswith(group)}
    assert traps
    plain = example(S, F, I) if spec != "pairs" else b""
    for text in traps.values():
        assert_stock([plain, text, plain], TRAP_SPECS[spec])
        assert_stock(text, TRAP_SPECS[spec])


def test_all_traps_are_accepted_or_rejected_as_before():
    """How many are accepted: a test of the traps themselves."""
    accepted = {
        name
        for name, text in TRAPS.items()
        if not isinstance(outcome(tf.io.parse_example, [text], SPARSE), str)
    }
    assert 30 < len(accepted) < len(TRAPS) - 20
    assert "4 Features longer than the example" in accepted
    assert "4 cut in a text" not in accepted


def test_errors_say_what_stocks_say():
    """Each text of an error, of a batch and of one example; the parametrised traps compare more."""
    bad = {
        "Could not parse example input, value: '\\xff'": (b"\xff", SPARSE),
        "Unsupported datatype.": (example(entry(b"s", delimited(4, b""))), SPARSE),
        "Expected type: string, Actual type: float": (example(entry(b"s", floats(1.0))), SPARSE),
        "Data type: string but expected type: float": (example(entry(b"f", texts(b""))), DENSE),
        "Can't parse serialized Example": (example(entry(b"s", b"\x0a\x05\x0a")), SPARSE),
        "is required but could not be found": (b"", {"f": Fixed([1], tf.float32)}),
    }
    for text, (row, features) in bad.items():
        for rows in ([row], row):
            assert text in assert_stock(rows, features)
    for kind, values in {"float": floats(1.0, 2.0), "int64": integers(1, 2)}.items():
        row = example(entry(kind[:1].encode(), values))
        assert "Values size: 2 but output shape: [1]" in assert_stock([row], DENSE)
        said = assert_stock(row, DENSE)
        assert "slice was not parsed" in said or not says_details()
    for feature in (texts(b"a", b"b"), texts()):
        for rows in ([example(entry(b"s", feature))], example(entry(b"s", feature))):
            assert isinstance(assert_stock(rows, DENSE), str)


def test_the_first_bad_example_is_named():
    rows = [example(S), example(entry(b"f", texts(b"a"))), b"\xff"] + [example(S)] * 200
    names = [f"row {i}" for i in range(len(rows))]
    assert "Name: row 1, Key: f, Index: 1." in assert_stock(rows, SPARSE, example_names=names)
    assert "Name: <unknown>" in assert_stock(rows, SPARSE)
    far = [example(S)] * 150 + [b"\xff"] + [example(S)] * 100 + [example(entry(b"f", texts()))]
    assert "Could not parse" in assert_stock(far, SPARSE)


@pytest.mark.parametrize("place", [0, 3, 57, 130, 299])
def test_padded_errors_count_what_came_before(place):
    """Stock counts the values that its thread has seen: of a part of the batch."""
    rows = [
        example(entry(b"i", integers(1, 2)), entry(b"s", texts(b"x" * (i % 900))))
        for i in range(300)
    ]
    rows[place] = example(entry(b"i", integers(1, 2, 3)))
    features = {"i": sequence(tf.int64, [2]), "s": VarLen(tf.string)}
    assert "is not a multiple of stride length" in assert_stock(rows, features)


@pytest.mark.parametrize(
    ("row", "spec"),
    [
        (example(entry(b"s", delimited(1, b"\x0a" + BIG + b"abc"))), "sparse"),
        (example(entry(b"f", delimited(2, b"\x0a" + BIG + b"abcd"))), "sparse"),
        (example(entry(b"f", delimited(2, b"\x0a" + varint(2**32 - 1) + b"abcd"))), "ragged"),
        (example(entry(b"f", tagged_floats(*range(100)))), "dense"),
    ],
)
def test_what_ends_the_process_in_stock_is_an_error(row, spec):
    for rows in ([row], row):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Can't parse|Values size: 100"):
            fe.io.parse_example(rows, TRAP_SPECS[spec])


def test_a_padded_feature_without_values_is_an_error():
    with pytest.raises(tf.errors.InvalidArgumentError, match="no number of values is a multiple"):
        fe.io.parse_example([b""], {"i": sequence(tf.int64, [0])})


# Names.


def test_names_of_all_sizes():
    """The last 8 bytes and the size find a name; the others are compared."""
    names = [b"n" * size for size in range(40)] + [b"a" + b"n" * size for size in range(8, 40)]
    names += [b"categorical_feature_%d" % i for i in range(30)]
    row = example(*(entry(name, integers(i)) for i, name in enumerate(names)))
    features = {name.decode(): VarLen(tf.int64) for name in names}
    assert_stock([row, row], features)
    wanted = {name.decode(): VarLen(tf.int64) for name in names[::2]}
    assert_stock([row, row], wanted)


# Dtypes, shapes and errors of the op.


def raw(**changed):
    arguments = {
        "serialized": [b""],
        "names": tf.constant([], tf.string),
        "sparse_keys": ["s"],
        "dense_keys": ["f", "i"],
        "ragged_keys": ["r"],
        "dense_defaults": [tf.constant([1.0, 2.0]), tf.constant(3, tf.int64)],
        "num_sparse": 1,
        "sparse_types": [tf.string],
        "ragged_value_types": [tf.int64],
        "ragged_split_types": [tf.int32],
        "dense_shapes": [[2], [None, 1]],
    }
    return arguments | changed


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"serialized": [[b""]]},
        {"serialized": tf.constant([], tf.string)},
        {"serialized": b""},
        {"names": ["a", "b"]},
        {"names": ["a"]},
        {"sparse_keys": ["s", "t"]},
        {"sparse_keys": []},
        {"dense_keys": ["f"]},
        {"ragged_keys": ["r", "q"]},
        {"num_sparse": 2},
        {"dense_shapes": [[3], [None, 1]]},
        {"dense_shapes": [[2], [None, None]]},
        {"dense_shapes": [[2], None]},
        {"dense_shapes": [[2]]},
        {"dense_shapes": [[None], [None, 1]]},
        {"ragged_split_types": []},
        {"dense_defaults": [tf.constant([], tf.float32), tf.constant(3, tf.int64)]},
    ],
    ids=str,
)
def test_the_op_checks_as_stocks(changed):
    results = []
    for op in (tf.raw_ops.ParseExampleV2, fe.raw_ops.FusedEmbeddingParseExample):
        try:
            outputs = op(**raw(**changed))
            results.append([tensor.numpy().tolist() for tensor in tf.nest.flatten(list(outputs))])
        except tf.errors.InvalidArgumentError as error:
            results.append(error.message.split("}} ", 1)[-1].split(" [Op:")[0])
    stock, ours = results
    assert ours == stock


def test_a_name_that_is_wanted_twice():
    """Python lets no such call through. Stock's op has no values of any feature then."""
    with pytest.raises(tf.errors.InvalidArgumentError, match='feature "s" is wanted twice'):
        fe.raw_ops.FusedEmbeddingParseExample(**raw(ragged_keys=["s"]))


@pytest.mark.parametrize("shape", [None, [], [None], [3]], ids=str)
def test_static_shapes(shape):
    features = {**SPECS["all"], "m": Fixed([2, 3], tf.int64), "p": sequence(tf.float32, [4])}
    if shape is None:
        features.pop("f")
    shapes = []
    with tf.Graph().as_default():
        for parse in (tf.io.parse_example, fe.io.parse_example):
            results = parse(tf.compat.v1.placeholder(tf.string, shape), features)
            leaves = tf.nest.flatten(results, expand_composites=True)
            shapes.append(
                [(leaf.dtype, leaf.shape.as_list() if leaf.shape.rank else None) for leaf in leaves]
            )
    assert shapes[0] == shapes[1]


# Python.


@pytest.mark.parametrize(
    ("name", "features"),
    [
        ("parse_example", None),
        ("parse_example", {}),
        ("parse_example", {"s": 1}),
        ("parse_example", {"s": Fixed(None, tf.string)}),
        ("parse_example", {"s": tf.io.FixedLenSequenceFeature([], tf.string)}),
        ("parse_single_example", None),
        ("parse_single_example", {}),
    ],
)
def test_wrong_features(name, features):
    errors = []
    for module in (tf.io, fe.io):
        with pytest.raises((ValueError, TypeError)) as raised:
            getattr(module, name)(b"", features)
        errors.append(
            (
                type(raised.value),
                str(raised.value).replace("FusedEmbeddingParseExample", "ParseExampleV2"),
            )
        )
    assert errors[0][0] == errors[1][0]
    if says_details() or features:  # 2.15 says of an empty dictionary that it is None
        assert errors[0] == errors[1]


def test_a_single_example_must_be_a_scalar():
    for module in (tf.io, fe.io):
        with pytest.raises(ValueError, match="Input serialized must be a scalar"):
            module.parse_single_example([b""], SPARSE)


# Results are of no buffer that may die.


def test_values_outlive_their_examples():
    row = example(entry(b"s", texts(LONG * 10, b"short")))
    serialized = tf.constant([row] * 100)
    results = fe.io.parse_example(serialized, SPARSE)
    del serialized
    for _ in range(3):
        tf.constant([b"z" * len(row)] * 100)
    assert results["s"].values.numpy().tolist() == [LONG * 10, b"short"] * 100


def test_the_examples_of_docstrings():
    for function in (fe.io.parse_example, fe.io.parse_single_example):
        runner = doctest.DocTestRunner()
        [test] = doctest.DocTestFinder().find(function, globs={"fe": fe, "tf": tf, "np": np})
        results = runner.run(test)
        assert (results.attempted > 0, results.failed) == (True, 0)


# tf.data.


@pytest.mark.parametrize("calls", [None, 2])
def test_in_a_dataset(calls):
    rows = [
        example(entry(b"i", integers(*range(i % 5))), entry(b"s", texts(b"%d" % i)))
        for i in range(100)
    ]
    features = {"i": VarLen(tf.int64), "s": Fixed([], tf.string)}
    batches = []
    for parse in (tf.io.parse_example, fe.io.parse_example):
        dataset = tf.data.Dataset.from_tensor_slices(rows).batch(8)
        dataset = dataset.map(
            lambda batch, parse=parse: parse(batch, features),
            num_parallel_calls=calls,
            deterministic=True,
        )
        batches.append([tf.nest.flatten(batch, expand_composites=True) for batch in dataset])
    stock, ours = batches
    assert len(ours) == len(stock) == 13
    for got, want in zip(ours, stock, strict=True):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


# --- Keys ---

KEY_RULES = [
    WantedKeys("s", tf.string, "hash", 10, -1),
    WantedKeys("i", tf.int64, "hash", 1000, -1),
    WantedKeys("s", tf.string, "hash", 2**63 - 1, -1),
    WantedKeys("i", tf.int64, "identity", 8, 3),
    WantedKeys("i", tf.int64, "identity", 1, -1),
]


def stock_keys(values, rule):
    """What stock's columns make of the values of a feature."""
    if rule.kind == "hash":
        text = values if values.dtype == tf.string else tf.as_string(values)
        return tf.strings.to_hash_bucket_fast(text, rule.num_buckets)
    if rule.default_key < 0:
        return values
    is_inside = (values >= 0) & (values < rule.num_buckets)
    return tf.where(is_inside, values, tf.cast(rule.default_key, tf.int64))


@pytest.mark.parametrize("features", [{}, SPECS["sparse"], {"f": Ragged(tf.float32)}], ids=len)
@pytest.mark.parametrize("rows", [ROWS, ROWS[1:2], [], ROWS * 100], ids=len)
def test_keys_are_those_of_sparse_features(rows, features):
    serialized = tf.constant(rows, tf.string, [len(rows)])
    made, parsed = parse_keys(serialized, KEY_RULES, features)
    want = tf.io.parse_example(serialized, SPARSE)
    for rule, (keys, key_rows, shape) in zip(KEY_RULES, made, strict=True):
        sparse = want[rule.name]
        np.testing.assert_array_equal(keys, stock_keys(sparse.values, rule))
        np.testing.assert_array_equal(key_rows, sparse.indices[:, 0])
        np.testing.assert_array_equal(shape, sparse.dense_shape)
    if features:
        assert_same_features(parsed, tf.io.parse_example(serialized, features))


def assert_same_features(got, want):
    assert sorted(got) == sorted(want)
    pairs = zip(*(tf.nest.flatten(of, expand_composites=True) for of in (got, want)), strict=True)
    for ours, of_stock in pairs:
        np.testing.assert_array_equal(ours.numpy(), of_stock.numpy())


@pytest.mark.parametrize("trap", TRAPS)
def test_keys_of_odd_examples_have_stocks_outcome(trap):
    def keys(serialized, features):
        rules = [rule for rule in KEY_RULES[:2] if rule.name in features]
        made, parsed = parse_keys(serialized, rules, {"f": features["f"]})
        for rule, (of_rule, rows, shape) in zip(rules, made, strict=True):
            parsed |= {f"{rule.name} keys": of_rule, f"{rule.name} at": rows}
            parsed |= {f"{rule.name} shape": shape}
        return parsed

    def stock(serialized, features):
        parsed = tf.io.parse_example(serialized, features)
        for rule in KEY_RULES[:2]:
            sparse = parsed.pop(rule.name)
            parsed |= {f"{rule.name} keys": stock_keys(sparse.values, rule)}
            parsed |= {f"{rule.name} at": sparse.indices[:, 0]}
            parsed |= {f"{rule.name} shape": sparse.dense_shape}
        return parsed

    rows = tf.constant([ROWS[0], TRAPS[trap], ROWS[3]])
    assert is_same(outcome(keys, rows, SPARSE), outcome(stock, rows, SPARSE))


@pytest.mark.parametrize(
    ("rules", "features", "error"),
    [
        ([KEY_RULES[0]._replace(kind="index")], {}, "keys of s: .*identity or hash"),
        ([KEY_RULES[0]._replace(kind="none")], {}, "keys of s: "),
        ([KEY_RULES[0]._replace(num_buckets=0)], {}, "keys of s: .*num_buckets"),
        ([KEY_RULES[0]._replace(kind="identity")], {}, "keys of s: "),
        (KEY_RULES[:1], {"s": Ragged(tf.string)}, "wanted as keys, and .* dense or ragged"),
        (KEY_RULES[:1], {"s": VarLen(tf.int64)}, "wanted as keys, and with another type"),
        (
            [KEY_RULES[0], KEY_RULES[0]._replace(dtype=tf.int64)],
            {},
            "wanted as keys, and with another type",
        ),
    ],
)
def test_rules_that_do_not_fit(rules, features, error):
    with pytest.raises(tf.errors.InvalidArgumentError, match=error):
        parse_keys(tf.constant(ROWS), rules, features)


def test_keys_of_one_example_are_refused():
    with pytest.raises(tf.errors.InvalidArgumentError, match="keys are made of a batch"):
        parse_keys(tf.constant(ROWS[0]), KEY_RULES, {})
