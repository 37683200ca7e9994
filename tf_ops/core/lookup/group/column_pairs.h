// What a column of a group adds to the gradient of its table: stage 6, as far as it is about pairs.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_COLUMN_PAIRS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_COLUMN_PAIRS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/base/thread_blocks.h"
#include "tf_ops/core/lookup/group/group_column.h"
#include "tf_ops/core/lookup/rows/row_grad.h"

namespace fused_embedding {

// The pairs that pruning keeps, in input order; then one for each row that is filled, or one for
// all of them where they are zero.
//
// Each thread has a block of rows. Where these do not ascend, one block has all.
template <typename T>
class ColumnPairs {
 public:
  using C = ComputeType<T>;

  ColumnPairs(const GroupColumn<T>& column, const PairOrder& order, const CombinedGrad<T>& grad)
      : column_(column), order_(order), grad_(grad) {}

  // At least as many as Count finds.
  static int64_t MaxPairs(const GroupColumn<T>& column, const PairOrder& order) {
    if (order.is_full() || !column.fill) return column.num_pairs();
    return column.num_pairs() + (column.fills_default() ? column.num_rows : 1);
  }

  // Writes their ids and gradients to memory for MaxPairs, and adds their number to *num_pairs.
  Status Collect(const CpuExec& exec, int64_t* ids, ScaledRow<T>* pairs, int64_t* num_pairs) {
    if (order_.is_full() && column_.weights.empty()) {
      CollectOneHot(exec, ids, pairs);
      *num_pairs += column_.num_pairs();
      return Status();
    }
    const SerialExec serial;
    const bool is_shared = order_.is_sorted && column_.num_pairs() >= kMinSharedPairs;
    const ThreadBlocks blocks(is_shared ? exec : serial, column_.num_rows, column_.num_pairs());
    FE_RETURN_IF_ERROR(Allocate(blocks.num()));
    blocks.ForEach([&](int64_t b) { Count(blocks, b); });
    int64_t num_kept = 0, num_filled = 0;
    for (Block& block : blocks_) {
      num_kept += std::exchange(block.num_kept, num_kept);
      num_filled += std::exchange(block.num_filled, num_filled);
    }
    blocks.ForEach([&](int64_t b) {
      const Block& block = blocks_[static_cast<size_t>(b)];
      WriteKept(block, ids + block.num_kept, pairs + block.num_kept);
      const int64_t filled = num_kept + block.num_filled;
      if (column_.fills_default()) WriteFilled(block, ids + filled, pairs + filled);
    });
    *num_pairs += num_kept + num_filled;
    if (num_filled == 0 || column_.fills_default()) return Status();
    ids[num_kept] = column_.filled_id();
    pairs[num_kept] = {};
    *num_pairs += 1 - num_filled;  // one is enough for zero rows
    return Status();
  }

 private:
  // Below this, to wake threads takes as long as the work.
  static constexpr int64_t kMinSharedPairs = 32768;

  // Rows and their pairs, and how many of these are written; then where, after those of the blocks
  // before.
  struct Block {
    int64_t first_row, end_row, first_pair, end_pair;
    int64_t num_kept = 0, num_filled = 0;
  };

  bool has_scales() const { return column_.combiner != Combiner::kSum; }
  bool may_fill() const { return column_.fill && !order_.is_full(); }

  Status Allocate(int64_t num_blocks) {
    blocks_.resize(static_cast<size_t>(num_blocks));
    if (has_scales()) {
      FE_RETURN_IF_ERROR(sums_.Allocate(column_.num_rows));
      FE_RETURN_IF_ERROR(scale_.Allocate(column_.num_rows));
    }
    return may_fill() ? is_row_empty_.Allocate(column_.num_rows) : Status();
  }

  // One unweighted id a row has factor 1, whatever the combiner.
  void CollectOneHot(const CpuExec& exec, int64_t* ids, ScaledRow<T>* pairs) const {
    exec.ParallelFor(column_.num_pairs(), 2, [&](int64_t begin, int64_t end) {
      column_.ids.Visit([&](auto of_type) {
        for (int64_t i = begin; i < end; ++i) {
          ids[i] = of_type[i];
          pairs[i] = {grad_.row(i), 1};
        }
      });
    });
  }

  void Count(const ThreadBlocks& blocks, int64_t b) {
    Block& block = blocks_[static_cast<size_t>(b)];
    const bool has_all = blocks.num() == 1;
    block.first_row = blocks.begin(b);
    block.end_row = blocks.end(b);
    block.first_pair = has_all ? 0 : FirstPairOfRow(column_.row_ids, block.first_row);
    block.end_pair = has_all ? column_.num_pairs() : FirstPairOfRow(column_.row_ids, block.end_row);
    const Range rows = {block.first_row, block.end_row};
    const Range pairs = {block.first_pair, block.end_pair};
    if (has_scales()) ScalesOfRows(column_, rows, pairs, sums_.data(), scale_.data());
    block.num_kept = block.end_pair - block.first_pair;
    for (int64_t i = pairs.begin; !order_.keeps_all && i < pairs.end; ++i) {
      block.num_kept -= !column_.IsKept(i);
    }
    if (!may_fill()) return;
    FindEmptyRows(column_, rows, pairs, is_row_empty_.span());
    for (int64_t row = rows.begin; row < rows.end; ++row) block.num_filled += is_row_empty_[row];
  }

  void WriteKept(const Block& block, int64_t* ids, ScaledRow<T>* pairs) const {
    const C* scale = has_scales() ? scale_.span().data : nullptr;
    for (int64_t i = block.first_pair; i < block.end_pair; ++i) {
      if (!column_.IsKept(i)) continue;
      const int64_t row = column_.row_ids[i];
      const C row_scale = scale ? scale[row] : C{1};
      *ids++ = column_.ids[i];
      *pairs++ = {PassedBack(grad_.data, row, grad_.stride, row_scale),
                  row_scale * column_.weight(i)};
    }
  }

  void WriteFilled(const Block& block, int64_t* ids, ScaledRow<T>* pairs) const {
    for (int64_t row = block.first_row; may_fill() && row < block.end_row; ++row) {
      if (!is_row_empty_.span()[row]) continue;
      *ids++ = column_.filled_id();
      *pairs++ = {grad_.row(row), 1};
    }
  }

  const GroupColumn<T>& column_;
  const PairOrder& order_;
  const CombinedGrad<T>& grad_;
  std::vector<Block> blocks_;
  Buffer<double> sums_;
  Buffer<C> scale_;
  Buffer<bool> is_row_empty_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_COLUMN_PAIRS_H_
