// THE sum of rows, in registers. Not for headers that nvcc compiles: it has vectors of the CPU.
//
// Terms are added in sums of 8, the last of which takes up what is left: as many additions to the
// whole sum as in TensorFlow's SparseSegmentSum, which begins with what is left. The error grows
// with an eighth of their number. A sum of more than a block of terms is added block by block in
// double precision. The order depends on the number of terms alone: neither threads nor the
// instruction set change a bit.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_SUM_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_SUM_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tf_ops/core/base/vectors.h"
#include "tf_ops/core/lookup/rows/combiner.h"

namespace fused_embedding {

// Terms of a block.
constexpr int64_t kTermsInBlock = 128;

// A sum of kNumValues values of rows, in vectors: they stay in registers while rows are added. An
// array is loaded and stored with each addition.
template <int64_t kValues, int64_t kVectorBytes, typename C>
class RowSum {
 public:
  static constexpr int64_t kNumValues = kValues;

  template <bool kIsScaled, typename T>
  FE_INLINE void Add(C scale, const T* row) {
#pragma GCC unroll 32
    for (int64_t v = 0; v < kNumVectors; ++v) {
      Vector term;
      LoadVector<kVectorBytes, kLanes>(row + v * kLanes, &term);
      if constexpr (kIsScaled) term *= scale;
      sum_[v] += term;
    }
  }
  // Adds what load(first, &vector) makes of the values from `first` on.
  template <typename LoadTerm>
  FE_INLINE void AddTerms(const LoadTerm& load) {
#pragma GCC unroll 32
    for (int64_t v = 0; v < kNumVectors; ++v) {
      Vector term;
      load(v * kLanes, &term);
      sum_[v] += term;
    }
  }
  FE_INLINE void Add(const RowSum& other) {
#pragma GCC unroll 32
    for (int64_t v = 0; v < kNumVectors; ++v) sum_[v] += other.sum_[v];
  }

  FE_INLINE void Scale(C factor) {
#pragma GCC unroll 32
    for (int64_t v = 0; v < kNumVectors; ++v) sum_[v] *= factor;
  }
  FE_INLINE void Divide(const Divisor<C>& divisor) {
    if (divisor.number == 1) return;
    if (divisor.is_inverse) return Scale(divisor.number);
#pragma GCC unroll 32
    for (int64_t v = 0; v < kNumVectors; ++v) sum_[v] /= divisor.number;
  }
  template <typename T>
  FE_INLINE void Store(T* out) const {
#pragma GCC unroll 32
    for (int64_t v = 0; v < kNumVectors; ++v) {
      StoreVector<kVectorBytes, kLanes>(&sum_[v], out + v * kLanes);
    }
  }

  // A sum in parts: adds this part to those before it, of which the first has none.
  FE_INLINE void AddTo(bool is_first, double* parts) const {
    C values[kNumValues];
    std::memcpy(values, sum_, sizeof(values));
    for (int64_t d = 0; d < kNumValues; ++d) parts[d] = (is_first ? 0 : parts[d]) + values[d];
  }
  // Adds the parts before this one.
  FE_INLINE void AddParts(const double* parts) {
    C values[kNumValues];
    std::memcpy(values, sum_, sizeof(values));
    for (int64_t d = 0; d < kNumValues; ++d) values[d] = static_cast<C>(parts[d] + values[d]);
    std::memcpy(sum_, values, sizeof(values));
  }

 private:
  static constexpr int64_t kBytes = kNumValues * static_cast<int64_t>(sizeof(C));
  static constexpr int64_t kEvenBytes = kBytes & -kBytes;
  static constexpr int64_t kUsedBytes = kEvenBytes < kVectorBytes ? kEvenBytes : kVectorBytes;
  static constexpr int64_t kLanes = kUsedBytes / static_cast<int64_t>(sizeof(C));
  static constexpr int64_t kNumVectors = kNumValues / kLanes;
  using Vector = ::fused_embedding::Vector<C, kLanes>;

  Vector sum_[kNumVectors] = {};
};

// AddTo and AddParts of an array, not inlined: for UsualRows, whose loop needs the registers. The
// gradients are slower without the inline ones (decision 040).
template <typename C>
void AddToParts(const C* part, int64_t num_values, bool is_first, double* parts);
template <typename C>
void AddPartsTo(C* part, int64_t num_values, const double* parts);

// A sum of `dim` values, more than kMaxDim / 2 and at most kMaxDim: a RowSum of the first kMaxDim /
// 2 and one of the last kMaxDim / 2. Values in the middle are in both, with the same bits. Few
// classes cover every dim, and their number of vectors is known.
template <int64_t kMaxDim, int64_t kVectorBytes, typename C>
class SumOfHalves {
 public:
  static constexpr int64_t kNumValues = kMaxDim;

  FE_INLINE explicit SumOfHalves(int64_t dim) : second_offset_(dim - Half::kNumValues) {}

  template <bool kIsScaled, typename T>
  FE_INLINE void Add(C scale, const T* row) {
    first_.template Add<kIsScaled>(scale, row);
    second_.template Add<kIsScaled>(scale, row + second_offset_);
  }
  FE_INLINE void Add(const SumOfHalves& other) {
    first_.Add(other.first_);
    second_.Add(other.second_);
  }
  FE_INLINE void Divide(const Divisor<C>& divisor) {
    first_.Divide(divisor);
    second_.Divide(divisor);
  }
  template <typename T>
  FE_INLINE void Store(T* out) const {
    first_.Store(out);
    second_.Store(out + second_offset_);
  }

 private:
  using Half = RowSum<kMaxDim / 2, kVectorBytes, C>;

  Half first_, second_;
  int64_t second_offset_;
};

// Makes `sum` that of terms [begin, end), at most a block of them: add(i, to) adds term i. One
// loop: rows are short, and how many terms they have is hard to predict. Nine terms are a sum of
// eight, and one that is added to it: no reason to stop at eight.
template <typename Sum, typename AddTerm>
FE_INLINE void AddUpBlock(int64_t begin, int64_t end, const AddTerm& add, Sum* sum) {
  *sum = Sum();
  Sum eight, rest;
  int64_t next_eight = end - begin > kTermsAtOnce + 1 ? begin + kTermsAtOnce : end + 1;
  for (int64_t i = begin; i < end;) {
    add(i, &rest);
    if (++i != next_eight) continue;
    sum->Add(eight);
    eight = rest;
    rest = Sum();
    next_eight += kTermsAtOnce;
  }
  rest.Add(eight);
  sum->Add(rest);
}

// The same of any number of terms.
template <typename Sum, typename AddTerm>
FE_INLINE void AddUpTerms(int64_t begin, int64_t end, const AddTerm& add, Sum* sum) {
  if (end - begin <= kTermsInBlock) {
    AddUpBlock(begin, end, add, sum);
    return;
  }
  double parts[Sum::kNumValues] = {};
  for (; begin < end; begin += kTermsInBlock) {
    AddUpBlock(begin, std::min(end, begin + kTermsInBlock), add, sum);
    sum->AddTo(false, parts);
  }
  *sum = Sum();
  sum->AddParts(parts);
}

// Calls body(constant, first) for the values of a row, `constant` of them from `first` on: as many
// as are added up in registers at a time, halves of that at the end.
template <int64_t kVectorBytes, typename C, typename Body>
FE_INLINE void ForEachRowSum(int64_t dim, const Body& body) {
  ForEachVector<8 * kVectorBytes / int64_t{sizeof(C)}>(0, dim, body);
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_SUM_H_
