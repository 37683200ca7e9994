// Batches of the v1 lookup's first half, and their results on the CPU.

#ifndef FUSED_EMBEDDING_TESTS_CPP_PRE_LOOKUP_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_PRE_LOOKUP_TESTING_H_

#include <vector>

#include "tests/cpp/partition_testing.h"
#include "tf_ops/core/lookup/stages/pre_lookup.h"

namespace fused_embedding {

struct PreLookupResult {
  std::vector<Ints> ids, indices;  // [P]
  std::vector<int32_t> flags;
};

struct PreLookupBatch {
  Ints ids, rows, shard_rows;
  int64_t num_rows = 0;
  int64_t default_id = -1;
  bool prune = true, fill = true;
  PartitionStrategy strategy = PartitionStrategy::kDiv;

  // Columns 100, 101 ...
  Array<int64_t> Indices() const {
    Array<int64_t> indices(2 * static_cast<int64_t>(rows.size()));
    for (size_t i = 0; i < rows.size(); ++i) {
      indices[2 * static_cast<int64_t>(i)] = rows[i];
      indices[2 * static_cast<int64_t>(i) + 1] = 100 + static_cast<int64_t>(i);
    }
    return indices;
  }

  PreLookupInput Input(Span<const int64_t> id_values, Span<const int64_t> indices) const {
    PreLookupInput in;
    in.pairs.ids = id_values;
    in.pairs.indices = indices;
    in.pairs.num_rows = num_rows;
    in.pairs.default_id = default_id;
    in.pairs.prune = prune;
    in.pairs.fill = fill;
    in.shard_rows = AsSpan(shard_rows);
    in.strategy = strategy;
    return in;
  }

  int64_t num_flags() const { return num_rows + static_cast<int64_t>(ids.size()); }
};

inline Status PreLookup(const PreLookupBatch& batch, PreLookupResult* result) {
  const Array<int64_t> ids = Array<int64_t>::Of(batch.ids), indices = batch.Indices();
  const PreLookupInput in = batch.Input(ids.view(), indices.view());
  *result = {};
  result->flags.assign(static_cast<size_t>(batch.num_flags()), -7);
  Ints shard_sizes(batch.shard_rows.size(), -7);
  PreLookupPlan plan;
  FE_RETURN_IF_ERROR(PlanPreLookup(in, AsSpan(result->flags), AsSpan(shard_sizes), &plan));
  std::vector<Span<int64_t>> id_spans, index_spans;
  for (const int64_t size : shard_sizes) result->ids.emplace_back(size, -7);
  for (const int64_t size : shard_sizes) result->indices.emplace_back(2 * size, -7);
  for (Ints& shard : result->ids) id_spans.push_back(AsSpan(shard));
  for (Ints& shard : result->indices) index_spans.push_back(AsSpan(shard));
  const int64_t num_shards = in.shard_rows.size;
  RunPreLookup(in, plan, {id_spans.data(), num_shards}, {index_spans.data(), num_shards});
  return Status();
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_PRE_LOOKUP_TESTING_H_
