// The pairs of naive_lookup.h in device memory.

#ifndef FUSED_EMBEDDING_TESTS_CPP_CUDA_LOOKUP_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_CUDA_LOOKUP_TESTING_H_

#include "tests/cpp/cuda_testing.h"
#include "tests/cpp/naive_lookup.h"

namespace fused_embedding {

template <typename T>
using DevicePairs = PairsOf<T, DeviceArray>;

// Pairs that name no embedding, or no row, at both ends and between those of a case: what a GPU
// must leave out. kept[k] is the position of pair k of the case.
inline LookupCase WithMissingPairs(const LookupCase& in, Random* random,
                                   std::vector<int64_t>* kept) {
  LookupCase mixed = in;
  mixed.unique_idx.clear();
  mixed.row_ids.clear();
  mixed.weights.clear();
  const int32_t num_unique = static_cast<int32_t>(in.embeddings.size());
  const int32_t missing_unique[] = {-1, num_unique, std::numeric_limits<int32_t>::min(),
                                    std::numeric_limits<int32_t>::max()};
  const int64_t missing_rows[] = {-1, in.num_rows, kInt64Min, kInt64Max};
  const auto add = [&](int32_t unique, int64_t row, double weight) {
    mixed.unique_idx.push_back(unique);
    mixed.row_ids.push_back(row);
    if (!in.weights.empty()) mixed.weights.push_back(weight);
  };
  for (size_t k = 0; k <= in.num_pairs(); ++k) {
    for (int64_t n = RandomInt(random, k % in.num_pairs() == 0, 2); n > 0; --n) {
      const bool has_row = RandomBool(random), has_unique = !has_row && RandomBool(random);
      add(has_unique ? 0 : missing_unique[RandomInt(random, 0, 3)],
          has_row ? 0 : missing_rows[RandomInt(random, 0, 3)], 3);
    }
    if (k == in.num_pairs()) break;
    kept->push_back(static_cast<int64_t>(mixed.row_ids.size()));
    add(in.unique_idx[k], in.row_ids[k], in.weight(k));
  }
  return mixed;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_CUDA_LOOKUP_TESTING_H_
