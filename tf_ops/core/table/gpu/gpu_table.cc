#include "tf_ops/core/table/gpu/gpu_table.h"

#include <utility>

#include "tf_ops/core/table/table_config.h"

namespace fused_embedding {
namespace {

constexpr int64_t kMaxBuckets = int64_t{1} << 31;  // a bucket's number has 32 bits

int64_t RowBytes(const RowLayout& layout) {
  return (layout.row_bytes() - layout.value_offset() + 15) / 16 * 16;
}

int64_t BytesOfBucket(const RowLayout& layout) {
  return kEntries * (kEntryBytes + RowBytes(layout));
}

Status CheckCounts(const GpuTableConfig& config) {
  if (config.min_frequency < 0) {
    return InvalidArgument("min_frequency must not be negative, got ", config.min_frequency);
  }
  if (config.min_frequency > 0 && config.eviction == GpuEviction::kGiven) {
    return InvalidArgument("min_frequency must be 0 where scores are given, got ",
                           config.min_frequency, "; choose another eviction");
  }
  RowLayout counts;
  counts.dim = 1;
  if (config.min_frequency > 0 && config.max_count_bytes < BytesOfBucket(counts)) {
    return InvalidArgument("max_count_bytes = ", config.max_count_bytes,
                           " must hold a bucket of counts, ", BytesOfBucket(counts),
                           " bytes; raise it, or set min_frequency to 0");
  }
  return Status();
}

}  // namespace

Status CheckGpuTableConfig(const GpuTableConfig& config) {
  const RowLayout& layout = config.layout;
  if (layout.dim < 1 || layout.dim > kMaxDim) {
    return InvalidArgument("embedding_dim must be in [1, ", kMaxDim, "], got ", layout.dim);
  }
  std::vector<Slot> missing;
  FE_RETURN_IF_ERROR(FindMissingSlots(RowLayout(), AsSpan(layout.slots), &missing));
  const int64_t min_buckets = config.min_buckets;
  if (min_buckets < 1 || min_buckets > kMaxBuckets || (min_buckets & (min_buckets - 1)) != 0) {
    return InvalidArgument("min_buckets must be a power of two up to ", kMaxBuckets, ", got ",
                           min_buckets);
  }
  const int64_t bytes_of_bucket = BytesOfBucket(layout);
  if (min_buckets > config.max_bytes / bytes_of_bucket) {
    return InvalidArgument("max_bytes = ", config.max_bytes,
                           " must hold min_buckets = ", min_buckets, " buckets of ",
                           bytes_of_bucket, " bytes; raise it, or lower min_buckets");
  }
  FE_RETURN_IF_ERROR(CheckCounts(config));
  return CheckInitializer(config.initializer, layout);
}

GpuTable::GpuTable(const GpuTableConfig& config)
    : config_(config), row_bytes_(RowBytes(config.layout)) {}

int64_t GpuTable::BytesOf(int64_t num_buckets) const {
  return num_buckets * BytesOfBucket(config_.layout);
}

bool GpuTable::Holds(int64_t num_buckets) const {
  return num_buckets <= config_.max_bytes / BytesOfBucket(config_.layout);
}

bool GpuTable::CanGrow() const { return num_buckets_ < kMaxBuckets && Holds(2 * num_buckets_); }

Status GpuTable::EnsureSlots(const GpuExec& exec, Span<const Slot> slots) {
  std::vector<Slot> missing;
  FE_RETURN_IF_ERROR(FindMissingSlots(config_.layout, slots, &missing));
  if (missing.empty()) return Status();
  GpuTableConfig config = config_;
  config.layout.slots.insert(config.layout.slots.end(), missing.begin(), missing.end());
  config.min_frequency = 0;  // counts are not made anew
  GpuTable wider(config);
  if (!wider.Holds(num_buckets_)) {
    return ResourceExhausted("the ", num_buckets_, " buckets of the table take ",
                             wider.BytesOf(num_buckets_), " bytes with the slots of ",
                             missing.front().name, ", and max_bytes = ", config_.max_bytes,
                             "; raise it, or create the table with these slots");
  }
  FE_RETURN_IF_ERROR(wider.Init(exec));
  while (wider.num_buckets_ < num_buckets_) {
    FE_RETURN_IF_ERROR(wider.AddBuckets(exec, wider.num_buckets_));
  }
  FE_RETURN_IF_ERROR(CopyRowsTo(exec, wider));
  wider.num_changes_ = num_changes_ + 1;
  wider.config_.min_frequency = config_.min_frequency;
  wider.counts_ = std::move(counts_);
  *this = std::move(wider);
  return Status();
}

}  // namespace fused_embedding
