// Stage 3 on the CPU, which the GPU must equal.

#ifndef FUSED_EMBEDDING_TESTS_CPP_PARTITION_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_PARTITION_TESTING_H_

#include <vector>

#include "tests/cpp/core_testing.h"
#include "tf_ops/core/lookup/stages/partition.h"

namespace fused_embedding {

using Ints = std::vector<int64_t>;

struct PartitionResult {
  std::vector<int32_t> permutation;
  std::vector<Ints> shards;
};

constexpr PartitionStrategy kStrategies[] = {PartitionStrategy::kDiv, PartitionStrategy::kMod,
                                             PartitionStrategy::kModEv, PartitionStrategy::kHash};

inline Status Partition(const Ints& ids, const Ints& shard_rows, PartitionStrategy strategy,
                        PartitionResult* result) {
  const Array<int64_t> id_array = Array<int64_t>::Of(ids);
  const Array<int64_t> rows = Array<int64_t>::Of(shard_rows);
  const PartitionInput in{id_array.view(), rows.view(), strategy};
  Array<int32_t> permutation(2 * id_array.size(), -7);
  Array<int64_t> shard_sizes(rows.size(), -7);
  FE_RETURN_IF_ERROR(PlanPartition(in, permutation.span(), shard_sizes.span()));
  std::vector<Array<int64_t>> shards;
  Array<Span<int64_t>> spans(rows.size());
  for (int64_t p = 0; p < rows.size(); ++p) {
    shards.emplace_back(shard_sizes[p], -7);
    spans[p] = shards.back().span();
  }
  RunPartition(in, permutation.view(), spans.view());
  result->permutation = permutation.values();
  result->shards.clear();
  for (const Array<int64_t>& shard : shards) result->shards.push_back(shard.values());
  return Status();
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_PARTITION_TESTING_H_
