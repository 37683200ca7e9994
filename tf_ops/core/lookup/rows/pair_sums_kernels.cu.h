// The sums of pair_sums.cu.h for any sink.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_PAIR_SUMS_KERNELS_CU_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_PAIR_SUMS_KERNELS_CU_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/lookup/rows/pair_sums.cu.h"

namespace fused_embedding {

// A table, and which blocks and memory are its own.
template <typename T, typename Sink>
struct TableWork {
  SumTable<T, Sink> table;
  int num_lanes = 1;
  int64_t tile_pairs = 0;
  int64_t num_tiles = 0;
  Range tile_blocks = {}, row_blocks = {};
  ComputeType<T>* partials =
      nullptr;  // [num_tiles, 2, dim]: of the id that a tile begins, and ends, with

  __device__ ComputeType<T>* partial(int64_t tile, bool is_last) const {
    return partials + (2 * tile + is_last) * table.dim;
  }
};

// Calls body(offset) for the parts of a row that a lane has; once, whether it has one or not, where
// all lanes must be there. Then rows are no wider than the lanes together: see TakesWholeRows.
template <typename Sink, typename Body>
__device__ inline void ForEachPart(const Lanes& lanes, int width, int64_t dim, const Body& body) {
  if constexpr (Sink::kTakesRows) {
    body(int64_t{lanes.lane} * width);
  } else {
    for (int64_t offset = lanes.lane * width; offset < dim; offset += lanes.size * width) {
      body(offset);
    }
  }
}

template <typename Sink>
__device__ inline bool HasPart(int64_t offset, int64_t dim) {
  return !Sink::kTakesRows || offset < dim;
}

// One tile, by a group of lanes.
template <int kWidth, bool kIsClipped, typename T, typename Sink>
class TileSum {
 public:
  using C = ComputeType<T>;

  __device__ TileSum(const SortedPairs<T>& in, const TableWork<T, Sink>& work, int64_t tile)
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
    ForEachPart<Sink>(lanes, kWidth, work_.table.dim,
                      [&](int64_t offset) { AddFrom(lanes, offset); });
  }

 private:
  // Gradients that are loaded before the first is added.
  static constexpr int kRowsInFlight = 4;

  __device__ void AddFrom(const Lanes& lanes, int64_t offset) {
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
        rows[i] = PairAt(pair, offset);
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
          Flush(lanes, {current, is_first, false}, projection, offset, sums);
          is_first = false;
          current = unique[i];
          projection = 0;
        }
        if (rows[i].row) vectors[i].AddTo(rows[i].factor, sums);
        if (kIsClipped) projection += projections[i];
      }
    }
    Flush(lanes, {current, is_first, true}, projection, offset, sums);
  }

  // Of a lane that has no part of the row, the pair has nothing to add.
  __device__ ScaledRow<T> PairAt(int32_t pair, int64_t offset) const {
    return HasPart<Sink>(offset, work_.table.dim) ? in_.pairs[pair] : ScaledRow<T>();
  }

  // An id of the tile, and whether it is the first and last of it.
  struct EndedId {
    uint32_t unique;
    bool is_first, is_last;
  };

  // Ends the sum of an id, and begins the next.
  __device__ void Flush(const Lanes& lanes, const EndedId& id, C projection, int64_t offset,
                        C* sums) {
    const SumTable<T, Sink>& table = work_.table;
    const bool has_part = HasPart<Sink>(offset, table.dim);
    if (kIsClipped && has_part && projection != 0) {
      const T* embedding = in_.embeddings[id.unique];
      RowVector<T, kWidth>::LoadFrom(embedding + offset).AddTo(-projection, sums);
    }
    const bool continues = id.is_first && continues_;
    if (continues || (id.is_last && is_continued_)) {
      C* partial = work_.partial(tile_, !continues) + offset;
#pragma unroll
      for (int i = 0; i < kWidth && has_part; ++i) partial[i] = sums[i];
    } else {
      const int64_t number = int64_t{id.unique} - table.first_unique;
      table.sink.template Take<kWidth>(lanes, number, table.dim, offset, sums);
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] = 0;
  }

  const SortedPairs<T>& in_;
  const TableWork<T, Sink>& work_;
  const int64_t tile_;
  int32_t begin_ = 0, end_ = 0;
  bool continues_ = false;     // the first id of the tile is that before it
  bool is_continued_ = false;  // the last id of the tile is that behind it
};

template <bool kIsClipped, typename T, typename Sink>
__global__ void __launch_bounds__(kBlockSize, kMinBlocks)
    SumTilesKernel(SortedPairs<T> in, const TableWork<T, Sink>* __restrict__ tables,
                   int64_t num_tables) {
  using Work = TableWork<T, Sink>;
  const Work& work = ItemOfBlock(tables, num_tables, &Work::tile_blocks);
  const Lanes lanes(work.num_lanes);
  const int64_t tile = lanes.GroupOf(work.tile_blocks);
  if (tile >= work.num_tiles) return;
  if (work.table.is_full_width) {
    TileSum<kFullWidth<T>, kIsClipped, T, Sink>(in, work, tile).Add(lanes);
  } else {
    TileSum<1, kIsClipped, T, Sink>(in, work, tile).Add(lanes);
  }
}

// The sum of an id from those of its tiles, of which there are none or several.
template <int kWidth, typename T, typename Sink>
__device__ void FinishRow(const Lanes& lanes, const TableWork<T, Sink>& work, int64_t number,
                          const Range& tiles) {
  const int64_t dim = work.table.dim;
  ForEachPart<Sink>(lanes, kWidth, dim, [&](int64_t offset) {
    ComputeType<T> sums[kWidth] = {};
    const bool has_part = HasPart<Sink>(offset, dim);
#pragma unroll 4
    for (int64_t tile = tiles.begin; has_part && tile < tiles.end; ++tile) {
      const ComputeType<T>* partial = work.partial(tile, tile == tiles.begin) + offset;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums[i] += partial[i];
    }
    work.table.sink.template Take<kWidth>(lanes, number, dim, offset, sums);
  });
}

// Rows of the ids that no tile finished: those without pairs, and those of more than one tile.
template <typename T, typename Sink>
__global__ void __launch_bounds__(kBlockSize)
    FinishRowsKernel(SortedPairs<T> in, const TableWork<T, Sink>* __restrict__ tables,
                     int64_t num_tables) {
  using Work = TableWork<T, Sink>;
  const Work& work = ItemOfBlock(tables, num_tables, &Work::row_blocks);
  const Lanes lanes(work.num_lanes);
  const int64_t number = lanes.GroupOf(work.row_blocks);
  if (number >= work.table.num_unique) return;
  const int64_t unique = work.table.first_unique + number;
  const int64_t first = in.splits[work.table.first_unique];
  const int64_t begin = in.splits[unique] - first, end = in.splits[unique + 1] - first;
  Range tiles = {begin / work.tile_pairs, (end - 1) / work.tile_pairs + 1};
  if (begin == end) tiles.end = tiles.begin;
  if (tiles.end == tiles.begin + 1) return;
  if (work.table.is_full_width) {
    FinishRow<kFullWidth<T>>(lanes, work, number, tiles);
  } else {
    FinishRow<1>(lanes, work, number, tiles);
  }
}

// Pairs of a tile: enough tiles for a large GPU, and few partial sums of an id with many pairs.
// Only the number of pairs decides, so that bits do not depend on the GPU.
inline int64_t TilePairs(int64_t num_pairs) {
  constexpr int64_t kMin = 16, kMax = 256, kWantedTiles = 4096;
  int64_t pairs = kMin;
  while (pairs < kMax && pairs * kWantedTiles < num_pairs) pairs *= 2;
  return pairs;
}

// Whether the lanes that SumPairsInto gives a table have a part each of all of a row.
template <typename T>
bool TakesWholeRows(int64_t dim, bool is_full_width) {
  return dim <= int64_t{32} * (is_full_width ? kFullWidth<T> : 1);
}

// Adds up the pairs of each unique id into its table's sink. Does not wait.
template <typename T, typename Sink>
Status SumPairsInto(const GpuExec& exec, const SortedPairs<T>& sorted,
                    const std::vector<SumTable<T, Sink>>& tables) {
  using Work = TableWork<T, Sink>;
  int64_t num_pairs = 0, num_partials = 0, num_tile_blocks = 0, num_row_blocks = 0;
  for (const SumTable<T, Sink>& table : tables) num_pairs += table.max_pairs;
  std::vector<Work> works;
  std::vector<int64_t> first_partials;
  for (const SumTable<T, Sink>& table : tables) {
    if (table.num_unique == 0 || table.dim == 0) continue;
    Work work = {table};
    work.num_lanes = NumLanes<T>(table.dim, table.is_full_width);
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
  DeviceBuffer<Work> device_works;
  FE_RETURN_IF_ERROR(Upload<Work>(exec, AsSpan(works), &device_works));
  const int64_t num_works = device_works.size();
  FE_RETURN_IF_ERROR(LaunchBlocks(
      exec, num_tile_blocks,
      sorted.projections ? SumTilesKernel<true, T, Sink> : SumTilesKernel<false, T, Sink>, sorted,
      device_works.data(), num_works));
  return LaunchBlocks(exec, num_row_blocks, FinishRowsKernel<T, Sink>, sorted, device_works.data(),
                      num_works);
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_PAIR_SUMS_KERNELS_CU_H_
