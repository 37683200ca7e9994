// Columns of keys in device memory.

#ifndef FUSED_EMBEDDING_TESTS_CPP_CUDA_GROUP_KEYS_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_CUDA_GROUP_KEYS_TESTING_H_

#include <memory>
#include <utility>
#include <vector>

#include "tests/cpp/cuda_testing.h"
#include "tests/cpp/group_keys_testing.h"

namespace fused_embedding {

// The arrays of a column on the GPU, and where its positions go.
struct DeviceColumn {
  explicit DeviceColumn(const KeyColumnCase& in)
      : column(in.Column()),
        ids(Array<int64_t>::Of(in.ids)),
        row_ids(Array<int64_t>::Of(in.row_ids)),
        weights(Array<float>::Of(in.weights)),
        positions(static_cast<int64_t>(in.ids.size())) {
    column.ids = ids.view();
    column.row_ids.data = row_ids.data();
    column.weights = weights.view();
  }

  GroupColumn<float> column;
  DeviceArray<int64_t> ids, row_ids;
  DeviceArray<float> weights;
  DeviceArray<int32_t> positions;
};

class DeviceKeyColumns {
 public:
  explicit DeviceKeyColumns(const std::vector<KeyColumnCase>& cases) {
    for (const KeyColumnCase& column : cases) {
      memory_.push_back(std::make_unique<DeviceColumn>(column));
      columns_.push_back(memory_.back()->column);
      positions_.push_back(memory_.back()->positions.span());
      tables_.push_back(column.table);
    }
  }

  GroupKeysInput<float> input(int64_t num_tables) const {
    return {AsSpan(columns_), AsSpan(tables_), AsSpan(positions_), num_tables};
  }
  std::vector<std::vector<int32_t>> positions() const {
    std::vector<std::vector<int32_t>> on_host;
    for (const auto& column : memory_) on_host.push_back(column->positions.ToHost().values());
    return on_host;
  }

 private:
  std::vector<std::unique_ptr<DeviceColumn>> memory_;
  std::vector<GroupColumn<float>> columns_;
  std::vector<Span<int32_t>> positions_;
  Ints tables_;
};

template <typename T>
inline Array<T> OnHost(const DeviceBuffer<T>& buffer) {
  Array<T> host(buffer.size());
  const size_t bytes = static_cast<size_t>(buffer.size()) * sizeof(T);
  if (bytes > 0) {
    Cuda(cudaMemcpyAsync(host.data(), buffer.data(), bytes, cudaMemcpyDeviceToHost, nullptr));
  }
  Cuda(cudaStreamSynchronize(nullptr));
  return host;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_CUDA_GROUP_KEYS_TESTING_H_
