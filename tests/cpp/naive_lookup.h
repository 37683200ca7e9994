// Stages 5 and 6 as their definitions read, in double: what the tests hold core against.

#ifndef FUSED_EMBEDDING_TESTS_CPP_NAIVE_LOOKUP_H_
#define FUSED_EMBEDDING_TESTS_CPP_NAIVE_LOOKUP_H_

#include <ostream>
#include <vector>

#include "tests/cpp/core_testing.h"
#include "tf_ops/core/lookup/rows/pairs.h"

namespace fused_embedding {

using Matrix = std::vector<std::vector<double>>;

// What Pairs<T> says, as numbers.
struct LookupCase {
  Combiner combiner = Combiner::kMean;
  double max_norm = -1;
  int64_t num_rows = 0;
  int64_t dim = 0;
  Matrix embeddings;                // [num_unique][dim]
  std::vector<int32_t> unique_idx;  // [num_pairs]
  std::vector<int64_t> row_ids;     // [num_pairs]
  std::vector<double> weights;      // [num_pairs], or empty: all 1
  std::vector<bool> is_zero_row;    // [num_rows], or empty: none

  size_t num_pairs() const { return row_ids.size(); }
  double weight(size_t pair) const { return weights.empty() ? 1 : weights[pair]; }
  bool IsZeroRow(int64_t row) const {
    return !is_zero_row.empty() && is_zero_row[static_cast<size_t>(row)];
  }
};

inline std::ostream& operator<<(std::ostream& out, const LookupCase& in) {
  return out << "combiner " << static_cast<int>(in.combiner) << ", max_norm " << in.max_norm << ", "
             << in.num_rows << " rows, " << in.num_pairs() << " pairs, " << in.embeddings.size()
             << " embeddings of " << in.dim << (in.weights.empty() ? "" : ", weights")
             << (in.is_zero_row.empty() ? "" : ", zero rows");
}

inline double NaiveDot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}

inline double MaxAbs(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

inline double MaxAbs(const Matrix& rows) {
  double largest = 0;
  for (const std::vector<double>& row : rows) largest = std::max(largest, MaxAbs(row));
  return largest;
}

inline Matrix ZeroMatrix(size_t num_rows, int64_t dim) {
  return Matrix(num_rows, std::vector<double>(static_cast<size_t>(dim), 0));
}

// What embedding u is multiplied by.
inline double NaiveClip(const LookupCase& in, size_t u) {
  const double norm = std::sqrt(NaiveDot(in.embeddings[u], in.embeddings[u]));
  return in.max_norm >= 0 && norm > in.max_norm ? in.max_norm / norm : 1;
}

// What each row's denominator is made of: the sum of w, or of w^2.
inline std::vector<double> NaiveTerms(const LookupCase& in) {
  const bool is_sum = in.combiner == Combiner::kSum;
  std::vector<double> terms(static_cast<size_t>(in.num_rows), is_sum ? 1 : 0);
  for (size_t k = 0; k < in.num_pairs() && !is_sum; ++k) {
    const double w = in.weight(k);
    terms[static_cast<size_t>(in.row_ids[k])] += in.combiner == Combiner::kSqrtn ? w * w : w;
  }
  return terms;
}

// What the sum of each row is multiplied by.
inline std::vector<double> NaiveScales(const LookupCase& in) {
  std::vector<double> scales = NaiveTerms(in);
  for (int64_t row = 0; row < in.num_rows; ++row) {
    double& scale = scales[static_cast<size_t>(row)];
    const double denominator = in.combiner == Combiner::kSqrtn ? std::sqrt(scale) : scale;
    scale = denominator == 0 || in.IsZeroRow(row) ? 0 : 1 / denominator;
  }
  return scales;
}

inline Matrix NaiveCombine(const LookupCase& in) {
  Matrix combined = ZeroMatrix(static_cast<size_t>(in.num_rows), in.dim);
  const std::vector<double> terms = NaiveTerms(in);
  const std::vector<double> scales = NaiveScales(in);
  for (size_t k = 0; k < in.num_pairs(); ++k) {
    const size_t u = static_cast<size_t>(in.unique_idx[k]);
    const size_t row = static_cast<size_t>(in.row_ids[k]);
    if (in.IsZeroRow(in.row_ids[k]) || terms[row] == 0) continue;
    for (size_t d = 0; d < combined[row].size(); ++d) {
      combined[row][d] += scales[row] * in.weight(k) * NaiveClip(in, u) * in.embeddings[u][d];
    }
  }
  return combined;
}

// The gradient of the clipped embeddings.
inline Matrix NaiveClippedGrad(const LookupCase& in, const Matrix& combined_grad) {
  Matrix grad = ZeroMatrix(in.embeddings.size(), in.dim);
  const std::vector<double> scales = NaiveScales(in);
  for (size_t k = 0; k < in.num_pairs(); ++k) {
    const size_t u = static_cast<size_t>(in.unique_idx[k]);
    const size_t row = static_cast<size_t>(in.row_ids[k]);
    if (scales[row] == 0) continue;
    for (size_t d = 0; d < grad[u].size(); ++d) {
      grad[u][d] += scales[row] * in.weight(k) * combined_grad[row][d];
    }
  }
  return grad;
}

// The gradient of the embeddings.
inline Matrix NaiveRowsGrad(const LookupCase& in, const Matrix& combined_grad) {
  Matrix grad = NaiveClippedGrad(in, combined_grad);
  const std::vector<double> scales = NaiveScales(in);
  std::vector<double> dots(grad.size(), 0);  // e g, from the pairs that pass a gradient
  for (size_t k = 0; k < in.num_pairs(); ++k) {
    const size_t u = static_cast<size_t>(in.unique_idx[k]);
    const size_t row = static_cast<size_t>(in.row_ids[k]);
    if (scales[row] == 0) continue;
    dots[u] += scales[row] * in.weight(k) * NaiveDot(in.embeddings[u], combined_grad[row]);
  }
  for (size_t u = 0; u < grad.size(); ++u) {
    const std::vector<double>& e = in.embeddings[u];
    const double norm = std::sqrt(NaiveDot(e, e));
    if (in.max_norm < 0 || !(norm >= in.max_norm) || norm == 0) continue;
    const double projection = dots[u] / (norm * norm);
    for (size_t d = 0; d < e.size(); ++d) {
      grad[u][d] = in.max_norm / norm * (grad[u][d] - projection * e[d]);
    }
  }
  return grad;
}

inline std::vector<double> NaiveWeightsGrad(const LookupCase& in, const Matrix& combined_grad) {
  const std::vector<double> scales = NaiveScales(in);
  std::vector<double> dots(in.num_pairs());                       // e g
  std::vector<double> sums(static_cast<size_t>(in.num_rows), 0);  // sum(w (e g)) of a row
  for (size_t k = 0; k < in.num_pairs(); ++k) {
    const size_t u = static_cast<size_t>(in.unique_idx[k]);
    const size_t row = static_cast<size_t>(in.row_ids[k]);
    dots[k] = NaiveClip(in, u) * NaiveDot(in.embeddings[u], combined_grad[row]);
    sums[row] += in.weight(k) * dots[k];
  }
  std::vector<double> grad(in.num_pairs(), 0);
  for (size_t k = 0; k < in.num_pairs(); ++k) {
    const size_t row = static_cast<size_t>(in.row_ids[k]);
    const double scale = scales[row];
    if (scale == 0) continue;
    grad[k] = scale * dots[k];
    if (in.combiner == Combiner::kMean) grad[k] -= scale * scale * sums[row];
    if (in.combiner == Combiner::kSqrtn) {
      grad[k] -= in.weight(k) * scale * scale * scale * sums[row];
    }
  }
  return grad;
}

template <typename T>
Array<T> Flat(const Matrix& rows, int64_t dim) {
  Array<T> flat(static_cast<int64_t>(rows.size()) * dim);
  int64_t i = 0;
  for (const std::vector<double>& row : rows) {
    for (const double value : row) flat[i++] = Rounded<T>(value);
  }
  return flat;
}

// Values that are the first of `stride` columns.
inline Array<int64_t> WithStride(const std::vector<int64_t>& values, int64_t stride) {
  Array<int64_t> spread(static_cast<int64_t>(values.size()) * stride, kInt64Min);
  for (size_t k = 0; k < values.size(); ++k) spread[static_cast<int64_t>(k) * stride] = values[k];
  return spread;
}

// The memory behind Pairs<T>, host's or a GPU's: each embedding in an allocation of its own,
// `shift` values behind its beginning.
template <typename T, template <typename> class Memory = Array>
class PairsOf {
 public:
  // `row_stride` 2: the row ids are the first column of indices [num_pairs, 2].
  explicit PairsOf(const LookupCase& in, int64_t row_stride = 1, int64_t shift = 0)
      : unique_idx_(Array<int32_t>::Of(in.unique_idx)),
        row_ids_(WithStride(in.row_ids, row_stride)),
        weights_(Array<ComputeType<T>>::Of(in.weights)),
        is_zero_row_(Array<bool>::Of(in.is_zero_row)) {
    pairs_.address_bits = static_cast<uint64_t>(in.dim) * sizeof(T);
    Array<const T*> rows(static_cast<int64_t>(in.embeddings.size()));
    for (int64_t u = 0; u < rows.size(); ++u) {
      std::vector<double> shifted(static_cast<size_t>(shift), std::nan(""));
      const std::vector<double>& embedding = in.embeddings[static_cast<size_t>(u)];
      shifted.insert(shifted.end(), embedding.begin(), embedding.end());
      embeddings_.emplace_back(Flat<T>({shifted}, static_cast<int64_t>(shifted.size())));
      rows[u] = embeddings_.back().view().data + shift;
      pairs_.address_bits |= reinterpret_cast<uintptr_t>(rows[u]);
    }
    rows_ = Memory<const T*>(std::move(rows));
    pairs_.rows = rows_.view();
    pairs_.unique_idx = unique_idx_.view();
    pairs_.row_ids = {row_ids_.data(), static_cast<int64_t>(in.row_ids.size()), row_stride};
    pairs_.weights = weights_.view();
    pairs_.is_zero_row = is_zero_row_.view();
    pairs_.dim = in.dim;
    pairs_.num_rows = in.num_rows;
    pairs_.combiner = in.combiner;
    pairs_.max_norm = in.max_norm;
  }
  PairsOf(const PairsOf&) = delete;

  const Pairs<T>& pairs() const { return pairs_; }

 private:
  std::vector<Memory<T>> embeddings_;
  Memory<const T*> rows_;
  Memory<int32_t> unique_idx_;
  Memory<int64_t> row_ids_;
  Memory<ComputeType<T>> weights_;
  Memory<bool> is_zero_row_;
  Pairs<T> pairs_;
};

// Normal numbers that T holds exactly.
template <typename T>
Matrix RandomMatrix(Random* random, size_t num_rows, int64_t dim) {
  std::normal_distribution<double> normal;
  Matrix rows = ZeroMatrix(num_rows, dim);
  for (std::vector<double>& row : rows) {
    for (double& value : row) value = Load(Rounded<T>(normal(*random)));
  }
  return rows;
}

// rows [[1, 2], [3, 4]], the second row of three without ids.
inline LookupCase Example(Combiner combiner = Combiner::kMean) {
  LookupCase in;
  in.combiner = combiner;
  in.num_rows = 3;
  in.dim = 2;
  in.embeddings = {{1, 2}, {3, 4}};
  in.unique_idx = {0, 1, 1};
  in.row_ids = {0, 0, 2};
  return in;
}

struct CaseSize {
  int64_t num_rows, num_unique, num_pairs, dim;
};

// A valid case: rows in any order, weights about 1, some of them negative where the sum permits it.
template <typename T>
LookupCase RandomCase(Random* random, const CaseSize& size, Combiner combiner, bool has_weights) {
  LookupCase in;
  in.combiner = combiner;
  in.num_rows = size.num_rows;
  in.dim = size.dim;
  in.embeddings = RandomMatrix<T>(random, static_cast<size_t>(size.num_unique), size.dim);
  for (int64_t k = 0; k < size.num_pairs; ++k) {
    in.unique_idx.push_back(static_cast<int32_t>(RandomInt(random, 0, size.num_unique - 1)));
    in.row_ids.push_back(RandomInt(random, 0, size.num_rows - 1));
    if (!has_weights) continue;
    const double sign = combiner != Combiner::kMean && RandomBool(random, 0.2) ? -1 : 1;
    in.weights.push_back(sign * static_cast<double>(RandomInt(random, 1, 64)) / 32);
  }
  return in;
}

template <typename T>
void ExpectRowsClose(const Array<T>& got, const Matrix& want, double magnitude) {
  int64_t i = 0;
  for (size_t row = 0; row < want.size(); ++row) {
    for (size_t d = 0; d < want[row].size(); ++d) {
      ASSERT_TRUE(IsClose(got[i++], want[row][d], magnitude)) << "row " << row << ", value " << d;
    }
  }
  ASSERT_EQ(i, got.size());
}

template <typename T>
void ExpectWeightsGrad(const LookupCase& in, const Matrix& combined_grad,
                       const std::vector<double>& want, const Array<ComputeType<T>>& got) {
  // e g and its share of the row's sum may cancel.
  double magnitude = MaxAbs(want);
  const double largest_dot =
      MaxAbs(in.embeddings) * MaxAbs(combined_grad) * static_cast<double>(in.dim);
  for (const double scale : NaiveScales(in)) {
    magnitude = std::max(magnitude, std::abs(scale) * largest_dot);
  }
  ASSERT_EQ(got.size(), static_cast<int64_t>(want.size()));
  for (size_t k = 0; k < want.size(); ++k) {
    ASSERT_TRUE(IsClose(got[static_cast<int64_t>(k)], want[k], magnitude)) << in << ", pair " << k;
  }
}

constexpr Combiner kCombiners[] = {Combiner::kSum, Combiner::kMean, Combiner::kSqrtn};

// Each way that a row is cut into blocks: registers of 8, 16, 32 and 64 values, and odd rests.
constexpr int64_t kDims[] = {1, 3, 8, 16, 17, 32, 63, 64, 65, 80, 128, 144, 200};

// Every kind of case: combiners, dims, weights, clipping, zero rows. With few cases each dim has
// one combiner, in turn: which values are read does not depend on it.
template <typename T, typename Body>
void ForRandomCases(uint64_t seed, std::initializer_list<CaseSize> sizes, const Body& body) {
  Random random(seed);
  size_t turn = 0;
  for (const int64_t dim : kDims) {
    ++turn;
    for (const Combiner combiner : kCombiners) {
      if (HasFewCases() && combiner != kCombiners[turn % std::size(kCombiners)]) continue;
      for (CaseSize size : sizes) {
        size.dim = dim;
        const bool has_weights = RandomBool(&random);
        LookupCase in = RandomCase<T>(&random, size, combiner, has_weights);
        if (RandomBool(&random)) in.max_norm = std::sqrt(static_cast<double>(dim));
        if (RandomBool(&random)) std::sort(in.row_ids.begin(), in.row_ids.end());
        for (int64_t row = 0; has_weights && row < size.num_rows; ++row) {
          in.is_zero_row.push_back(RandomBool(&random, 0.2));
        }
        body(in, &random);
      }
    }
  }
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_NAIVE_LOOKUP_H_
