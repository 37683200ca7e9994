"""Faults to seed: one changed line each, drawn from the lines of every room (docs/testing.md).

A fault is found by its line, so that it may be in another file, or further down, at another commit.
Left out of the draw were changes that no result depends on: sizes of buffers, prefetch distances.
"""

import pathlib
from typing import NamedTuple


class Fault(NamedTuple):
    """One changed line.

    Attributes:
        room: Where it is today: of the Python package, or of tf_ops.
        old: A part of a line that is in one file alone, once.
        new: What takes its place.
    """

    room: str
    old: str
    new: str


PYTHON = (
    Fault("ops", "return (table.job, table.task or 0) !=", "return (table.job, table.task) !="),
    Fault(
        "ops",
        "static_shape.as_list() if static_shape.rank is not None",
        "static_shape.as_list() if static_shape.rank is None",
    ),
    Fault("variable", "or size < MIN_DRAM_BYTES", "or size <= MIN_DRAM_BYTES"),
    Fault("variable", "not 0 < probability < 1", "not 0 < probability <= 1"),
    Fault("lookup", "shard.dtype == first.dtype and same_rows", "shard.dtype == first.dtype"),
    Fault(
        "lookup",
        "ids.weights is not None and ids.weights.dtype != shards",
        "ids.weights is None and ids.weights.dtype != shards",
    ),
    Fault("lookup", "return counts - tf.where(is_default", "return counts + tf.where(is_default"),
    Fault("checkpoint", "or trackable.partition.count == 1:", "or trackable.partition.count != 1:"),
    Fault("train", "prefix, count = name, 0", "prefix, count = name, 1"),
    Fault("serving", "num_missing > 0, num_missing", "num_missing > 1, num_missing"),
    Fault("serving", "there = _positions_of(rows >= 0)", "there = _positions_of(rows < 0)"),
    Fault("convert", "_MAX_COUNTER = 2**32 - 1", "_MAX_COUNTER = 2**32 - 2"),
    Fault(
        "keras",
        "tf.cast(tf.convert_to_tensor(optimizer.iterations), tf.float64) + 1",
        "tf.cast(tf.convert_to_tensor(optimizer.iterations), tf.float64) + 2",
    ),
    Fault(
        "keras",
        "if ids.shape.rank is None or ids.shape.rank < 2:",
        "if ids.shape.rank is None or ids.shape.rank <= 2:",
    ),
    Fault(
        "columns",
        "if not isinstance(lookup, Column):",
        "if isinstance(lookup, Column):",
    ),
    Fault(
        "doors",
        "capacity = self.max_capacity or num_embeddings",
        "capacity = num_embeddings or self.max_capacity",
    ),
    Fault("contrib", "if not bucket_size >= 1:", "if not bucket_size > 1:"),
    Fault(
        "inspection",
        "is_missed = self._reuse.distance >= rows * self.rate",
        "is_missed = self._reuse.distance > rows * self.rate",
    ),
    Fault(
        "compat",
        'stock_signatures.is_composed(params) or kwargs.get("blocknums") is not None',
        "stock_signatures.is_composed(params)",
    ),
    Fault("demo", "if self._folder is not None:", "if self._folder is None:"),
)

CPP = (
    Fault(
        "core/base",
        "const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u",
        "const bool is_nan = (bits & 0x7fffffffu) >= 0x7f800000u",
    ),
    Fault("core/base", "const double at_infinity = y > 0", "const double at_infinity = y < 0"),
    Fault("core/checkpoint", "num_kept_ - table_->size()", "num_kept_ + table_->size()"),
    Fault("core/checkpoint", "return present.count(key) > 0", "return present.count(key) >= 0"),
    Fault(
        "core/lookup", "u = 0; u < table.unique.num_unique", "u = 1; u < table.unique.num_unique"
    ),
    Fault("core/lookup", "std::max(num_ids[row], 0)", "std::max(num_ids[row], 1)"),
    Fault(
        "core/lookup",
        "return id < 0 || id / num_shards >= shard_rows[shard] ? -1 : shard;",
        "return id < 0 || id / num_shards > shard_rows[shard] ? -1 : shard;",
    ),
    Fault(
        "core/lookup",
        "PruneRule rule{prune, prune && prune_weights}",
        "PruneRule rule{prune, prune || prune_weights}",
    ),
    Fault(
        "core/optimizer",
        "Store(Load(value[d]) + change, &value[d])",
        "Store(Load(value[d]) - change, &value[d])",
    ),
    Fault(
        "core/optimizer",
        "return learning_rate_ / (std::sqrt(*accumulator) + epsilon_)",
        "return learning_rate_ / std::sqrt(*accumulator + epsilon_)",
    ),
    Fault(
        "core/storage",
        "(errno == ENOENT || errno == ENOTDIR)",
        "(errno == ENOENT && errno == ENOTDIR)",
    ),
    Fault(
        "core/storage",
        "static_cast<uint64_t>(key) ^ (uint64_t{1} << 63)",
        "static_cast<uint64_t>(key) ^ (uint64_t{1} << 62)",
    ),
    Fault(
        "core/table",
        "(handle & kNoRow) < rows_.slab().num_rows()",
        "(handle & kNoRow) <= rows_.slab().num_rows()",
    ),
    Fault(
        "core/table",
        "if (row == kNoRow) row = filtered_.Insert",
        "if (row != kNoRow) row = filtered_.Insert",
    ),
    Fault(
        "core/table",
        "if (size == 0 || size == num_keys) return Status();",
        "if (size == 0 || size >= num_keys) return Status();",
    ),
    Fault(
        "c_api",
        "if (column.table_number < 0 || column.table_number >= in.num_tables)",
        "if (column.table_number < 0 || column.table_number > in.num_tables)",
    ),
    Fault(
        "kernels",
        "top_grad.dims() != 2 || shards[0].dims() != 2 ||",
        "top_grad.dims() != 2 && shards[0].dims() != 2 ||",
    ),
    Fault(
        "kernels",
        "handle.dtype() != tensorflow::DT_RESOURCE || handle.NumElements() != 1",
        "handle.dtype() != tensorflow::DT_RESOURCE || handle.NumElements() < 1",
    ),
    Fault("ops", "num_partitions = c->num_inputs() - 1", "num_partitions = c->num_inputs()"),
    Fault(
        "ops",
        "if (c->Rank(dense_shape) < 2) {",
        "if (c->Rank(dense_shape) < 1) {",
    ),
)

# The faults, their folder and the suffixes of its files, by the first letter of their names.
KINDS = {"P": (PYTHON, "python", {".py"}), "C": (CPP, "tf_ops", {".h", ".cc"})}


def lines_of(root: pathlib.Path, kind: str, fault: Fault) -> list[tuple[pathlib.Path, int]]:
    """Files and numbers of the lines of a checkout that have what `fault` changes."""
    _, folder, suffixes = KINDS[kind]
    found = []
    for path in sorted((root / folder).rglob("*")):
        if path.suffix in suffixes and path.is_file():
            lines = path.read_text().split("\n")
            found += [(path, n) for n, line in enumerate(lines, 1) if fault.old in line]
    return found
