#include "tf_ops/core/lookup/group/column_pairs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/cpp/core_testing.h"

namespace fused_embedding {
namespace {

// From which on threads share the work; and a size that no number of threads divides.
constexpr int64_t kNumPairs = 32768 + 7;

struct Pair {
  int64_t id;
  const float* row;
  float factor;

  bool operator==(const Pair& other) const {
    return id == other.id && row == other.row && factor == other.factor;
  }
};

// A column with pairs to prune and rows to fill, the first and the last among them.
class Column {
 public:
  Column(Combiner combiner, bool has_weights, int64_t default_id, bool is_sorted)
      : ids_(kNumPairs), row_ids_(kNumPairs), weights_(has_weights ? kNumPairs : 0) {
    Random random(3);
    for (int64_t k = 0; k < kNumPairs; ++k) {
      ids_[k] = RandomInt(&random, -1, 50);
      row_ids_[k] = RandomInt(&random, 5, kNumRows - 6);
      if (has_weights) weights_[k] = static_cast<float>(RandomInt(&random, -1, 8)) / 4;
    }
    const Span<int64_t> rows = row_ids_.span();
    if (is_sorted) std::sort(rows.begin(), rows.end());
    column_.ids = ids_.view();
    column_.row_ids = {row_ids_.data(), kNumPairs};
    column_.weights = weights_.view();
    column_.num_rows = kNumRows;
    column_.table_rows = 51;
    column_.dim = 1;
    column_.combiner = combiner;
    column_.default_id = default_id;
  }

  std::vector<Pair> Collect(const CpuExec& exec) const {
    std::vector<PairOrder> orders;
    EXPECT_TRUE(IsOk(CheckColumns<float>(exec, {&column_, 1}, &orders)));
    const int64_t max_pairs = ColumnPairs<float>::MaxPairs(column_, orders[0]);
    std::vector<int64_t> ids(static_cast<size_t>(max_pairs));
    std::vector<ScaledRow<float>> rows(static_cast<size_t>(max_pairs));
    int64_t num_pairs = 0;
    ColumnPairs<float> pairs(column_, orders[0], grad_);
    EXPECT_TRUE(IsOk(pairs.Collect(exec, ids.data(), rows.data(), &num_pairs)));
    EXPECT_LE(num_pairs, max_pairs);
    std::vector<Pair> found;
    for (size_t i = 0; i < static_cast<size_t>(num_pairs); ++i) {
      found.push_back({ids[i], rows[i].row, rows[i].row ? rows[i].factor : 0});
    }
    return found;
  }

  // By the definition.
  std::vector<Pair> Expected() const {
    std::vector<double> terms(kNumRows);
    std::vector<bool> is_empty(kNumRows, true);
    std::vector<Pair> pairs;
    for (int64_t k = 0; k < kNumPairs; ++k) {
      if (!IsKept(k)) continue;
      const double weight = Weight(k);
      terms[Row(k)] += column_.combiner == Combiner::kSqrtn ? weight * weight : weight;
      is_empty[Row(k)] = false;
    }
    for (int64_t k = 0; k < kNumPairs; ++k) {
      if (!IsKept(k)) continue;
      const float scale = Scale(terms[Row(k)]);
      pairs.push_back({column_.ids[k], scale == 0 ? nullptr : grad_.row(row_ids_.view()[k]),
                       scale == 0 ? 0 : scale * Weight(k)});
    }
    for (int64_t row = 0; row < kNumRows; ++row) {
      if (!is_empty[static_cast<size_t>(row)]) continue;
      if (column_.default_id < 0) {
        pairs.push_back({0, nullptr, 0});
        break;
      }
      pairs.push_back({column_.default_id, grad_.row(row), 1});
    }
    return pairs;
  }

 private:
  static constexpr int64_t kNumRows = 2000;

  size_t Row(int64_t k) const { return static_cast<size_t>(row_ids_.view()[k]); }
  float Weight(int64_t k) const { return weights_.size() == 0 ? 1 : weights_.view()[k]; }
  bool IsKept(int64_t k) const {
    const bool prunes_weights = weights_.size() != 0 && column_.combiner != Combiner::kSum;
    return column_.ids[k] >= 0 && (!prunes_weights || Weight(k) > 0);
  }
  float Scale(double terms) const {
    if (column_.combiner == Combiner::kSum) return 1;
    const double denominator = column_.combiner == Combiner::kMean ? terms : std::sqrt(terms);
    return terms == 0 ? 0 : static_cast<float>(1 / denominator);
  }

  Array<int64_t> ids_, row_ids_;
  Array<float> weights_;
  Array<float> grads_{Array<float>(kNumRows)};
  CombinedGrad<float> grad_{grads_.span().data, 1};
  GroupColumn<float> column_;
};

TEST(ColumnPairs, AreThoseOfTheDefinitionForAnyNumberOfThreads) {
  for (const Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtn}) {
    for (const bool has_weights : {false, true}) {
      for (const int64_t default_id : {-1, 7}) {
        for (const bool is_sorted : {true, false}) {
          const Column column(combiner, has_weights, default_id, is_sorted);
          const std::vector<Pair> want = column.Expected();
          for (const int num_threads : kThreadCounts) {
            SCOPED_TRACE(num_threads);
            ASSERT_TRUE(column.Collect(ThreadedExec(num_threads)) == want);
          }
        }
      }
    }
  }
}

TEST(GroupByUnique, IsAStableSortForAnyNumberOfThreads) {
  for (const int32_t num_groups : {1, 2, 5, 1000, 70000}) {
    Random random(num_groups);
    std::vector<int32_t> keys;
    // Groups without pairs: behind the others, and most of many.
    const int64_t last = std::max(num_groups - 4, 0);
    for (int64_t i = 0; i < kNumPairs; ++i) {
      keys.push_back(static_cast<int32_t>(RandomInt(&random, 0, last)));
    }
    std::vector<int32_t> want(keys.size());
    std::iota(want.begin(), want.end(), 0);
    std::stable_sort(want.begin(), want.end(), [&](int32_t a, int32_t b) {
      return keys[static_cast<size_t>(a)] < keys[static_cast<size_t>(b)];
    });
    for (const int num_threads : kThreadCounts) {
      SCOPED_TRACE(num_threads);
      PairGroups groups;
      ASSERT_TRUE(IsOk(GroupByUnique(ThreadedExec(num_threads), AsSpan(std::as_const(keys)),
                                     num_groups, &groups)));
      EXPECT_EQ(groups.begin(0), 0);
      EXPECT_EQ(groups.end(num_groups - 1), kNumPairs);
      for (int64_t group = 0; group < num_groups; ++group) {
        for (int64_t i = groups.begin(group); i < groups.end(group); ++i) {
          ASSERT_EQ(groups.pair(i), want[static_cast<size_t>(i)]);
          ASSERT_EQ(keys[static_cast<size_t>(groups.pair(i))], group);
        }
      }
    }
  }
}

}  // namespace
}  // namespace fused_embedding
