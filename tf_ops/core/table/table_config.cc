#include "tf_ops/core/table/table_config.h"

#include <algorithm>
#include <limits>

namespace fused_embedding {
namespace {

Status CheckLayout(const RowLayout& layout) {
  if (layout.dim < 1 || layout.dim > kMaxDim) {
    return InvalidArgument("embedding_dim must be in [1, ", kMaxDim, "], got ", layout.dim);
  }
  if (!layout.slots.empty()) {
    return InvalidArgument("a table is made without slots, got ", layout.slots.size(),
                           "; optimizers add theirs");
  }
  return Status();
}

Status CheckSlot(const Slot& slot) {
  if (slot.width >= 1 && slot.width <= kMaxDim) return Status();
  return InvalidArgument("slot ", slot.name, " must have a width in [1, ", kMaxDim, "], got ",
                         slot.width);
}

Status CheckCapacity(const TableConfig& config) {
  if (config.max_capacity < 0) {
    return InvalidArgument("max_capacity must be a number of rows, or 0 for no bound, got ",
                           config.max_capacity);
  }
  if (config.eviction != EvictionPolicy::kNone && config.max_capacity == 0) {
    return InvalidArgument("an eviction policy needs max_capacity > 0: only a full table evicts");
  }
  const int64_t n = config.num_shards;
  if (n < 0 || n > kMaxShards || (n & (n - 1)) != 0) {
    return InvalidArgument("num_shards must be a power of two up to ", kMaxShards,
                           ", or 0 for the default, got ", n);
  }
  if (config.max_capacity > 0 && n > config.max_capacity) {
    return InvalidArgument("num_shards = ", n,
                           " must not exceed max_capacity = ", config.max_capacity,
                           ": a shard would have no row");
  }
  return Status();
}

}  // namespace

Status CheckTableConfig(const TableConfig& config) {
  FE_RETURN_IF_ERROR(CheckLayout(config.layout));
  FE_RETURN_IF_ERROR(CheckAdmission(config.admission));
  FE_RETURN_IF_ERROR(CheckCapacity(config));
  if (config.storage.open && config.max_capacity > 0) {
    return InvalidArgument("a table above a cold store has no max_capacity, got ",
                           config.max_capacity, ": leave one of them out");
  }
  return CheckInitializer(config.initializer, config.layout);
}

Status FindMissingSlots(const RowLayout& layout, Span<const Slot> slots,
                        std::vector<Slot>* missing) {
  for (const Slot& slot : slots) {
    const auto same = std::find_if(layout.slots.begin(), layout.slots.end(),
                                   [&](const Slot& other) { return other.name == slot.name; });
    if (same == layout.slots.end()) {
      FE_RETURN_IF_ERROR(CheckSlot(slot));
      missing->push_back(slot);
    } else if (same->width != slot.width) {
      return InvalidArgument("slot ", slot.name, " has width ", same->width, " in this table, not ",
                             slot.width, "; give the optimizer another name");
    }
  }
  return Status();
}

bool RefusesRows(const TableConfig& config) {
  return config.max_capacity > 0 && config.eviction == EvictionPolicy::kNone &&
         config.check_mode == CheckMode::kError;
}

int64_t CapacityOfShard(const TableConfig& config, int64_t shard) {
  return config.max_capacity / config.num_shards +
         (shard < config.max_capacity % config.num_shards ? 1 : 0);
}

Status CheckFits(const TableConfig& config, const std::string& what,
                 Span<const int64_t> num_rows_of_shard) {
  if (!RefusesRows(config)) return Status();
  int64_t num_rows = 0, num_refused = 0;
  for (int64_t s = 0; s < num_rows_of_shard.size; ++s) {
    num_rows += num_rows_of_shard[s];
    num_refused += std::max<int64_t>(num_rows_of_shard[s] - CapacityOfShard(config, s), 0);
  }
  if (num_refused == 0) return Status();
  return ResourceExhausted(what, " has ", num_rows,
                           " rows for a table of max_capacity = ", config.max_capacity, ", whose ",
                           config.num_shards, " shards have no room for ", num_refused,
                           " of them; raise it, or choose an eviction policy");
}

int64_t RestoredAtOnce(const TableConfig& config) {
  if (config.max_capacity == 0) return std::numeric_limits<int64_t>::max();
  return std::max<int64_t>(config.max_capacity / config.num_shards, 1);
}

int64_t DefaultShards(int64_t max_capacity) {
  constexpr int64_t kDefaultShards = 16;
  constexpr int64_t kMinRowsOfShard = 2048;  // of a bounded table: its shards fill up unevenly
  int64_t num_shards = kDefaultShards;
  while (max_capacity > 0 && num_shards > 1 && max_capacity / num_shards < kMinRowsOfShard) {
    num_shards /= 2;
  }
  return num_shards;
}

}  // namespace fused_embedding
