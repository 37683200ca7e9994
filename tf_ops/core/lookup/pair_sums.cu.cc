#include "tf_ops/core/lookup/pair_sums.cu.h"

#include <algorithm>

#include "tf_ops/core/base/cuda/launch.cu.h"

namespace fused_embedding {
namespace {

// A table, and which blocks and memory are its own.
template <typename T>
struct TableWork {
  SumTable<T> table;
  int num_lanes;
  int64_t tile_pairs;
  int64_t num_tiles;
  Range tile_blocks, row_blocks;
  ComputeType<T>* partials;  // [num_tiles, 2, dim]: of the id that a tile begins, and ends, with

  __device__ ComputeType<T>* partial(int64_t tile, bool is_last) const {
    return partials + (2 * tile + is_last) * table.dim;
  }
};

// One tile, by a group of lanes.
template <int kWidth, bool kIsClipped, typename T>
class TileSum {
 public:
  using C = ComputeType<T>;

  __device__ TileSum(const SortedPairs<T>& in, const TableWork<T>& work, int64_t tile)
      : in_(in), work_(work), tile_(tile) {
    const int64_t first = in.splits[work.table.first_unique];
    const int64_t table_end = in.splits[work.table.first_unique + work.table.num_unique];
    const int64_t begin = first + tile * work.tile_pairs, end = begin + work.tile_pairs;
    if (begin >= table_end) return;
    begin_ = static_cast<int32_t>(begin);
    end_ = static_cast<int32_t>(end < table_end ? end : table_end);
    continues_ = begin_ > first && in.unique[begin_ - 1] == in.unique[begin_];
    is_continued_ = end_ < table_end && in.unique[end_] == in.unique[end_ - 1];
  }

  __device__ void Add(const Lanes& lanes) {
    if (begin_ >= end_) return;
    for (int64_t offset = lanes.lane * kWidth; offset < work_.table.dim;
         offset += lanes.size * kWidth) {
      AddFrom(offset);
    }
  }

 private:
  // Gradients that are loaded before the first is added.
  static constexpr int kRowsInFlight = 4;

  __device__ void AddFrom(int64_t offset) {
    C sums[kWidth] = {};
    C projection = 0;
    uint32_t current = in_.unique[begin_];
    bool is_first = true;
    for (int32_t first = begin_; first < end_; first += kRowsInFlight) {
      ScaledRow<T> rows[kRowsInFlight];
      uint32_t unique[kRowsInFlight];
      C projections[kRowsInFlight];
      RowVector<T, kWidth> vectors[kRowsInFlight];
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) {
        unique[i] = current;
        if (first + i >= end_) continue;
        unique[i] = in_.unique[first + i];
        const int32_t pair = in_.order[first + i];
        rows[i] = in_.pairs[pair];
        if (kIsClipped) projections[i] = in_.projections[pair];
      }
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) {
        if (rows[i].row) vectors[i] = RowVector<T, kWidth>::LoadFrom(rows[i].row + offset);
      }
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) {
        if (first + i >= end_) continue;
        if (unique[i] != current) {
          Flush(current, is_first, false, projection, offset, sums);
          is_first = false;
          current = unique[i];
          projection = 0;
        }
        if (rows[i].row) vectors[i].AddTo(rows[i].factor, sums);
        if (kIsClipped) projection += projections[i];
      }
    }
    Flush(current, is_first, true, projection, offset, sums);
  }

  // Ends the sum of an id, and begins the next.
  __device__ void Flush(uint32_t unique, bool is_first, bool is_last, C projection, int64_t offset,
                        C* sums) {
    if (kIsClipped && projection != 0) {
      const T* embedding = in_.embeddings[unique];
      RowVector<T, kWidth>::LoadFrom(embedding + offset).AddTo(-projection, sums);
    }
    const bool continues = is_first && continues_;
    if (continues || (is_last && is_continued_)) {
      C* partial = work_.partial(tile_, !continues) + offset;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) partial[i] = sums[i];
    } else {
      StoreRow(sums, work_.table.out_row(unique) + offset);
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] = 0;
  }

  __device__ void StoreRow(const C* sums, T* row) const {
    // Only here rows may lie anywhere: see SumTable.
    const bool is_aligned = kWidth == 1 || reinterpret_cast<uintptr_t>(row) % 16 == 0;
    if (is_aligned) RowVector<T, kWidth>::StoreTo(1, sums, row);
#pragma unroll
    for (int i = 0; i < kWidth && !is_aligned; ++i) Store(sums[i], &row[i]);
  }

  const SortedPairs<T>& in_;
  const TableWork<T>& work_;
  const int64_t tile_;
  int32_t begin_ = 0, end_ = 0;
  bool continues_ = false;     // the first id of the tile is that before it
  bool is_continued_ = false;  // the last id of the tile is that behind it
};

template <bool kIsClipped, typename T>
__global__ void __launch_bounds__(kBlockSize, kMinBlocks)
    SumTilesKernel(SortedPairs<T> in, const TableWork<T>* __restrict__ tables, int64_t num_tables) {
  const TableWork<T>& work = ItemOfBlock(tables, num_tables, &TableWork<T>::tile_blocks);
  const Lanes lanes(work.num_lanes);
  const int64_t block = int64_t{blockIdx.x} - work.tile_blocks.begin;
  const int64_t tile = block * lanes.num_groups() + lanes.group();
  if (tile >= work.num_tiles) return;
  if (work.table.is_full_width) {
    TileSum<kFullWidth<T>, kIsClipped, T>(in, work, tile).Add(lanes);
  } else {
    TileSum<1, kIsClipped, T>(in, work, tile).Add(lanes);
  }
}

// Rows of the ids that no tile stored: those without pairs, and those of more than one tile.
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
    FinishRowsKernel(SortedPairs<T> in, const TableWork<T>* __restrict__ tables,
                     int64_t num_tables) {
  using C = ComputeType<T>;
  const TableWork<T>& work = ItemOfBlock(tables, num_tables, &TableWork<T>::row_blocks);
  const Lanes lanes(work.num_lanes);
  const int64_t block = int64_t{blockIdx.x} - work.row_blocks.begin;
  const int64_t number = block * lanes.num_groups() + lanes.group();
  if (number >= work.table.num_unique) return;
  const int64_t unique = work.table.first_unique + number;
  const int64_t first = in.splits[work.table.first_unique];
  const int64_t begin = in.splits[unique] - first, end = in.splits[unique + 1] - first;
  const int64_t first_tile = begin / work.tile_pairs, last_tile = (end - 1) / work.tile_pairs;
  if (begin != end && first_tile == last_tile) return;
  T* row = work.table.out_row(unique);
  for (int64_t d = lanes.lane; d < work.table.dim; d += lanes.size) {
    C sum = begin == end ? C{0} : work.partial(first_tile, true)[d];
#pragma unroll 4
    for (int64_t tile = first_tile + 1; tile <= last_tile; ++tile) {
      sum += work.partial(tile, false)[d];
    }
    Store(sum, &row[d]);
  }
}

// Pairs of a tile: enough tiles for a large GPU, and few partial sums of an id with many pairs.
// Only the number of pairs decides, so that bits do not depend on the GPU.
int64_t TilePairs(int64_t num_pairs) {
  constexpr int64_t kMin = 16, kMax = 256, kWantedTiles = 4096;
  int64_t pairs = kMin;
  while (pairs < kMax && pairs * kWantedTiles < num_pairs) pairs *= 2;
  return pairs;
}

}  // namespace

template <typename T>
Status SumPairs(const GpuExec& exec, const SortedPairs<T>& sorted,
                const std::vector<SumTable<T>>& tables) {
  int64_t num_pairs = 0, num_partials = 0, num_tile_blocks = 0, num_row_blocks = 0;
  for (const SumTable<T>& table : tables) num_pairs += table.max_pairs;
  std::vector<TableWork<T>> works;
  std::vector<int64_t> first_partials;
  for (const SumTable<T>& table : tables) {
    if (table.num_unique == 0 || table.dim == 0) continue;
    TableWork<T> work;
    work.table = table;
    work.num_lanes = NumLanes(table.is_full_width ? table.dim / kFullWidth<T> : table.dim);
    work.tile_pairs = TilePairs(num_pairs);
    work.num_tiles = (table.max_pairs + work.tile_pairs - 1) / work.tile_pairs;
    const int64_t groups_per_block = kBlockSize / work.num_lanes;
    work.tile_blocks = TakeBlocks(work.num_tiles, groups_per_block, &num_tile_blocks);
    work.row_blocks = TakeBlocks(table.num_unique, groups_per_block, &num_row_blocks);
    first_partials.push_back(num_partials);
    num_partials += 2 * work.num_tiles * table.dim;
    works.push_back(work);
  }
  DeviceBuffer<ComputeType<T>> partials;
  FE_RETURN_IF_ERROR(partials.Allocate(exec, num_partials));
  for (size_t t = 0; t < works.size(); ++t) works[t].partials = partials.data() + first_partials[t];
  DeviceBuffer<TableWork<T>> device_works;
  FE_RETURN_IF_ERROR(Upload<TableWork<T>>(exec, AsSpan(works), &device_works));
  const int64_t num_works = device_works.size();
  FE_RETURN_IF_ERROR(
      LaunchBlocks(exec, num_tile_blocks,
                   sorted.projections ? SumTilesKernel<true, T> : SumTilesKernel<false, T>, sorted,
                   device_works.data(), num_works));
  return LaunchBlocks(exec, num_row_blocks, FinishRowsKernel<T>, sorted, device_works.data(),
                      num_works);
}

#define FE_INSTANTIATE(T) \
  template Status SumPairs(const GpuExec&, const SortedPairs<T>&, const std::vector<SumTable<T>>&);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
