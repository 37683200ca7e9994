#include "tf_ops/core/lookup/rows/row_sums.h"

#include <algorithm>

namespace fused_embedding {
namespace {

template <typename T, bool kAreScaled, int64_t kVectorBytes>
class BlockSums {
 public:
  using C = ComputeType<T>;

  FE_INLINE BlockSums(const RowSumBlock<T>& block, double* parts)
      : block_(block), num_fetched_(block.num_pairs + block.num_ahead), parts_(parts) {}

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
    const T* const table = block_.table + offset;
    const int64_t* const ids = block_.ids;
    const int64_t num_fetched = offset == 0 ? num_fetched_ : 0;
    const auto add = [&](int64_t pair, Sum* to) FE_INLINE_LAMBDA {
      if (pair + kRowsInFlight < num_fetched) Fetch(ids[pair + kRowsInFlight]);
      const C factor = kAreScaled ? block_.factors[pair] : C{1};
      to->template Add<kAreScaled>(factor, table + ids[pair] * block_.dim);
    };
    AddUpBlock(first, end, add, sum);
  }

  // Computes an address: the row may not exist.
  FE_INLINE void Fetch(int64_t id) const {
    const int64_t row_bytes = block_.dim * static_cast<int64_t>(sizeof(T));
    PrefetchRow(
        reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(block_.table) +
                                      static_cast<uint64_t>(id) * static_cast<uint64_t>(row_bytes)),
        row_bytes);
  }

  const RowSumBlock<T>& block_;
  const int64_t num_fetched_;
  double* const parts_;
};

}  // namespace

template <typename T>
void AddUpRows(const RowSumBlock<T>& block, double* parts) {
  WithSimd([&](auto vector_bytes) FE_INLINE_LAMBDA {
    if (block.factors) {
      BlockSums<T, true, vector_bytes()>(block, parts).AddUp();
    } else {
      BlockSums<T, false, vector_bytes()>(block, parts).AddUp();
    }
  });
}

#define FE_INSTANTIATE(T) template void AddUpRows(const RowSumBlock<T>&, double*);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
