#include "tf_ops/core/lookup/group/group_keys.cu.h"

#include <algorithm>
#include <utility>

#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/lookup/group/group_column.cu.h"
#include "tf_ops/core/lookup/stages/unique.cu.h"

namespace fused_embedding {
namespace {

// A column whose pairs, and behind them the id that fills its rows, are among the positions of all
// columns; those of one table follow those of another.
template <typename T>
struct KeyColumn : GpuColumn<T> {
  int64_t first_position = 0;
  int64_t first_of_table = 0;  // position
  int32_t* positions = nullptr;

  FE_HOST_DEVICE int64_t default_position() const {
    return first_position + this->column.num_pairs();
  }
  FE_HOST_DEVICE bool reads_default() const {
    const GroupColumn<T>& column = this->column;
    return column.ids_are_keys ? column.fills_default() : column.fill;
  }
};

// The id at each position, if there is one.
struct PositionIds {
  int64_t* ids;
  bool* is_used;

  __device__ void Set(int64_t position, int64_t id) const {
    ids[position] = id;
    is_used[position] = true;
  }
};

template <typename T>
__global__ void CollectKeysKernel(const KeyColumn<T>* __restrict__ columns, int64_t num_columns,
                                  PositionIds out) {
  const KeyColumn<T>& of_block = ItemOfBlock(columns, num_columns, &GpuColumn<T>::pair_blocks);
  of_block.ForEachPair([&](int64_t k) {
    if (of_block.column.Exists(k)) out.Set(of_block.first_position + k, of_block.column.ids[k]);
  });
}

template <typename T>
__global__ void CollectDefaultsKernel(const KeyColumn<T>* __restrict__ columns, int64_t num_columns,
                                      const int32_t* __restrict__ counts, PositionIds out) {
  const KeyColumn<T>& of_block = ItemOfBlock(columns, num_columns, &GpuColumn<T>::row_blocks);
  if (!of_block.reads_default()) return;
  of_block.ForEachRow([&](int64_t row) {
    if (counts[of_block.first_row + row] != 0) return;
    out.Set(of_block.default_position(), of_block.column.filled_id());  // the same for each row
  });
}

// What NumberFirst found.
struct NumberedIds {
  const int64_t* ids;
  const uint32_t* first;
  const int32_t* numbers;

  // The number of the id at a position, or -1; the first position that has the id writes the key.
  __device__ int32_t NumberOf(int64_t position, int64_t* keys) const {
    const uint32_t first_position = first[position];
    if (first_position == kNoPosition) return -1;
    const int32_t number = numbers[first_position];
    if (first_position == static_cast<uint32_t>(position)) keys[number] = ids[position];
    return number;
  }
};

template <typename T>
__global__ void WriteKeysKernel(const KeyColumn<T>* __restrict__ columns, int64_t num_columns,
                                NumberedIds in, int64_t* __restrict__ keys,
                                int32_t* __restrict__ counts) {
  const KeyColumn<T>& of_block = ItemOfBlock(columns, num_columns, &GpuColumn<T>::pair_blocks);
  const int32_t before = in.numbers[of_block.first_of_table];
  of_block.ForEachPair([&](int64_t k) {
    const int32_t number = in.NumberOf(of_block.first_position + k, keys);
    of_block.positions[k] = number < 0 ? -1 : number - before;
    if (number >= 0) atomicAdd(counts + number, 1);
  });
}

template <typename T>
__global__ void WriteDefaultsKernel(const KeyColumn<T>* __restrict__ columns, int64_t num_columns,
                                    NumberedIds in, int64_t* __restrict__ keys,
                                    int32_t* __restrict__ codes) {
  for (int64_t c = ThreadOfGrid(); c < num_columns; c += NumThreadsOfGrid()) {
    const KeyColumn<T>& column = columns[c];
    const int32_t number = in.NumberOf(column.default_position(), keys);
    const int32_t position = number - in.numbers[column.first_of_table];
    codes[c] = number < 0 ? DefaultPosition().code
                          : DefaultPosition::Of(position, !column.column.fills_default()).code;
  }
}

// The columns of one table after those of another.
template <typename T>
struct Layout {
  std::vector<int64_t> order;  // of the columns
  LaidOutColumns<T> laid_out;
  std::vector<KeyColumn<T>> columns;
  std::vector<int64_t> table_ends;  // positions
  int64_t num_positions = 0;

  Status LayOut(const GroupKeysInput<T>& in) {
    order = ColumnsByTable(in.table_of_column);
    std::vector<GroupColumn<T>> by_table;
    for (const int64_t c : order) by_table.push_back(in.columns[c]);
    FE_RETURN_IF_ERROR(LayOutColumns<T>(AsSpan(std::as_const(by_table)), &laid_out));
    table_ends.assign(static_cast<size_t>(in.num_tables), 0);
    for (size_t i = 0; i < order.size(); ++i) {
      const size_t table = static_cast<size_t>(in.table_of_column[order[i]]);
      const bool is_first =
          i == 0 || in.table_of_column[order[i - 1]] < in.table_of_column[order[i]];
      KeyColumn<T> column;
      static_cast<GpuColumn<T>&>(column) = laid_out.columns[i];
      column.first_position = num_positions;
      column.first_of_table = is_first ? num_positions : columns.back().first_of_table;
      column.positions = in.positions[order[i]].data;
      num_positions += column.column.num_pairs() + 1;
      table_ends[table] = num_positions;
      columns.push_back(column);
    }
    // A table without columns ends where the one before it does.
    for (size_t t = 1; t < table_ends.size(); ++t) {
      table_ends[t] = std::max(table_ends[t], table_ends[t - 1]);
    }
    return CheckNumPairs(num_positions);
  }
};

// The ids at all positions, numbered.
template <typename T>
Status NumberIds(const GpuExec& exec, const Layout<T>& layout,
                 const DeviceBuffer<KeyColumn<T>>& columns, DeviceBuffer<int64_t>* ids,
                 GpuUniquePlan* unique) {
  const LaidOutColumns<T>& laid_out = layout.laid_out;
  DeviceBuffer<GpuColumn<T>> plain_columns;
  DeviceBuffer<int32_t> counts;
  DeviceBuffer<bool> is_used;
  FE_RETURN_IF_ERROR(Upload<GpuColumn<T>>(exec, AsSpan(laid_out.columns), &plain_columns));
  FE_RETURN_IF_ERROR(counts.Allocate(exec, laid_out.num_rows));
  FE_RETURN_IF_ERROR(CountPairs(exec, laid_out, plain_columns, counts.span()));
  FE_RETURN_IF_ERROR(ids->Allocate(exec, layout.num_positions));
  FE_RETURN_IF_ERROR(is_used.Allocate(exec, layout.num_positions));
  FE_RETURN_IF_ERROR(Fill(exec, false, is_used.span()));
  const PositionIds out = {ids->data(), is_used.data()};
  FE_RETURN_IF_ERROR(LaunchBlocks(exec, laid_out.num_pair_blocks, CollectKeysKernel<T>,
                                  columns.data(), columns.size(), out));
  FE_RETURN_IF_ERROR(LaunchBlocks(exec, laid_out.num_row_blocks, CollectDefaultsKernel<T>,
                                  columns.data(), columns.size(), counts.data(), out));
  return NumberFirst<int64_t>(exec, {ids->span(), is_used.data(), AsSpan(layout.table_ends)},
                              unique);
}

}  // namespace

template <typename T>
Status FindGroupKeys(const GpuExec& exec, const GroupKeysInput<T>& in, GpuGroupKeys* keys) {
  ColumnCheck check;
  Readback readback;
  Layout<T> layout;
  FE_RETURN_IF_ERROR(StartCheck(exec, in.columns, &check, &readback));
  FE_RETURN_IF_ERROR(layout.LayOut(in));
  DeviceBuffer<KeyColumn<T>> columns;
  DeviceBuffer<int64_t> ids;
  GpuUniquePlan unique;
  FE_RETURN_IF_ERROR(Upload<KeyColumn<T>>(exec, AsSpan(layout.columns), &columns));
  FE_RETURN_IF_ERROR(NumberIds(exec, layout, columns, &ids, &unique));
  DeviceBuffer<int32_t> codes, device_ends;
  FE_RETURN_IF_ERROR(keys->keys.Allocate(exec, layout.num_positions));
  FE_RETURN_IF_ERROR(keys->counts.Allocate(exec, layout.num_positions));
  FE_RETURN_IF_ERROR(codes.Allocate(exec, columns.size()));
  FE_RETURN_IF_ERROR(Fill(exec, 0, keys->counts.span()));
  const NumberedIds numbered = {ids.data(), unique.first.data(), unique.numbers.data()};
  FE_RETURN_IF_ERROR(LaunchBlocks(exec, layout.laid_out.num_pair_blocks, WriteKeysKernel<T>,
                                  columns.data(), columns.size(), numbered, keys->keys.data(),
                                  keys->counts.data()));
  FE_RETURN_IF_ERROR(Launch(exec, columns.size(), WriteDefaultsKernel<T>, columns.data(),
                            columns.size(), numbered, keys->keys.data(), codes.data()));
  FE_RETURN_IF_ERROR(NumbersBefore(exec, unique, AsSpan(layout.table_ends), &device_ends));
  std::vector<int32_t> ends(layout.table_ends.size()), laid_out_codes(layout.columns.size());
  readback.Add<int32_t>(device_ends.data(), AsSpan(ends));
  readback.Add<int32_t>(codes.data(), AsSpan(laid_out_codes));
  FE_RETURN_IF_ERROR(readback.Wait(exec));
  FE_RETURN_IF_ERROR(FinishCheck(exec, in.columns, check, &keys->orders));
  keys->ends.assign(ends.begin(), ends.end());
  keys->default_positions.resize(laid_out_codes.size());
  for (size_t i = 0; i < layout.order.size(); ++i) {
    keys->default_positions[static_cast<size_t>(layout.order[i])] = laid_out_codes[i];
  }
  return Status();
}

#define FE_INSTANTIATE(T) \
  template Status FindGroupKeys(const GpuExec&, const GroupKeysInput<T>&, GpuGroupKeys*);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
