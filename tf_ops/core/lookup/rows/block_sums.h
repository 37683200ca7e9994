// The sums of a block, of rows in any format. Not for headers that nvcc compiles.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_BLOCK_SUMS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_BLOCK_SUMS_H_

#include <cstdint>

#include "tf_ops/core/lookup/rows/row_sums.h"

namespace fused_embedding {

// Of the table's rows, as table_rows.h says.
template <typename T, typename Rows, bool kAreScaled, int64_t kVectorBytes>
class BlockSums {
 public:
  using C = ComputeType<T>;

  FE_INLINE BlockSums(const RowSumBlock<T>& block, const Rows& rows, double* parts)
      : block_(block),
        rows_(rows),
        num_fetched_(block.num_pairs + block.num_ahead),
        parts_(parts) {}

  FE_INLINE void AddUp() const {
    int64_t first = 0;
    for (int64_t s = 0; s < block_.num_sums; first += block_.sums[s++].num_pairs) AddUp(s, first);
  }

 private:
  // A sum of the pairs from `first` on.
  FE_INLINE void AddUp(int64_t s, int64_t first) const {
    ForEachRowSum<kVectorBytes, C>(
        block_.dim, [&](auto num_values, int64_t offset)
                        FE_INLINE_LAMBDA { AddUpValues<num_values()>(s, first, offset); });
  }

  template <int64_t kNumValues>
  FE_INLINE void AddUpValues(int64_t s, int64_t first, int64_t offset) const {
    const auto& to = block_.sums[s];
    RowSum<kNumValues, kVectorBytes, C> sum;
    // Without pairs there may be no table.
    if (to.num_pairs > 0) AddPairs(first, first + to.num_pairs, offset, &sum);
    const bool continues = s == 0 && block_.begins_inside;
    if (s == block_.num_sums - 1 && block_.ends_inside) {
      sum.AddTo(!continues, parts_ + offset);
      return;
    }
    if (continues) sum.AddParts(parts_ + offset);
    sum.Divide(to.divisor);
    sum.Store(to.out + offset);
  }

  template <typename Sum>
  FE_INLINE void AddPairs(int64_t first, int64_t end, int64_t offset, Sum* sum) const {
    const Rows rows = rows_;  // a copy: its fields stay in registers
    const int64_t* const ids = block_.ids;
    const int64_t num_fetched = offset == 0 ? num_fetched_ : 0;
    const auto add = [&](int64_t pair, Sum* to) FE_INLINE_LAMBDA {
      if (pair + kRowsInFlight < num_fetched) rows.Fetch(ids[pair + kRowsInFlight]);
      const C factor = kAreScaled ? block_.factors[pair] : C{1};
      rows.template Add<kAreScaled>(ids[pair], offset, factor, to);
    };
    AddUpBlock(first, end, add, sum);
  }

  const RowSumBlock<T>& block_;
  const Rows rows_;
  const int64_t num_fetched_;
  double* const parts_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_BLOCK_SUMS_H_
