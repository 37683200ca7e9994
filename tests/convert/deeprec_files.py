"""Writes checkpoints as DeepRec does, from the facts in docs/migration/deeprec.md; nothing of ours.

Keys lie bucket by bucket, `key % 1000`, ascending in a bucket.
"""

import dataclasses

import numpy as np
import tensorflow as tf

NUM_BUCKETS = 1000


@dataclasses.dataclass
class Row:
    """A key's embedding, slots by name as `Adam_1`, frequency and version."""

    value: list
    slots: dict = dataclasses.field(default_factory=dict)
    frequency: int = 1
    version: int = 0


def random_rows(seed, keys, dim=3, slots=("Adagrad",)):
    """Row by key."""
    rng = np.random.default_rng(seed)
    return {
        int(key): Row(
            rng.normal(size=dim).tolist(),
            {slot: rng.random(dim).tolist() for slot in slots},
            int(rng.integers(1, 100)),
            int(rng.integers(0, 50)),
        )
        for key in keys
    }


def by_bucket(keys):
    """Keys in the order of a checkpoint, and the 1001 offsets of the buckets."""
    ordered, offsets = [], [0]
    for bucket in range(NUM_BUCKETS):
        ordered += sorted(key for key in keys if key % NUM_BUCKETS == bucket)
        offsets.append(len(ordered))
    return ordered, np.array(offsets, np.int32)


def tensors_of_part(name, rows, any_row, filtered=(), recorded=True, key_dtype=np.int64):
    """The 9 tensors of one table or one of its partitions, and those of its slots.

    any_row: has the dim and the slots of all. filtered: `(frequency, version)` by key. recorded:
    whether frequencies and versions were.
    """
    filtered = dict(filtered)
    keys, offsets = by_bucket(rows)
    filtered_keys, filtered_offsets = by_bucket(filtered)
    nothing = np.zeros([0], np.int64)
    shared = {
        "keys": np.array(keys, key_dtype),
        "freqs": np.int64([rows[key].frequency for key in keys]) if recorded else nothing,
        "versions": np.int64([rows[key].version for key in keys]) if recorded else nothing,
        "keys_filtered": np.array(filtered_keys, key_dtype),
        "freqs_filtered": np.int64([filtered[key][0] for key in filtered_keys]),
        "versions_filtered": np.int64([filtered[key][1] for key in filtered_keys]),
        "partition_offset": offsets,
        "partition_filter_offset": filtered_offsets,
    }
    dim = len(any_row.value)
    tensors = _named(name, shared, [rows[key].value for key in keys], dim)
    for slot in any_row.slots:
        values = [rows[key].slots[slot] for key in keys]
        tensors |= _named(f"{name}/{slot}", shared, values, dim)
    return tensors


def _named(name, shared, values, dim):
    columns = shared | {"values": np.array(values, np.float32).reshape(-1, dim)}
    return {f"{name}-{column}": array for column, array in columns.items()}


def tensors_of(name, rows, num_parts=1, filtered=(), **options):
    """Tensors of a table; with several partitions each has the keys `key % 1000 % num_parts`."""
    any_row = next(iter(rows.values()))
    if num_parts == 1:
        return tensors_of_part(name, rows, any_row, filtered, **options)
    tensors = {}
    for part in range(num_parts):
        own_rows, own_filtered = (
            {key: one for key, one in dict(of).items() if key % NUM_BUCKETS % num_parts == part}
            for of in (rows, filtered)
        )
        tensors |= tensors_of_part(
            f"{name}/part_{part}", own_rows, any_row, own_filtered, **options
        )
    return tensors


def incremental_tensors(name, rows):
    """What changed in a table: the tensors of an incremental checkpoint, those of slots too."""
    keys, offsets = by_bucket(rows)
    shared = {
        "sparse_incr_keys": np.int64(keys),
        "sparse_incr_freqs": np.int64([rows[key].frequency for key in keys]),
        "sparse_incr_versions": np.int64([rows[key].version for key in keys]),
        "incr_partition_offset": offsets,
    }
    columns = {name: [rows[key].value for key in keys]}
    for slot in next(iter(rows.values())).slots:
        columns[f"{name}/{slot}"] = [rows[key].slots[slot] for key in keys]
    tensors = {}
    for base, values in columns.items():
        tensors |= {f"{base}-{column}": array for column, array in shared.items()}
        tensors[f"{base}-sparse_incr_values"] = np.float32(values)
    return tensors


def write(prefix, tensors):
    """Writes a checkpoint of these tensors; returns its prefix."""
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(tensor) for tensor in tensors.values()],
    )
    return str(prefix)


def read(prefix):
    """All tensors of a checkpoint."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_same_checkpoint(got, want):
    """The same names, types, shapes and bytes."""
    assert got.keys() == want.keys()
    for name in want:
        one, other = np.asarray(got[name]), np.asarray(want[name])
        assert (one.dtype, one.shape) == (other.dtype, other.shape), name
        assert one.tobytes() == other.tobytes(), name
