// THE list of combiners: formulas that combine the embeddings e of a row, with weights w.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_COMBINER_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_COMBINER_H_

#include <cmath>
#include <cstdint>
#include <string>

#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

enum class Combiner {
  kSum,    // sum(w e)
  kMean,   // sum(w e) / sum(w)
  kSqrtn,  // sum(w e) / sqrt(sum(w^2))
};

inline Status ParseCombiner(const std::string& name, Combiner* combiner) {
  if (name == "sum") {
    *combiner = Combiner::kSum;
  } else if (name == "mean") {
    *combiner = Combiner::kMean;
  } else if (name == "sqrtn") {
    *combiner = Combiner::kSqrtn;
  } else {
    return InvalidArgument("combiner must be sum, mean or sqrtn, got ", name);
  }
  return Status();
}

// The term that each pair adds to a row's sum, from which the denominator is computed.
template <typename C>
FE_INLINE C DenominatorTerm(Combiner combiner, C weight) {
  return combiner == Combiner::kSqrtn ? weight * weight : weight;
}

// Whether the sum of a row's terms makes its denominator 0. Such a row is 0 whatever its embeddings
// are, as with tf.math.div_no_nan. Its embeddings must not be added at all, because 0 times
// infinity is not 0. Only this function implements the rule; RowScale and PassedBack use it.
template <typename Sum>
FE_INLINE bool HasZeroDenominator(Combiner combiner, Sum sum_of_terms) {
  return combiner != Combiner::kSum && sum_of_terms == 0;
}

// The denominator, of the sum of a row's terms.
template <typename Sum>
FE_INLINE Sum Denominator(Combiner combiner, Sum sum_of_terms) {
  if (combiner == Combiner::kSum) return 1;
  return combiner == Combiner::kSqrtn ? std::sqrt(sum_of_terms) : sum_of_terms;
}

// 1 / denominator; 0 for a zero denominator.
template <typename Sum>
FE_INLINE Sum RowScale(Combiner combiner, Sum sum_of_terms) {
  if (HasZeroDenominator(combiner, sum_of_terms)) return 0;
  return 1 / Denominator(combiner, sum_of_terms);
}

// Terms that are added to each other before they are added to a sum of more.
constexpr int64_t kTermsAtOnce = 8;

// What a sum is divided by, as in TensorFlow: SparseSegmentMean multiplies sums of up to nine rows
// by 1 / denominator, which is rounded once more. Such results are TensorFlow's to the last bit.
template <typename C>
struct Divisor {
  C number = 1;
  bool is_inverse = true;
};

template <typename C>
FE_INLINE Divisor<C> DivisorOf(C denominator, int64_t num_terms, bool has_weights) {
  if (has_weights || num_terms > kTermsAtOnce + 1) return {denominator, false};
  return {1 / denominator, true};
}

// The factor by which max_norm scales a row of this norm. Source: tf.clip_by_norm.
template <typename C>
FE_INLINE C ClipScale(C norm, C max_norm) {
  return norm > max_norm ? max_norm / norm : C{1};
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_COMBINER_H_
