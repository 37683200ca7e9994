"""DeepRec's checkpoints, made here from the facts: no DeepRec can run beside this TensorFlow."""

import dataclasses
import os

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
from convert import deeprec_files
from convert.deeprec_files import Row, random_rows
from fused_embedding.convert.destination import write
from fused_embedding.convert.source import open_source
from fused_embedding.convert.table import ConvertError

KEYS = [0, 1, 7, 999, 1000, 1001, 123_456_789_012, 2**63 - 1, 4_007]
OTHERS = {"global_step": np.int64(60), "dense/kernel": np.float32([[1, 2], [3, 4]])}


def convert(source, destination, to="ours", incremental=None, accumulator=0.1):
    opened = open_source(str(source), [], incremental and str(incremental), accumulator)
    return write(opened, str(destination), to, {}, lambda name: None)


def restored(path, name="users", slot=None, **arguments):
    """What tf.compat.v1.train.Saver restores: rows, and numbers of a slot, by key."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = fe.get_embedding_variable(name, 3, **arguments)
        tf.compat.v1.train.Saver({name: table}).restore(session, str(path))
        parts = list(table) if isinstance(table, fe.PartitionedEmbeddingVariable) else [table]
        found = {}
        for part in parts:
            content = session.run(part.export_content()._asdict())
            ends = np.cumsum(content["slot_widths"])
            slots = np.split(content["slots"], ends[:-1], axis=1) if ends.size else []
            of_name = dict(zip(content["slot_names"].astype(str), slots, strict=True))
            for i, key in enumerate(content["keys"]):
                found[key] = (
                    content["values"][i].tolist(),
                    None if slot is None else of_name[slot][i].tolist(),
                    content["frequencies"][i],
                    content["versions"][i],
                )
        return found


def expected(rows, slot=None):
    return {
        key: (
            np.float32(row.value).tolist(),
            None if slot is None else np.float32(row.slots[slot]).tolist(),
            row.frequency,
            row.version,
        )
        for key, row in rows.items()
    }


@pytest.mark.parametrize("slots", [(), ("Adagrad",), ("Adam", "Adam_1"), ("Ftrl", "Ftrl_1")])
def test_round_trip_is_byte_equal(tmp_path, slots):
    tensors = deeprec_files.tensors_of(
        "a/users", random_rows(1, KEYS, slots=slots), filtered={5: (2, 11), 1005: (1, 12)}
    )
    tensors |= deeprec_files.tensors_of("items", random_rows(2, KEYS[:3], slots=slots)) | OTHERS
    source = deeprec_files.write(tmp_path / "deeprec", tensors)
    convert(source, tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "again", to="deeprec")
    deeprec_files.assert_same_checkpoint(deeprec_files.read(tmp_path / "again"), tensors)


@pytest.mark.parametrize("num_parts", [1, 2, 5])
@pytest.mark.parametrize("of_ours", [None, 3])
def test_partitions_are_one_table(tmp_path, num_parts, of_ours):
    rows = random_rows(3, KEYS, slots=("Adam", "Adam_1"))
    source = deeprec_files.write(
        tmp_path / "deeprec", deeprec_files.tensors_of("users", rows, num_parts)
    )
    convert(source, tmp_path / "ours")
    partitioner = of_ours and tf.compat.v1.fixed_size_partitioner(of_ours)
    for slot, name in (("Adam", "Adam/m"), ("Adam_1", "Adam/v")):
        found = restored(tmp_path / "ours", slot=name, partitioner=partitioner)
        assert found == expected(rows, slot)


def test_training_goes_on_as_a_dense_variable_would(tmp_path):
    rows = random_rows(4, range(6))
    source = deeprec_files.write(tmp_path / "deeprec", deeprec_files.tensors_of("users", rows))
    convert(source, tmp_path / "ours")
    ids = [1, 4, 9]  # 9 is new, and starts as initializer and accumulator say
    values = np.float32([row.value for row in rows.values()] + [[0.5] * 3] * 4)
    accumulators = np.float32([row.slots["Adagrad"] for row in rows.values()] + [[0.1] * 3] * 4)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = fe.get_embedding_variable("users", 3, initializer=0.5)
        dense = tf.compat.v1.get_variable("dense", initializer=values)
        optimizer = tf.compat.v1.train.AdagradOptimizer(0.1)
        both = [tf.nn.embedding_lookup(params, ids) for params in (table, dense)]
        train = optimizer.minimize(sum(tf.reduce_sum(rows**2) for rows in both))
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(optimizer.get_slot(dense, "accumulator").assign(accumulators))
        tf.compat.v1.train.Saver([table]).restore(session, str(tmp_path / "ours"))
        session.run(train)
        got, want = session.run(both)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_what_was_not_recorded(tmp_path):
    rows = random_rows(5, KEYS)
    tensors = deeprec_files.tensors_of("users", rows, recorded=False) | OTHERS
    lines = convert(deeprec_files.write(tmp_path / "deeprec", tensors), tmp_path / "ours")
    found = restored(tmp_path / "ours")
    assert {key: one[2:] for key, one in found.items()} == dict.fromkeys(rows, (1, 60))
    assert "  assumed: each key occurred once, frequencies were not recorded" in lines
    assert "  assumed: step 60 where no version was recorded" in lines


def test_counters_beyond_those_of_a_table_become_its_largest(tmp_path):
    largest = 2**32 - 1
    counts = {1: largest - 1, 2: largest, 3: largest + 1, 4: 2**62}
    rows = {
        key: dataclasses.replace(row, frequency=counts[key], version=counts[key])
        for key, row in random_rows(12, counts).items()
    }
    source = deeprec_files.write(tmp_path / "deeprec", deeprec_files.tensors_of("users", rows))
    convert(source, tmp_path / "ours")
    found = restored(tmp_path / "ours")
    assert {key: one[2:] for key, one in found.items()} == {
        # A table marks erased rows by the largest version.
        key: (min(count, largest), min(count, largest - 1))
        for key, count in counts.items()
    }


def test_older_checkpoints_and_int32_keys(tmp_path):
    rows = random_rows(6, [1, 2, 3000])
    tensors = deeprec_files.tensors_of("users", rows, key_dtype=np.int32)
    tensors = {k: v for k, v in tensors.items() if "partition_" not in k and "_filtered" not in k}
    convert(deeprec_files.write(tmp_path / "deeprec", tensors), tmp_path / "ours")
    assert restored(tmp_path / "ours", slot="Adagrad/accumulator") == expected(rows, "Adagrad")


def test_incremental(tmp_path):
    rows, later = random_rows(7, KEYS), random_rows(8, [1, 999, 2000])
    full = deeprec_files.tensors_of("users", rows, filtered={2000: (1, 1), 5: (1, 1)}) | OTHERS
    changed = deeprec_files.incremental_tensors("users", later)
    changed |= {
        "global_step": np.int64(70),
        "dense/kernel-sparse_incr_keys": np.int64([1]),
        "dense/kernel-sparse_incr_values": np.float32([[5, 6]]),
    }
    deeprec_files.write(tmp_path / "full", full)
    deeprec_files.write(tmp_path / "incremental", changed)
    convert(tmp_path / "full", tmp_path / "ours", incremental=tmp_path / "incremental")
    found = restored(tmp_path / "ours", slot="Adagrad/accumulator")
    assert found == expected(rows | later, "Adagrad")
    written = deeprec_files.read(tmp_path / "ours")
    assert written["users-filtered_keys"].tolist() == [5]
    assert written["global_step"] == 70
    assert written["dense/kernel"].tolist() == [[1, 2], [5, 6]]
    assert not any("incr" in name for name in written)


def by_row(shape, dtype):
    return tf.random.stateless_uniform(shape, [1, 2], dtype=dtype)


def test_incremental_rows_that_are_of_nothing_are_refused(tmp_path):
    tensors = deeprec_files.tensors_of("users", random_rows(7, KEYS))
    deeprec_files.write(tmp_path / "full", tensors | {"dense": np.float32([[1], [2]])})
    changed = {"dense/part_0-sparse_incr_keys": np.int64([0])}
    deeprec_files.write(tmp_path / "incremental", changed)
    with pytest.raises(ConvertError, match=r"'dense/part_0-sparse_incr_keys'.*in partitions"):
        convert(tmp_path / "full", tmp_path / "ours", incremental=tmp_path / "incremental")


def test_rows_in_ssd_tiers_are_named(tmp_path):
    tensors = deeprec_files.tensors_of("users", random_rows(7, KEYS))
    source = deeprec_files.write(tmp_path / "full", tensors)
    assert "SSD" not in str(convert(source, tmp_path / "ours"))
    deeprec_files.write(tmp_path / "full-users-ssd_record", {"keys": np.int64([1])})
    assert "not carried: rows in SSD tiers" in str(convert(source, tmp_path / "again"))


def test_step_of_rows_that_changed_last(tmp_path):
    full = deeprec_files.tensors_of("users", random_rows(7, [1]), recorded=False) | OTHERS
    deeprec_files.write(tmp_path / "full", full)
    deeprec_files.write(tmp_path / "incremental", {"global_step": np.int64(70)})
    convert(tmp_path / "full", tmp_path / "ours", incremental=tmp_path / "incremental")
    assert restored(tmp_path / "ours")[1][3] == 70


@pytest.mark.parametrize("initializer", [None, tf.constant_initializer(7.0), by_row])
def test_new_keys_start_as_the_program_says(tmp_path, initializer):
    tensors = deeprec_files.tensors_of("users", random_rows(9, KEYS))
    convert(deeprec_files.write(tmp_path / "deeprec", tensors), tmp_path / "ours")
    tables = [fe.get_embedding_variable("users", 3, initializer=initializer) for _ in range(2)]
    fe.convert.restore(str(tmp_path / "ours"), {"users": tables[0]})
    assert tables[0].total_count() == len(KEYS)
    new = [13, 5555]
    got, want = (tf.nn.embedding_lookup(table, new).numpy() for table in tables)
    np.testing.assert_array_equal(got, want)


def test_unknown_slots_are_tables(tmp_path):
    tensors = deeprec_files.tensors_of("users", random_rows(10, KEYS, slots=("Mine", "Adam_7")))
    lines = convert(deeprec_files.write(tmp_path / "deeprec", tensors), tmp_path / "ours")
    assert "  not carried: users/Adam_7, a slot of no known optimizer" in lines
    assert len(restored(tmp_path / "ours", "users/Mine")) == len(KEYS)


def test_decay_power_is_a_number_a_row(tmp_path):
    rows = random_rows(11, KEYS, slots=("AdagradDecay", "AdagradDecay_1"))
    for i, row in enumerate(rows.values()):
        row.slots["AdagradDecay_1"] = [i] * 3
    tensors = deeprec_files.tensors_of("users", rows)
    name = "users/AdagradDecay_1-values"
    tensors[name] = tensors[name].astype(np.int64)
    convert(deeprec_files.write(tmp_path / "deeprec", tensors), tmp_path / "ours")
    found = restored(tmp_path / "ours", slot="AdagradDecay/accumulator_decay_power")
    assert {key: one[1] for key, one in found.items()} == {
        key: [float(i)] for i, key in enumerate(rows)
    }
    convert(tmp_path / "ours", tmp_path / "again", to="deeprec")
    deeprec_files.assert_same_checkpoint(deeprec_files.read(tmp_path / "again"), tensors)


def without(name):
    return lambda tensors: tensors.pop(name)


def replace(name, array):
    return lambda tensors: tensors.update({name: array})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without("users/part_0-values"), "'users/part_0-values' is missing"),
        (without("users/part_0-keys"), r"\[0\] are missing"),
        (replace("users/part_0-keys", np.float32([1])), "keys are a vector of int32 or int64"),
        (replace("users/part_0-keys", np.int64([0, 0])), "has the key 0 twice"),
        (replace("users/part_0-keys", np.int64([0, 1])), "not of partition 0 of 2"),
        (replace("users/part_0-partition_offset", np.int32([0, 1])), "ascending from 0 to 2"),
        (
            replace("users/part_1-partition_offset", np.zeros([1001], np.int32)),
            "from 0 to 1",
        ),
        (replace("users/part_0-values", np.float32([[1.0] * 3])), "it must be"),
        (replace("users/part_0-values", np.float32([[1.0], [2.0]])), "of different dims"),
        (replace("users/part_0-freqs", np.int64([1])), "0-freqs is int64.1., but there are 2 keys"),
        (replace("users/part_0-values", np.int32([[1] * 3] * 2)), "types: .*int32"),
        (replace("users/part_0/Adagrad-values", np.float32([[1.0] * 3])), "but there are 3 keys"),
    ],
)
def test_damage_is_refused(tmp_path, damage, message):
    tensors = deeprec_files.tensors_of("users", random_rows(12, [0, 1, 2]), 2)
    tensors |= deeprec_files.tensors_of("a", random_rows(13, [0]))  # is converted before
    damage(tensors)
    source = deeprec_files.write(tmp_path / "deeprec", tensors)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(ConvertError, match=message):
        convert(source, tmp_path / "ours")
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("how", ["truncated", "altered", "index"])
def test_damaged_files_are_refused(tmp_path, how):
    rows = random_rows(13, range(500))
    source = deeprec_files.write(tmp_path / "deeprec", deeprec_files.tensors_of("users", rows))
    path = tmp_path / ("deeprec.index" if how == "index" else "deeprec.data-00000-of-00001")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data[: len(data) // 2] if how == "truncated" else data)
    with pytest.raises(ConvertError, match="damaged"):
        convert(source, tmp_path / "ours")
    assert not list(tmp_path.glob("ours*"))


def test_negative_keys_have_no_bucket(tmp_path):
    table = fe.get_embedding_variable("users", 3)
    table.upsert([-3, 4], tf.zeros([2, 3]))
    path = tf.train.Checkpoint(users=table).write(str(tmp_path / "ours"))
    with pytest.raises(ConvertError, match="'users' has negative keys, as -3"):
        convert(path, tmp_path / "deeprec", to="deeprec")
    assert not list(tmp_path.glob("deeprec*"))


def test_destination_is_not_overwritten(tmp_path):
    tensors = deeprec_files.tensors_of("users", {1: Row([1.0, 2.0, 3.0])})
    source = deeprec_files.write(tmp_path / "deeprec", tensors)
    convert(source, tmp_path / "ours")
    with pytest.raises(ConvertError, match=r"ours.index' exists"):
        convert(source, tmp_path / "ours")
