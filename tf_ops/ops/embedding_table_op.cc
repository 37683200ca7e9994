#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/shape_functions.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeAndType;
using tensorflow::shape_inference::ShapeHandle;

absl::Status HandleShape(InferenceContext* c) {
  int64_t dim = 0;
  tensorflow::DataType dtype;
  TF_RETURN_IF_ERROR(c->GetAttr("dim", &dim));
  TF_RETURN_IF_ERROR(c->GetAttr("dtype", &dtype));
  c->set_output(0, c->Scalar());
  const ShapeHandle table = c->Matrix(c->UnknownDim(), c->MakeDim(dim));
  c->set_output_handle_shapes_and_types(0, std::vector<ShapeAndType>{{table, dtype}});
  return absl::OkStatus();
}

absl::Status IsInitializedShape(InferenceContext* c) {
  c->set_output(0, c->Scalar());
  return absl::OkStatus();
}

absl::Status LookupShape(InferenceContext* c) {
  ShapeHandle keys, unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &keys));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 1, &unused));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(3), 0, &unused));
  DimensionHandle dim = c->UnknownDim();
  const std::vector<ShapeAndType>* table = c->input_handle_shapes_and_types(0);
  if (table != nullptr && !table->empty() && c->RankKnown(table->at(0).shape)) {
    dim = c->Dim(table->at(0).shape, 1);
  }
  c->set_output(0, c->Matrix(c->Dim(keys, 0), dim));
  c->set_output(1, keys);
  return absl::OkStatus();
}

absl::Status UpsertShape(InferenceContext* c) {
  ShapeHandle keys, values;
  DimensionHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &keys));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 2, &values));
  return c->Merge(c->Dim(keys, 0), c->Dim(values, 0), &unused);
}

absl::Status PrefetchShape(InferenceContext* c) {
  ShapeHandle unused;
  return c->WithRank(c->input(1), 1, &unused);
}

absl::Status EraseShape(InferenceContext* c) {
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &unused));
  c->set_output(0, c->Scalar());
  return absl::OkStatus();
}

absl::Status ExpireShape(InferenceContext* c) {
  ShapeHandle unused;
  for (int i = 1; i < 4; ++i) TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 0, &unused));
  c->set_output(0, c->Scalar());
  return absl::OkStatus();
}

absl::Status MetadataShape(InferenceContext* c) {
  ShapeHandle keys;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &keys));
  c->set_output(0, keys);
  c->set_output(1, keys);
  return absl::OkStatus();
}

absl::Status StatisticsShape(InferenceContext* c) {
  const ShapeHandle statistics = c->Vector(c->UnknownDim());
  c->set_output(0, statistics);
  c->set_output(1, statistics);
  return absl::OkStatus();
}

absl::Status SeedShape(InferenceContext* c) {
  c->set_output(0, c->Scalar());
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("EmbeddingVariableHandle")
    .Output("resource: resource")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Attr("dtype: {float, double, half, bfloat16}")
    .Attr("dim: int")
    .Attr("seed: int = 0")
    .Attr("initializer: {'constant', 'uniform', 'normal', 'truncated_normal', 'debug', 'matrix'}")
    .Attr("initializer_a: float = 0.0")
    .Attr("initializer_b: float = 0.0")
    .Attr("initializer_matrix: string = ''")
    .Attr("admission: {'all', 'counter', 'bloom'} = 'all'")
    .Attr("min_frequency: int = 0")
    .Attr("bloom_counters: int = 0")
    .Attr("bloom_hashes: int = 0")
    .Attr("no_permission_value: float = 0.0")
    .Attr("max_capacity: int = 0")
    .Attr("eviction: {'none', 'lru', 'lfu'} = 'none'")
    .Attr("check_mode: {'error', 'warning', 'ignore'} = 'error'")
    .Attr("storage_path: string = ''")
    .Attr("storage_name: string = ''")
    .Attr("dram_bytes: int = 0")
    .Attr("cache_strategy: {'lru', 'lfu'} = 'lfu'")
    .Attr("frozen: bool = false")
    .Attr("needs_initializer: bool = false")
    .SetIsStateful()
    .SetShapeFn(HandleShape)
    .Doc(R"doc(
Handle of an embedding table without a vocabulary, made when this first runs.

container: resource container; empty: the default one.
shared_name: name of the table. Two handles of one name share the table, and must agree in the rest.
dtype: type of the values.
dim: values of a row, > 0.
seed: of the rows' first values and of the table's hash.
initializer: first value of a row, a function of (seed, key): `constant` a, `uniform` in [a, b),
  `normal` and `truncated_normal` of mean a and standard deviation b, `debug` (the key mod 100000),
  or a row of `matrix`.
initializer_a: see `initializer`.
initializer_b: see `initializer`.
initializer_matrix: bytes of `[rows, dim]` values of `dtype`; a key starts as row `key mod rows`
  (floor modulo). Not a tensor: eager TensorFlow has no attrs of that type.
admission: when a key gets a row: at once (`all`), or after `min_frequency` occurrences, counted
  exactly (`counter`) or in a counting Bloom filter (`bloom`).
min_frequency: see `admission`.
bloom_counters: counters of the Bloom filter.
bloom_hashes: counters that one key uses, 1 to 16.
no_permission_value: what a key that is not admitted reads.
max_capacity: most rows that the table may have; 0: any number.
eviction: row that a full table gives up: none, the one used longest ago, or least often.
check_mode: what a lookup does when a full table refuses keys: an error with their number and no
  change, or zeros with a logged warning, or zeros.
storage_path: folder for rows that DRAM has no room for, where each table has a folder of its own;
  empty: all rows are in DRAM.
storage_name: what that folder is named after; empty: `shared_name`.
dram_bytes: bytes that the table may have in memory, where there is a `storage_path`.
cache_strategy: rows that leave DRAM first: those used longest ago, or least often.
frozen: lookups count and insert nothing, whatever their `insert` says: tables of a SavedModel.
needs_initializer: the table is uninitialized until EmbeddingVariableInitialize,
  EmbeddingVariableRestore or EmbeddingVariableImport has run on it: until then, ops that read rows
  or train them fail. Else, and on the device of a program without servers, it can be used when it
  is made, also where another handle made it.
resource: the handle.
)doc");

REGISTER_OP("EmbeddingVariableGpuHandle")
    .Output("resource: resource")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Attr("dtype: {float, double, half, bfloat16}")
    .Attr("dim: int")
    .Attr("seed: int = 0")
    .Attr("initializer: {'constant', 'uniform', 'normal', 'truncated_normal', 'debug', 'matrix'}")
    .Attr("initializer_a: float = 0.0")
    .Attr("initializer_b: float = 0.0")
    .Attr("initializer_matrix: string = ''")
    .Attr("min_frequency: int = 0")
    .Attr("no_permission_value: float = 0.0")
    .Attr("eviction: {'none', 'lru', 'lfu'} = 'none'")
    .Attr("hbm_bytes: int")
    .Attr("needs_initializer: bool = false")
    .SetIsStateful()
    .SetShapeFn(HandleShape)
    .Doc(R"doc(
Handle of an embedding table without a vocabulary in the memory of a GPU, made when this first runs.

An op of its own, which has no kernel for CPUs: ops on its handle run where the table is.

container: resource container; empty: the default one.
shared_name: name of the table. Two handles of one name share the table, and must agree in the rest.
dtype: type of the values.
dim: values of a row, > 0.
seed: of the rows' first values.
initializer: first value of a row, as EmbeddingVariableHandle has it.
initializer_a: see `initializer`.
initializer_b: see `initializer`.
initializer_matrix: see `initializer`.
min_frequency: occurrences after which a key gets a row; 0: at once.
no_permission_value: what a key that is not admitted reads.
eviction: row that a full bucket gives up: none, the one used longest ago, or least often. With
  `none`, a batch that has no room is an error, and changes nothing.
hbm_bytes: bytes of the GPU's memory that the table may have, among them, where keys are counted
  before they get a row, an eighth for the counts.
needs_initializer: as of EmbeddingVariableHandle.
resource: the handle.
)doc");

REGISTER_OP("EmbeddingVariableInitialize")
    .Input("resource: resource")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Says that a table may be used as it is. Changes no row.

resource: handle of the table.
)doc");

REGISTER_OP("EmbeddingVariableIsInitialized")
    .Input("resource: resource")
    .Output("is_initialized: bool")
    .SetIsStateful()
    .SetShapeFn(IsInitializedShape)
    .Doc(R"doc(
Whether a table may be used: it was initialized or restored, and is not being restored now.

resource: handle of the table.
is_initialized: a scalar.
)doc");

REGISTER_OP("EmbeddingVariableLookup")
    .Input("resource: resource")
    .Input("keys: int64")
    .Input("counts: int32")
    .Input("step: int64")
    .Output("embeddings: dtype")
    .Output("handles: int64")
    .Attr("dtype: {float, double, half, bfloat16}")
    .Attr("insert: bool")
    .SetIsStateful()
    .SetShapeFn(LookupShape)
    .Doc(R"doc(
Stage 4 on a table without a vocabulary: the rows of distinct keys.

resource: handle of the table.
keys: `[n]` distinct keys; any value is legal.
counts: `[n]` occurrences of each key in the batch, >= 0; `[0]`: one each.
step: version of the rows that are found or made; negative: the table's own step counter.
dtype: type of the values.
insert: whether keys are counted, admitted and inserted (training), or nothing is changed: a key
  without a row then reads its first value, or no_permission_value where there is an admission
  filter.
embeddings: `[n, dim]` rows.
handles: `[n]` where the rows are, for EmbeddingVariableApply; -1: nowhere.
)doc");

REGISTER_OP("EmbeddingVariableUpsert")
    .Input("resource: resource")
    .Input("keys: int64")
    .Input("values: dtype")
    .Attr("dtype: {float, double, half, bfloat16}")
    .SetIsStateful()
    .SetShapeFn(UpsertShape)
    .Doc(R"doc(
Sets the values of keys, and inserts those that are missing, whatever the admission filter says.

resource: handle of the table.
keys: `[n]` keys.
values: `[n, dim]` values.
dtype: type of the values.
)doc");

REGISTER_OP("EmbeddingVariablePrefetch")
    .Input("resource: resource")
    .Input("keys: int64")
    .SetIsStateful()
    .SetShapeFn(PrefetchShape)
    .Doc(R"doc(
Brings rows from a disk to DRAM, so that a lookup that comes soon finds them there. Changes no row.

resource: handle of the table.
keys: `[n]` keys; those without a row are passed over.
)doc");

REGISTER_OP("EmbeddingVariableErase")
    .Input("resource: resource")
    .Input("keys: int64")
    .Output("num_erased: int64")
    .SetIsStateful()
    .SetShapeFn(EraseShape)
    .Doc(R"doc(
Removes rows, and the counts of keys that are not admitted.

resource: handle of the table.
keys: `[n]` keys.
num_erased: number of rows that were there.
)doc");

REGISTER_OP("EmbeddingVariableExpire")
    .Input("resource: resource")
    .Input("step: int64")
    .Input("steps_to_live: int64")
    .Input("l2_weight_threshold: double")
    .Output("num_expired: int64")
    .SetIsStateful()
    .SetShapeFn(ExpireShape)
    .Doc(R"doc(
Removes rows that were not used for long, or whose values are small.

resource: handle of the table.
step: the step it is now; negative: the table's own step counter.
steps_to_live: rows last used more than so many steps ago are removed; <= 0: none.
l2_weight_threshold: rows of a smaller L2 norm are removed; <= 0: none.
num_expired: number of rows removed.
)doc");

REGISTER_OP("EmbeddingVariableMetadata")
    .Input("resource: resource")
    .Input("keys: int64")
    .Output("frequencies: int64")
    .Output("versions: int64")
    .SetIsStateful()
    .SetShapeFn(MetadataShape)
    .Doc(R"doc(
How often and when keys were last used in training.

resource: handle of the table.
keys: `[n]` keys.
frequencies: `[n]` occurrences; 0 for a key without a row.
versions: `[n]` step of the last one; -1 for a key without a row.
)doc");

REGISTER_OP("EmbeddingVariableStatistics")
    .Input("resource: resource")
    .Output("names: string")
    .Output("values: int64")
    .SetIsStateful()
    .SetShapeFn(StatisticsShape)
    .Doc(R"doc(
Counters of a table.

resource: handle of the table.
names: `[k]` size, filtered, memory_bytes, index_probes, hits, misses, inserts, refusals,
  not_admitted, evictions, expirations, erasures, which docs/embedding_variable.md explains, and
  demotions, written_back, leaving, cold_gets, cold_hits, cold_reads, cold_bytes_read, cold_puts,
  cold_bytes_put, cold_bytes_written, cold_bytes, which docs/storage_tiers.md explains.
values: `[k]` their values since the table was made.
)doc");

REGISTER_OP("EmbeddingVariableSeed")
    .Input("resource: resource")
    .Output("seed: int64")
    .SetIsStateful()
    .SetShapeFn(SeedShape)
    .Doc(R"doc(
The seed of a table's initializer. A restore brings it back, so it stays with a table that is renamed
or moved to another process.

resource: handle of the table.
seed: of the initializer; the attr `seed` of the handle where nothing was restored.
)doc");

}  // namespace fused_embedding
