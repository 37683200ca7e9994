#include "tf_ops/core/table/gpu/count_keys.cu.h"

#include <utility>

#include "tf_ops/core/base/cuda/launch.cu.h"

namespace fused_embedding {

std::vector<CountedKeys> FindCountedKeys(const GpuTableKeys& in, int64_t first) {
  std::vector<CountedKeys> counted;
  int64_t begin = 0;
  for (int64_t t = 0; t < in.tables.size; ++t) {
    const int64_t end = in.ends[t];
    if (in.tables[t]->counts() != nullptr) {
      counted.push_back({t, begin, end, first});
      first += end - begin;
    }
    begin = end;
  }
  return counted;
}

int64_t EndOf(const std::vector<CountedKeys>& counted, int64_t first) {
  if (counted.empty()) return first;
  const CountedKeys& last = counted.back();
  return last.first + last.end - last.begin;
}

// Tables side by side in one copy.
template <typename T>
Status CopyCounted(const GpuExec& exec, const std::vector<CountedKeys>& counted, const T* from,
                   T* to) {
  for (size_t i = 0; i < counted.size();) {
    const CountedKeys& first = counted[i];
    int64_t end = first.end;
    for (++i; i < counted.size() && counted[i].begin == end; ++i) end = counted[i].end;
    FE_RETURN_IF_ERROR(
        CopyArray<T>(exec, {from + first.begin, end - first.begin}, to + first.first));
  }
  return Status();
}

Status EraseCounts(const GpuExec& exec, const GpuTableKeys& in) {
  const std::vector<CountedKeys> counted = FindCountedKeys(in, 0);
  if (counted.empty()) return Status();
  std::vector<GpuTable*> tables;
  std::vector<int64_t> ends;
  for (const CountedKeys& of_table : counted) {
    tables.push_back(in.tables[of_table.table]->counts());
    ends.push_back(of_table.first + of_table.end - of_table.begin);
  }
  DeviceBuffer<int64_t> keys;
  DeviceBuffer<bool> is_used, is_erased;
  FE_RETURN_IF_ERROR(keys.Allocate(exec, EndOf(counted, 0)));
  FE_RETURN_IF_ERROR(is_erased.Allocate(exec, keys.size()));
  FE_RETURN_IF_ERROR(CopyCounted(exec, counted, in.keys.data, keys.data()));
  if (in.is_used) {
    FE_RETURN_IF_ERROR(is_used.Allocate(exec, keys.size()));
    FE_RETURN_IF_ERROR(CopyCounted(exec, counted, in.is_used, is_used.data()));
  }
  return EraseFromGpuTables(
      exec,
      {AsSpan(std::as_const(tables)), AsSpan(std::as_const(ends)), keys.span(), is_used.data()},
      is_erased.span());
}

template Status CopyCounted(const GpuExec&, const std::vector<CountedKeys>&, const int64_t*,
                            int64_t*);

}  // namespace fused_embedding
