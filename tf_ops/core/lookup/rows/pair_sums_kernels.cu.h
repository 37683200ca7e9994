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
  using Part = typename Sink::template Part<kWidth>;

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
  // Pairs whose loads are in flight together. What a load needs is loaded a step before: a pair and
  // the row of its id by their numbers, its gradient by the pair. So a step waits for memory once.
  static constexpr int kPairsInFlight = 3;

  // Which pairs are next, and of which ids. Behind the end: the last one.
  struct Numbers {
    int32_t order[kPairsInFlight];
    uint32_t unique[kPairsInFlight];
  };
  // The pairs. Behind the end, and of a lane that has no part of the row: nothing to add.
  struct Batch {
    uint32_t unique[kPairsInFlight];
    int64_t row[kPairsInFlight];  // of the sink
    ScaledRow<T> pairs[kPairsInFlight];
    C projections[kPairsInFlight];
  };
  // The id that is added up, and whether it is the first and last of the tile.
  struct OpenId {
    uint32_t unique;
    int64_t row;
    bool is_first, is_last;
  };

  __device__ Numbers NumbersFrom(int32_t first) const {
    Numbers numbers;
#pragma unroll
    for (int i = 0; i < kPairsInFlight; ++i) {
      const int32_t k = first + i < end_ ? first + i : end_ - 1;
      numbers.order[i] = in_.order[k];
      numbers.unique[i] = in_.unique[k];
    }
    return numbers;
  }

  __device__ Batch BatchOf(const Numbers& numbers, int32_t first, int64_t offset) const {
    const SumTable<T, Sink>& table = work_.table;
    const bool has_part = HasPart<Sink>(offset, table.dim);
    Batch batch;
#pragma unroll
    for (int i = 0; i < kPairsInFlight; ++i) {
      const bool exists = first + i < end_;
      batch.unique[i] = numbers.unique[i];
      batch.row[i] = table.sink.RowOf(int64_t{numbers.unique[i]} - table.first_unique);
      batch.pairs[i] = exists && has_part ? in_.pairs[numbers.order[i]] : ScaledRow<T>();
      batch.projections[i] = kIsClipped && exists ? in_.projections[numbers.order[i]] : C{0};
    }
    return batch;
  }

  __device__ void AddFrom(const Lanes& lanes, int64_t offset) {
    const SumTable<T, Sink>& table = work_.table;
    Numbers numbers = NumbersFrom(begin_);
    Batch next = BatchOf(numbers, begin_, offset);
    numbers = NumbersFrom(begin_ + kPairsInFlight);
    C sums[kWidth] = {};
    C projection = 0;
    OpenId id = {next.unique[0], next.row[0], true, false};
    for (int32_t first = begin_; first < end_; first += kPairsInFlight) {
      const Batch batch = next;
      RowVector<T, kWidth> vectors[kPairsInFlight];
      Part parts[kPairsInFlight];  // of the id that ends before each pair
#pragma unroll
      for (int i = 0; i < kPairsInFlight; ++i) {
        if (batch.pairs[i].row) {
          vectors[i] = RowVector<T, kWidth>::LoadFrom(batch.pairs[i].row + offset);
        }
        const uint32_t before = i == 0 ? id.unique : batch.unique[i - 1];
        const int64_t row = i == 0 ? id.row : batch.row[i - 1];
        if (batch.unique[i] != before) table.sink.Fetch(row, table.dim, offset, &parts[i]);
      }
      next = BatchOf(numbers, first + kPairsInFlight, offset);
      numbers = NumbersFrom(first + 2 * kPairsInFlight);
#pragma unroll
      for (int i = 0; i < kPairsInFlight; ++i) {
        if (batch.unique[i] != id.unique) {
          Flush(lanes, id, projection, offset, &parts[i], sums);
          id = {batch.unique[i], batch.row[i], false, false};
          projection = 0;
        }
        if (batch.pairs[i].row) vectors[i].AddTo(batch.pairs[i].factor, sums);
        projection += batch.projections[i];
      }
    }
    Part part;
    table.sink.Fetch(id.row, table.dim, offset, &part);
    id.is_last = true;
    Flush(lanes, id, projection, offset, &part, sums);
  }

  // Ends the sum of an id, and begins the next.
  __device__ void Flush(const Lanes& lanes, const OpenId& id, C projection, int64_t offset,
                        Part* part, C* sums) {
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
      table.sink.Take(lanes, id.row, table.dim, offset, sums, part);
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

// As kMinBlocks: 128 registers for each thread, for what is in flight.
constexpr int kMinSumBlocks = 2;

template <bool kIsClipped, typename T, typename Sink>
__global__ void __launch_bounds__(kBlockSize, kMinSumBlocks)
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

// The tiles that have pairs of an id of the table.
template <typename T, typename Sink>
__device__ Range TilesOf(const SortedPairs<T>& in, const TableWork<T, Sink>& work, int64_t number) {
  const int64_t unique = work.table.first_unique + number;
  const int32_t first = in.splits[work.table.first_unique];
  const int32_t begin = in.splits[unique] - first, end = in.splits[unique + 1] - first;
  if (begin == end) return {0, 0};
  const int32_t tile_pairs = static_cast<int32_t>(work.tile_pairs);
  return {begin / tile_pairs, (end - 1) / tile_pairs + 1};
}

// The sum of an id from those of its tiles, of which there are none or several.
template <int kWidth, typename T, typename Sink>
__device__ void FinishRow(const Lanes& lanes, const TableWork<T, Sink>& work, int64_t number,
                          const Range& tiles) {
  const int64_t dim = work.table.dim, row = work.table.sink.RowOf(number);
  ForEachPart<Sink>(lanes, kWidth, dim, [&](int64_t offset) {
    typename Sink::template Part<kWidth> part;
    work.table.sink.Fetch(row, dim, offset, &part);
    double totals[kWidth] = {};
    const bool has_part = HasPart<Sink>(offset, dim);
#pragma unroll 8
    for (int64_t tile = tiles.begin; has_part && tile < tiles.end; ++tile) {
      const ComputeType<T>* partial = work.partial(tile, tile == tiles.begin) + offset;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) totals[i] += partial[i];
    }
    ComputeType<T> sums[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] = static_cast<ComputeType<T>>(totals[i]);
    work.table.sink.Take(lanes, row, dim, offset, sums, &part);
  });
}

// Rows of the ids that no tile finished: those without pairs, and those of more than one tile. A
// group of lanes looks at an id with each of them, and finishes one after the other with all.
template <typename T, typename Sink>
__global__ void __launch_bounds__(kBlockSize)
    FinishRowsKernel(SortedPairs<T> in, const TableWork<T, Sink>* __restrict__ tables,
                     int64_t num_tables) {
  using Work = TableWork<T, Sink>;
  const Work& work = ItemOfBlock(tables, num_tables, &Work::row_blocks);
  const Lanes lanes(work.num_lanes);
  const int64_t first = lanes.GroupOf(work.row_blocks) * lanes.size;
  Range tiles = {0, 1};
  if (first + lanes.lane < work.table.num_unique) tiles = TilesOf(in, work, first + lanes.lane);
  uint32_t unfinished = lanes.Ballot(tiles.end != tiles.begin + 1);
  for (; unfinished != 0; unfinished &= unfinished - 1) {
    const int lane = __ffs(static_cast<int>(unfinished)) - 1;
    const Range of_id = {lanes.ValueOf(lane, tiles.begin), lanes.ValueOf(lane, tiles.end)};
    if (work.table.is_full_width) {
      FinishRow<kFullWidth<T>>(lanes, work, first + lane, of_id);
    } else {
      FinishRow<1>(lanes, work, first + lane, of_id);
    }
  }
}

// Pairs of a tile: enough tiles for a large GPU, and few partial sums of an id with many pairs.
// Only the number of pairs decides, so that bits do not depend on the GPU.
inline int64_t TilePairs(int64_t num_pairs) {
  constexpr int64_t kMin = 16, kMax = 64, kWantedTiles = 16384;
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
    work.row_blocks = TakeBlocks(table.num_unique, kBlockSize, &num_row_blocks);
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
