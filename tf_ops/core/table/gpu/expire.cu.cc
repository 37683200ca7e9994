#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/table/gpu/buckets.cu.h"

namespace fused_embedding {
namespace {

// As SquaredNorm of value_bytes.h, to the last bit where products are not contracted with sums.
template <typename T>
__device__ double SquaredNormOf(const char* row, int64_t dim) {
  const T* value = reinterpret_cast<const T*>(row);
  double sum = 0.0;
  for (int64_t d = 0; d < dim; ++d) {
    const double x = Load(value[d]);
    sum += x * x;
  }
  return sum;
}

__device__ double SquaredNormOfRow(const GpuRowFormat& format, const char* row) {
  switch (format.value_type) {
    case ValueType::kFloat:
      return SquaredNormOf<float>(row, format.dim);
    case ValueType::kDouble:
      return SquaredNormOf<double>(row, format.dim);
    case ValueType::kHalf:
      return SquaredNormOf<Half>(row, format.dim);
    case ValueType::kBFloat16:
      return SquaredNormOf<BFloat16>(row, format.dim);
  }
  return 0.0;
}

// An entry is one lane's.
__global__ void ExpireKernel(GpuTableView view, Expiry expiry,
                             unsigned long long* __restrict__ num_expired) {
  const int64_t num_entries = (int64_t{view.mask} + 1) * kEntries;
  for (int64_t handle = ThreadOfGrid(); handle < num_entries; handle += NumThreadsOfGrid()) {
    Bucket* bucket = view.bucket(static_cast<uint32_t>(handle / kEntries));
    const int entry = static_cast<int>(handle % kEntries);
    if (bucket->digests[entry] == 0) continue;
    const bool is_expired =
        expiry.IsOld(bucket->versions[entry]) ||
        (expiry.needs_norms() && expiry.IsSmall(SquaredNormOfRow(view.format, view.row(handle))));
    if (!is_expired) continue;
    bucket->digests[entry] = 0;
    atomicAdd(num_expired, 1ull);
  }
}

}  // namespace

Status ExpireInGpuTable(const GpuExec& exec, const Expiry& expiry, GpuTable* table,
                        int64_t* num_expired) {
  DeviceBuffer<unsigned long long> expired;
  FE_RETURN_IF_ERROR(expired.Allocate(exec, 2));
  FE_RETURN_IF_ERROR(Fill(exec, 0, expired.span()));
  const auto expire = [&](GpuTable* from, const Expiry& by, unsigned long long* number) {
    from->Change();
    return Launch(exec, from->num_buckets() * kEntries, ExpireKernel, from->view(), by, number);
  };
  FE_RETURN_IF_ERROR(expire(table, expiry, expired.data()));
  if (table->counts() != nullptr) {
    const Expiry by_age = {expiry.step, expiry.steps_to_live, 0};
    FE_RETURN_IF_ERROR(expire(table->counts(), by_age, expired.data() + 1));
  }
  unsigned long long number = 0;
  Readback readback;
  readback.Add<unsigned long long>(expired.data(), {&number, 1});
  FE_RETURN_IF_ERROR(readback.Wait(exec));
  *num_expired = static_cast<int64_t>(number);
  return Status();
}

}  // namespace fused_embedding
