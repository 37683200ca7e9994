#include "tf_ops/core/lookup/rows/pairs.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tf_ops/core/base/thread_blocks.h"

namespace fused_embedding {
namespace {

// Counting sort. `keys` must lie in [0, num_groups).
template <typename Keys>
Status GroupPairs(const Keys& keys, int64_t num_groups, PairGroups* groups) {
  if (num_groups == std::numeric_limits<int64_t>::max()) {
    return ResourceExhausted("cannot group ids into ", num_groups, " rows; use a smaller batch");
  }
  FE_RETURN_IF_ERROR(groups->splits.Allocate(num_groups + 1));
  const Span<int32_t> splits = groups->splits.span();
  std::fill(splits.begin(), splits.end(), 0);
  bool is_sorted = true;
  for (int64_t i = 0; i < keys.size; ++i) {
    is_sorted &= i == 0 || keys[i - 1] <= keys[i];
    ++splits[keys[i] + 1];
  }
  for (int64_t group = 0; group < num_groups; ++group) splits[group + 1] += splits[group];
  groups->is_identity = is_sorted;
  if (is_sorted) return Status();

  FE_RETURN_IF_ERROR(groups->order.Allocate(keys.size));
  const Span<int32_t> order = groups->order.span();
  // splits[group] serves as the group's write position, which leaves it at the group's end ...
  for (int64_t i = 0; i < keys.size; ++i) order[splits[keys[i]]++] = static_cast<int32_t>(i);
  // ... so that the splits have moved by one group.
  for (int64_t group = num_groups; group > 0; --group) splits[group] = splits[group - 1];
  splits[0] = 0;
  return Status();
}

// The same by all threads: each has a range of the groups, and sorts the pairs that belong there.
class ParallelGroups {
 public:
  ParallelGroups(const CpuExec& exec, Span<const int32_t> keys, int64_t num_groups)
      : blocks_(exec, keys.size, keys.size), keys_(keys), num_groups_(num_groups) {}

  Status Run(PairGroups* groups) {
    FE_RETURN_IF_ERROR(groups->splits.Allocate(num_groups_ + 1));
    FE_RETURN_IF_ERROR(groups->order.Allocate(keys_.size));
    FE_RETURN_IF_ERROR(by_part_.Deal(blocks_, [&](int64_t i) { return PartOf(keys_[i]); }));
    const Span<int32_t> splits = groups->splits.span(), order = groups->order.span();
    blocks_.ForEach([&](int64_t part) { SortPart(part, splits, order); });
    splits[num_groups_] = static_cast<int32_t>(keys_.size);
    return Status();
  }

 private:
  int64_t PartOf(int64_t group) const { return group * blocks_.num() / num_groups_; }
  int64_t FirstGroup(int64_t part) const {
    return (part * num_groups_ + blocks_.num() - 1) / blocks_.num();
  }

  // As GroupPairs, of the part's groups and pairs.
  void SortPart(int64_t part, Span<int32_t> splits, Span<int32_t> order) {
    const int64_t first = FirstGroup(part), end = FirstGroup(part + 1);
    const Span<const int32_t> positions = by_part_.all();
    std::fill(splits.begin() + first, splits.begin() + end, 0);
    for (int64_t k = by_part_.begin(part); k < by_part_.end(part); ++k) {
      ++splits[keys_[positions[k]]];
    }
    int32_t next = static_cast<int32_t>(by_part_.begin(part));
    for (int64_t group = first; group < end; ++group) next += std::exchange(splits[group], next);
    // A split is the write position of its group, and goes back by the group's size after that.
    for (int64_t k = by_part_.begin(part); k < by_part_.end(part); ++k) {
      order[splits[keys_[positions[k]]]++] = positions[k];
    }
    for (int64_t group = end - 1; group > first; --group) splits[group] = splits[group - 1];
    if (first < end) splits[first] = static_cast<int32_t>(by_part_.begin(part));
  }

  const ThreadBlocks blocks_;
  Span<const int32_t> keys_;
  const int64_t num_groups_;
  PositionsByPart<int32_t> by_part_;
};

// So many threads share the work of so many pairs. To deal them out takes as long as to sort them:
// two threads lose.
constexpr int64_t kMinParallelPairs = 32768;
constexpr int kMinThreads = 4;

}  // namespace

Status BadPermutation(int64_t entry, int64_t shard, int64_t position, bool occurs_twice) {
  return InvalidArgument("partition_permutation[", entry, "] = (", shard, ", ", position,
                         occurs_twice ? ") occurs twice" : ") is no row of emb_shards",
                         "; pass the one that PartitionWithPermutation returned");
}

Status RowDecreases(const char* name, int64_t position, int64_t row, int64_t previous) {
  return InvalidArgument("rows must be non-negative and non-decreasing, but ", name, "[", position,
                         ", 0] = ", row, " follows ", previous, "; call tf.sparse.reorder first");
}

Status CheckNumPairs(int64_t num_pairs) {
  if (num_pairs <= std::numeric_limits<int32_t>::max()) return Status();
  return InvalidArgument("at most ", std::numeric_limits<int32_t>::max(),
                         " ids can be looked up at once, got ", num_pairs, "; use a smaller batch");
}

Status NoSuchUnique(int64_t position, int64_t unique, int64_t num_unique) {
  return InvalidArgument("unique_idxs[", position, "] = ", unique, " is outside [0, ", num_unique,
                         "), the number of embeddings");
}

Status NoSuchRowId(const char* name, int64_t position, int64_t row, int64_t num_rows) {
  return InvalidArgument(name, "[", position, ", 0] = ", row,
                         " is outside [0, num_rows = ", num_rows,
                         "); num_rows is sp_dense_shape[0]");
}

template <typename T>
Status CheckPairSizes(const Pairs<T>& pairs) {
  if (pairs.unique_idx.size != pairs.num_pairs()) {
    return InvalidArgument("unique_idxs must have one entry for each of the ", pairs.num_pairs(),
                           " rows of the indices, but has ", pairs.unique_idx.size);
  }
  if (!pairs.weights.empty() && pairs.weights.size != pairs.num_pairs()) {
    return InvalidArgument("there must be one weight for each of the ", pairs.num_pairs(),
                           " ids, got ", pairs.weights.size);
  }
  if (!pairs.is_zero_row.empty() && pairs.is_zero_row.size != pairs.num_rows) {
    return InvalidArgument("is_row_empty must have one entry for each of the ", pairs.num_rows,
                           " rows, but has ", pairs.is_zero_row.size);
  }
  return CheckNumPairs(pairs.num_pairs());
}

template <typename T>
Status CheckPairs(const Pairs<T>& pairs) {
  FE_RETURN_IF_ERROR(CheckPairSizes(pairs));
  for (int64_t i = 0; i < pairs.unique_idx.size; ++i) {
    const int64_t u = pairs.unique_idx[i];
    if (u < 0 || u >= pairs.rows.size) return NoSuchUnique(i, u, pairs.rows.size);
  }
  return Status();
}

Status CheckRowIds(const RowIds& row_ids, int64_t num_rows) {
  FE_RETURN_IF_ERROR(CheckNumPairs(row_ids.size));
  for (int64_t i = 0; i < row_ids.size; ++i) {
    if (row_ids[i] < 0 || row_ids[i] >= num_rows) {
      return NoSuchRowId(row_ids.name, i, row_ids[i], num_rows);
    }
  }
  return Status();
}

Status GroupByRow(const RowIds& row_ids, int64_t num_rows, PairGroups* groups) {
  return GroupPairs(row_ids, num_rows, groups);
}

Status GroupByUnique(const CpuExec& exec, Span<const int32_t> unique_idx, int64_t num_unique,
                     PairGroups* groups) {
  const bool is_shared = exec.num_threads() >= kMinThreads && unique_idx.size >= kMinParallelPairs;
  // In order, they are counted and no more.
  if (is_shared && !std::is_sorted(unique_idx.begin(), unique_idx.end())) {
    return ParallelGroups(exec, unique_idx, num_unique).Run(groups);
  }
  return GroupPairs(unique_idx, num_unique, groups);
}

#define FE_INSTANTIATE(T)                          \
  template Status CheckPairSizes(const Pairs<T>&); \
  template Status CheckPairs(const Pairs<T>&);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
