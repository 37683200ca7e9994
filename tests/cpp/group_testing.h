// Random columns of grouped lookups as numbers, for the CPU and the GPU.

#ifndef FUSED_EMBEDDING_TESTS_CPP_GROUP_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_GROUP_TESTING_H_

#include "tests/cpp/naive_lookup.h"
#include "tf_ops/core/lookup/group/group_column.h"
#include "tf_ops/core/lookup/group/group_lookup.h"

namespace fused_embedding {

constexpr double kMagnitude = 1e3;

// A column as numbers, and what is left of it after pruning and filling.
struct ColumnCase {
  LookupCase pairs;  // unique_idx are ids; embeddings are the table
  std::vector<int64_t> ids;
  std::vector<int64_t> row_ids;
  std::vector<double> weights;
  int64_t default_id = -1;
  size_t table = 0;
  bool is_int32 = false;
};

// Fills in `pairs` from the rest.
inline void PruneAndFill(ColumnCase* column) {
  LookupCase& pairs = column->pairs;
  const bool prunes_weights = !column->weights.empty() && pairs.combiner != Combiner::kSum;
  pairs.is_zero_row.assign(static_cast<size_t>(pairs.num_rows), true);
  for (size_t k = 0; k < column->ids.size(); ++k) {
    if (column->ids[k] < 0 || (prunes_weights && !(column->weights[k] > 0))) continue;
    pairs.unique_idx.push_back(static_cast<int32_t>(column->ids[k]));
    pairs.row_ids.push_back(column->row_ids[k]);
    if (!column->weights.empty()) pairs.weights.push_back(column->weights[k]);
    pairs.is_zero_row[static_cast<size_t>(column->row_ids[k])] = false;
  }
  for (int64_t row = 0; row < pairs.num_rows; ++row) {
    if (!pairs.is_zero_row[static_cast<size_t>(row)]) continue;
    pairs.unique_idx.push_back(static_cast<int32_t>(std::max<int64_t>(column->default_id, 0)));
    pairs.row_ids.push_back(row);
    if (!column->weights.empty()) pairs.weights.push_back(1);
  }
  if (column->default_id >= 0) pairs.is_zero_row.clear();
}

enum class Order { kOneHot, kSorted, kAny };

template <typename T>
ColumnCase RandomColumn(Random* random, const std::vector<Matrix>& tables) {
  ColumnCase column;
  column.table = static_cast<size_t>(RandomInt(random, 0, static_cast<int64_t>(tables.size()) - 1));
  const Matrix& table = tables[column.table];
  const int64_t table_rows = static_cast<int64_t>(table.size());
  LookupCase& pairs = column.pairs;
  pairs.embeddings = table;
  pairs.dim = static_cast<int64_t>(table[0].size());
  pairs.combiner = kCombiners[RandomInt(random, 0, 2)];
  if (RandomBool(random, 0.3)) pairs.max_norm = RandomBool(random) ? 0.5 : 2;
  pairs.num_rows = RandomInt(random, 0, 40);
  const Order order = static_cast<Order>(RandomInt(random, 0, 2));
  int64_t nnz = pairs.num_rows == 0 ? 0 : RandomInt(random, 0, 90);
  if (order == Order::kOneHot) nnz = pairs.num_rows;
  const bool has_invalid = RandomBool(random);
  for (int64_t k = 0; k < nnz; ++k) {
    column.ids.push_back(RandomInt(random, has_invalid ? -1 : 0, table_rows - 1));
    column.row_ids.push_back(order == Order::kOneHot ? k
                                                     : RandomInt(random, 0, pairs.num_rows - 1));
  }
  if (order == Order::kSorted) std::sort(column.row_ids.begin(), column.row_ids.end());
  if (RandomBool(random, 0.4)) {
    for (int64_t k = 0; k < nnz; ++k) {
      column.weights.push_back(static_cast<double>(RandomInt(random, -8, 32)) / 16);
    }
  }
  if (RandomBool(random, 0.3)) column.default_id = RandomInt(random, 0, table_rows - 1);
  column.is_int32 = RandomBool(random);
  PruneAndFill(&column);
  return column;
}

// The memory behind GroupColumn<T>, host's or a GPU's.
template <typename T, template <typename> class Memory = Array>
class ColumnOf {
 public:
  ColumnOf(const ColumnCase& in, const Memory<T>& table, int64_t row_stride)
      : ids_(Array<int64_t>::Of(in.ids)),
        ids32_(Array<int32_t>::Of(in.ids)),
        row_ids_(WithStride(in.row_ids, row_stride)),
        weights_(Array<ComputeType<T>>::Of(in.weights)) {
    column_.ids = in.is_int32 ? IdSpan(ids32_.view()) : IdSpan(ids_.view());
    column_.row_ids = {row_ids_.data(), static_cast<int64_t>(in.row_ids.size()), row_stride};
    column_.weights = weights_.view();
    column_.num_rows = in.pairs.num_rows;
    column_.table = table.view().data;
    column_.dim = in.pairs.dim;
    column_.table_rows = static_cast<int64_t>(in.pairs.embeddings.size());
    column_.combiner = in.pairs.combiner;
    column_.max_norm = in.pairs.max_norm;
    column_.default_id = in.default_id;
  }

  const GroupColumn<T>& column() const { return column_; }

 private:
  Memory<int64_t> ids_;
  Memory<int32_t> ids32_;
  Memory<int64_t> row_ids_;
  Memory<ComputeType<T>> weights_;
  GroupColumn<T> column_;
};

// A random group of columns as numbers, and what its results must be.
template <typename T>
class GroupCase {
 public:
  struct Gradient {
    Array<int64_t> ids;
    Array<T> rows;
  };

  explicit GroupCase(int seed) : random_(static_cast<uint64_t>(seed)) {
    const int64_t num_tables = RandomInt(&random_, 1, 3);
    for (int64_t t = 0; t < num_tables; ++t) {
      const int64_t dim = kDims[RandomInt(&random_, 0, std::size(kDims) - 1)];
      const size_t num_rows = static_cast<size_t>(RandomInt(&random_, 1, 12));
      tables_.push_back(RandomMatrix<T>(&random_, num_rows, dim));
      flat_tables_.push_back(Flat<T>(tables_.back(), dim));
    }
    for (int64_t c = RandomInt(&random_, 1, 5); c > 0; --c) {
      cases_.push_back(RandomColumn<T>(&random_, tables_));
      row_strides_.push_back(RandomInt(&random_, 1, 2));
      table_of_column_.push_back(static_cast<int64_t>(cases_.back().table));
      const LookupCase& pairs = cases_.back().pairs;
      grads_.push_back(RandomMatrix<T>(&random_, static_cast<size_t>(pairs.num_rows), pairs.dim));
      flat_grads_.push_back(Flat<T>(grads_.back(), pairs.dim));
    }
  }

  void ExpectCombined(const std::vector<Array<T>>& got, int64_t gap) const {
    for (size_t c = 0; c < cases_.size(); ++c) {
      Matrix want = NaiveCombine(cases_[c].pairs);
      for (auto& row : want) row.insert(row.end(), static_cast<size_t>(gap), -77);
      ExpectRowsClose(got[c], want, kMagnitude);
    }
  }

  void ExpectGradient(const std::vector<Gradient>& got) const {
    for (size_t t = 0; t < tables_.size(); ++t) {
      std::vector<int64_t> ids;
      Matrix sums = ZeroMatrix(tables_[t].size(), static_cast<int64_t>(tables_[t][0].size()));
      for (size_t c = 0; c < cases_.size(); ++c) {
        if (cases_[c].table != t) continue;
        const Matrix grad = NaiveRowsGrad(cases_[c].pairs, grads_[c]);
        for (size_t u = 0; u < grad.size(); ++u) {
          for (size_t d = 0; d < grad[u].size(); ++d) sums[u][d] += grad[u][d];
        }
        for (const int32_t id : cases_[c].pairs.unique_idx) {
          if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
        }
      }
      ASSERT_EQ(got[t].ids.values(), ids) << "table " << t;
      Matrix want;
      for (const int64_t id : ids) want.push_back(sums[static_cast<size_t>(id)]);
      ExpectRowsClose(got[t].rows, want, kMagnitude);
    }
  }

  // Of the weights of column c: those of its pairs, 0 for ids that were dropped.
  void ExpectWeightsGradient(size_t c, const Array<ComputeType<T>>& got) const {
    const ColumnCase& column = cases_[c];
    const std::vector<double> of_pairs = NaiveWeightsGrad(column.pairs, grads_[c]);
    const bool prunes_weights = column.pairs.combiner != Combiner::kSum;
    std::vector<double> want;
    size_t pair = 0;
    for (size_t k = 0; k < column.ids.size(); ++k) {
      const bool is_kept = column.ids[k] >= 0 && !(prunes_weights && !(column.weights[k] > 0));
      want.push_back(is_kept ? of_pairs[pair++] : 0);
    }
    ExpectWeightsGrad<T>(column.pairs, grads_[c], want, got);
  }

 protected:
  Random random_;
  std::vector<Matrix> tables_;
  std::vector<Array<T>> flat_tables_;
  std::vector<ColumnCase> cases_;
  std::vector<int64_t> row_strides_;  // of each column's row ids
  std::vector<int64_t> table_of_column_;
  std::vector<Matrix> grads_;
  std::vector<Array<T>> flat_grads_;
};

// The results of the columns of a group, each with `gap` values between rows that must stay as they
// are.
template <typename T>
std::vector<Array<T>> CombineColumns(const CpuExec& exec, const std::vector<ColumnCase>& cases,
                                     Span<const GroupColumn<T>> columns, int64_t gap) {
  GroupPlan<T> plan;
  EXPECT_TRUE(IsOk(PlanGroupLookup(exec, columns, &plan)));
  std::vector<Array<T>> results;
  std::vector<CombinedOut<T>> out;
  for (const ColumnCase& column : cases) {
    const int64_t stride = column.pairs.dim + gap;
    results.push_back(Array<T>(column.pairs.num_rows * stride, Rounded<T>(-77)));
    out.push_back({results.back().data(), stride});
  }
  EXPECT_TRUE(IsOk(RunGroupLookup<T>(exec, columns, plan, AsSpan(std::as_const(out)))));
  return results;
}

// Expects the results that `group` must have, and the same bits with any number of threads.
template <typename Group>
void ExpectCombinedByAnyNumberOfThreads(const Group& group, int64_t gap) {
  const auto want = group.Combine(SerialExec(), gap);
  group.ExpectCombined(want, gap);
  for (const int num_threads : kThreadCounts) {
    const auto got = group.Combine(ThreadedExec(num_threads), gap);
    for (size_t c = 0; c < want.size(); ++c) ASSERT_EQ(got[c].bytes(), want[c].bytes());
  }
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_GROUP_TESTING_H_
