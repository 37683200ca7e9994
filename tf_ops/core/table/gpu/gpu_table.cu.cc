#include "tf_ops/core/table/gpu/gpu_table.h"

#include <utility>

#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/table/gpu/buckets.cu.h"
#include "tf_ops/core/table/value_bytes.h"

namespace fused_embedding {
namespace {

ValueRange RangeOf(const GpuTableConfig& config) {
  const double a = config.initializer.a, b = config.initializer.b;
  switch (config.layout.value_type) {
    case ValueType::kFloat:
      return UniformRange<float>(a, b);
    case ValueType::kDouble:
      return UniformRange<double>(a, b);
    case ValueType::kHalf:
      return UniformRange<Half>(a, b);
    case ValueType::kBFloat16:
      return UniformRange<BFloat16>(a, b);
  }
  return {};
}

// Rows are not used: the smallest.
GpuTableConfig CountsConfig(const GpuTableConfig& config) {
  GpuTableConfig counts;
  counts.layout.dim = 1;
  counts.eviction = GpuEviction::kLru;
  counts.max_bytes = config.max_count_bytes;
  counts.hash_key = config.hash_key;
  return counts;
}

}  // namespace

Status GpuTable::Create(const GpuExec& exec, const GpuTableConfig& config,
                        std::unique_ptr<GpuTable>* table) {
  FE_RETURN_IF_ERROR(CheckGpuTableConfig(config));
  std::unique_ptr<GpuTable> created(new GpuTable(config));
  FE_RETURN_IF_ERROR(created->Init(exec));
  *table = std::move(created);
  return Status();
}

Status GpuTable::Init(const GpuExec& exec) {
  std::vector<char> behind_value = BytesBehindValue(config_.layout);
  behind_value.resize(static_cast<size_t>(row_bytes_ - config_.layout.value_bytes()));
  FE_RETURN_IF_ERROR(Upload<char>(exec, AsSpan(behind_value), &behind_value_));
  FE_RETURN_IF_ERROR(Upload<char>(exec, AsSpan(config_.initializer.matrix), &matrix_));
  FE_RETURN_IF_ERROR(AddBuckets(exec, config_.min_buckets));
  if (config_.min_frequency == 0) return Status();
  return Create(exec, CountsConfig(config_), &counts_);
}

Status GpuTable::AddPiece(const GpuExec& exec) {
  FE_RETURN_IF_ERROR(AddBuckets(exec, num_buckets_));
  Change();
  return Status();
}

void GpuTable::RemovePiece() {
  pieces_.pop_back();
  num_buckets_ /= 2;
  memory_bytes_ /= 2;
}

Status GpuTable::AddBuckets(const GpuExec& exec, int64_t num_buckets) {
  DeviceBuffer<char> piece;
  const int64_t bytes = BytesOf(num_buckets);
  if (!piece.Allocate(exec, bytes).ok()) {
    return ResourceExhausted("cannot allocate ", bytes, " bytes of device memory for ", num_buckets,
                             " buckets, which max_bytes = ", config_.max_bytes,
                             " allows; lower it, or make room on the device");
  }
  // Rows need no values while their entries are free.
  const int64_t bucket_bytes = num_buckets * int64_t{sizeof(Bucket)};
  FE_RETURN_IF_ERROR(Fill<char>(exec, 0, {piece.data(), bucket_bytes}));
  pieces_.push_back(std::move(piece));
  num_buckets_ += num_buckets;
  memory_bytes_ += bytes;
  return Status();
}

GpuTableView GpuTable::view() const {
  GpuTableView view = {};
  int64_t num_buckets = config_.min_buckets;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    char* memory = pieces_[i].data();
    view.pieces[i] = {reinterpret_cast<Bucket*>(memory),
                      memory + num_buckets * int64_t{sizeof(Bucket)}};
    if (i > 0) num_buckets *= 2;
  }
  while (int64_t{1} << view.min_buckets_log2 < config_.min_buckets) ++view.min_buckets_log2;
  view.mask = static_cast<uint32_t>(num_buckets_ - 1);
  view.hash_key = config_.hash_key;
  view.eviction = config_.eviction;
  const RowLayout& layout = config_.layout;
  const InitializerConfig& initializer = config_.initializer;
  view.format = {
      layout.value_type,
      layout.dim,
      layout.value_bytes(),
      row_bytes_,
      behind_value_.data(),
      {initializer.kind, initializer.a, initializer.b, RangeOf(config_),
       SeedState(initializer.seed), matrix_.data(), matrix_.size() / layout.value_bytes()},
      counts_ != nullptr,
      config_.no_permission_value};
  return view;
}

}  // namespace fused_embedding
