#include "tf_ops/core/lookup/unique.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "tf_ops/core/base/hash.h"

namespace fused_embedding {
namespace {

// Below this many ids a second thread costs more than it brings.
constexpr int64_t kMinParallelIds = 32768;

uint64_t HashId(int64_t id) { return Mix64(static_cast<uint64_t>(id)); }

// Open addressing over positions, not ids: 4 or 8 bytes a slot and no reserved id. At most half
// full, so that probe sequences stay short.
template <typename Index>
class PositionTable {
 public:
  Status Init(int64_t max_entries) {
    int64_t capacity = 16;
    while (capacity < 2 * max_entries) capacity *= 2;
    mask_ = static_cast<uint64_t>(capacity - 1);
    FE_RETURN_IF_ERROR(slots_.Allocate(capacity));
    std::fill(slots_.span().begin(), slots_.span().end(), kFree);
    return Status();
  }

  // The position stored for the id with this hash; stores `position` when there is none.
  // `is_same(p)` tells whether position p has the id sought, which `position` must have.
  template <typename IsSame>
  Index FindOrInsert(uint64_t hash, Index position, const IsSame& is_same) {
    for (uint64_t slot = hash & mask_;; slot = (slot + 1) & mask_) {
      Index& stored = slots_[static_cast<int64_t>(slot)];
      // Whether an id is new cannot be predicted: a mask instead of a branch, -1 where it is free.
      const Index is_free = stored >> (8 * sizeof(Index) - 1);
      const Index candidate = (position & is_free) | (stored & ~is_free);
      if (!is_same(candidate)) continue;
      stored = candidate;
      return candidate;
    }
  }

 private:
  static constexpr Index kFree = -1;  // all bits set
  Buffer<Index> slots_;
  uint64_t mask_ = 0;
};

template <typename Id, typename Index>
Status UniqueOnOneThread(Span<const Id> ids, Span<Index> unique_idx, UniquePlan<Id>* plan) {
  PositionTable<Index> table;
  FE_RETURN_IF_ERROR(table.Init(ids.size));
  const Span<Id> unique_ids = plan->unique_ids.span();
  int64_t num_unique = 0;
  for (int64_t i = 0; i < ids.size; ++i) {
    const Id id = ids[i];
    const Index next = static_cast<Index>(num_unique);
    unique_ids[num_unique] = id;  // stays if the id is new
    unique_idx[i] = table.FindOrInsert(HashId(id), next,
                                       [&](Index position) { return unique_ids[position] == id; });
    num_unique += unique_idx[i] == next;
  }
  plan->num_unique = num_unique;
  return Status();
}

// Each part of the hash space belongs to one thread, which sees its ids in input order and writes
// the position of each id's first occurrence. Numbering the first occurrences in input order then
// gives the same result as one thread does.
template <typename Id, typename Index>
Status UniqueInParallel(const CpuExec& exec, Span<const Id> ids, Span<Index> unique_idx,
                        UniquePlan<Id>* plan) {
  const int64_t num_parts = exec.num_threads();
  std::atomic<bool> out_of_memory{false};
  const int64_t part_ns = 2 * ids.size;
  exec.ParallelFor(num_parts, part_ns, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const auto is_mine = [&](uint64_t hash) {
        return static_cast<int64_t>((hash >> 32) % static_cast<uint64_t>(num_parts)) == part;
      };
      int64_t num_mine = 0;
      for (const Id id : ids) num_mine += is_mine(HashId(id));
      PositionTable<Index> first_position;
      if (!first_position.Init(num_mine).ok()) {
        out_of_memory = true;
        return;
      }
      for (int64_t i = 0; i < ids.size; ++i) {
        const uint64_t hash = HashId(ids[i]);
        if (!is_mine(hash)) continue;
        unique_idx[i] = first_position.FindOrInsert(
            hash, static_cast<Index>(i), [&](Index stored) { return ids[stored] == ids[i]; });
      }
    }
  });
  if (out_of_memory) return ResourceExhausted("no memory to find the unique of ", ids.size, " ids");
  int64_t num_unique = 0;
  for (int64_t i = 0; i < ids.size; ++i) {
    const bool is_first = unique_idx[i] == static_cast<Index>(i);
    if (is_first) plan->unique_ids[num_unique] = ids[i];
    // An earlier position already holds its number.
    unique_idx[i] = is_first ? static_cast<Index>(num_unique++) : unique_idx[unique_idx[i]];
  }
  plan->num_unique = num_unique;
  return Status();
}

}  // namespace

template <typename Id, typename Index>
Status PlanUnique(const CpuExec& exec, Span<const Id> ids, Span<Index> unique_idx,
                  UniquePlan<Id>* plan) {
  if (ids.size > std::numeric_limits<Index>::max()) {
    return InvalidArgument("cannot number ", ids.size, " ids with ", 8 * sizeof(Index),
                           "-bit indices; use CounterType=int64 or a smaller batch");
  }
  FE_RETURN_IF_ERROR(plan->unique_ids.Allocate(ids.size));
  if (exec.num_threads() > 1 && ids.size >= kMinParallelIds) {
    return UniqueInParallel(exec, ids, unique_idx, plan);
  }
  return UniqueOnOneThread(ids, unique_idx, plan);
}

template <typename Id, typename Index>
void RunUnique(const UniquePlan<Id>& plan, Span<const Index> unique_idx, Span<Id> unique_ids,
               Span<Index> counts) {
  std::copy_n(plan.unique_ids.span().begin(), plan.num_unique, unique_ids.begin());
  std::fill(counts.begin(), counts.end(), 0);
  for (const Index u : unique_idx) ++counts[u];
}

#define FE_INSTANTIATE(Id, Index)                                                           \
  template Status PlanUnique(const CpuExec&, Span<const Id>, Span<Index>, UniquePlan<Id>*); \
  template void RunUnique(const UniquePlan<Id>&, Span<const Index>, Span<Id>, Span<Index>);
FE_INSTANTIATE(int32_t, int32_t)
FE_INSTANTIATE(int32_t, int64_t)
FE_INSTANTIATE(int64_t, int32_t)
FE_INSTANTIATE(int64_t, int64_t)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
