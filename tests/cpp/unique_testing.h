// Stage 2 as its definition reads, for the CPU and the GPU.

#ifndef FUSED_EMBEDDING_TESTS_CPP_UNIQUE_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_UNIQUE_TESTING_H_

#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/cpp/core_testing.h"

namespace fused_embedding {

template <typename Id, typename Index>
struct UniqueResult {
  std::vector<Id> ids;
  std::vector<Index> idx, counts;
  bool operator==(const UniqueResult& other) const {
    return ids == other.ids && idx == other.idx && counts == other.counts;
  }
};

template <typename Id, typename Index = int32_t>
UniqueResult<Id, Index> NaiveUnique(const std::vector<Id>& ids) {
  UniqueResult<Id, Index> result;
  std::unordered_map<Id, Index> numbers;
  for (const Id id : ids) {
    const auto [entry, is_new] = numbers.emplace(id, static_cast<Index>(numbers.size()));
    if (is_new) {
      result.ids.push_back(id);
      result.counts.push_back(0);
    }
    result.idx.push_back(entry->second);
    ++result.counts[static_cast<size_t>(entry->second)];
  }
  return result;
}

using IdAndIndexTypes = ::testing::Types<std::pair<int32_t, int32_t>, std::pair<int32_t, int64_t>,
                                         std::pair<int64_t, int32_t>, std::pair<int64_t, int64_t>>;

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_UNIQUE_TESTING_H_
