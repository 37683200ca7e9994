// Pairs in the order of their rows are added pair by pair, others block by block: the sums are the
// same, for every dim and number of pairs, up to the last bits where pairs are dropped.

#include "tf_ops/core/lookup/group/usual_rows.h"

#include <numeric>

#include "tests/cpp/core_testing.h"
#include "tf_ops/core/lookup/group/group_lookup.h"

namespace fused_embedding {
namespace {

constexpr int64_t kTableRows = 50;
constexpr int64_t kGap = 3;  // values between rows of a result, which must stay as they are

// A column of rows with the given numbers of pairs. With a divisor of 1 values are integers, whose
// sums are exact in any order, and some pairs are dropped.
template <typename T>
struct PairColumn {
  using C = ComputeType<T>;

  PairColumn(int64_t dim, const std::vector<int64_t>& lengths, int divisor, bool is_weighted)
      : num_pairs(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})),
        table(kTableRows * dim),
        ids(num_pairs),
        row_ids(num_pairs),
        weights(is_weighted ? num_pairs : 0) {
    Random random(static_cast<uint32_t>(dim));
    for (int64_t i = 0; i < table.size(); ++i) {
      Store(C(RandomInt(&random, -99, 99)) / C(divisor), &table[i]);
    }
    int64_t pair = 0;
    for (size_t row = 0; row < lengths.size(); ++row) {
      for (int64_t i = 0; i < lengths[row]; ++i, ++pair) {
        row_ids[pair] = static_cast<int64_t>(row);
        ids[pair] = RandomInt(&random, divisor == 1 ? -1 : 0, kTableRows - 1);
        if (is_weighted)
          weights[pair] = C(RandomInt(&random, divisor == 1 ? -1 : 1, 4)) / C(divisor);
      }
    }
    column.num_rows = static_cast<int64_t>(lengths.size());
    column.table = table.data();
    column.table_rows = kTableRows;
    column.dim = dim;
    Point();
  }

  // Row ids are the first of two indices of a pair, as in a SparseTensor.
  void Point() {
    indices = Array<int64_t>(2 * num_pairs, -1);
    for (int64_t i = 0; i < num_pairs; ++i) indices[2 * i] = row_ids[i];
    column.ids = ids.view();
    column.row_ids = {indices.data(), num_pairs, 2};
    if (weights.size() > 0) column.weights = weights.view();
  }

  // The last row's pairs first; those of a row as before.
  void Reverse() {
    std::vector<int64_t> order(static_cast<size_t>(num_pairs));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return row_ids[a] > row_ids[b]; });
    const auto permute = [&](auto* values) {
      auto permuted = std::decay_t<decltype(*values)>(values->size());
      for (int64_t i = 0; i < values->size(); ++i) {
        permuted[i] = (*values)[order[static_cast<size_t>(i)]];
      }
      *values = std::move(permuted);
    };
    permute(&ids);
    permute(&row_ids);
    permute(&weights);
    Point();
  }

  Array<T> Combine(int num_threads) const {
    const ThreadedExec exec(num_threads);
    Array<T> result(column.num_rows * (column.dim + kGap), T{});
    const CombinedOut<T> out{result.data(), column.dim + kGap};
    GroupPlan<T> plan;
    EXPECT_TRUE(IsOk(PlanGroupLookup<T>(exec, {&column, 1}, &plan)));
    EXPECT_TRUE(IsOk(RunGroupLookup<T>(exec, {&column, 1}, plan, {&out, 1})));
    return result;
  }

  int64_t num_pairs;
  Array<T> table;
  Array<int64_t> ids, row_ids, indices;
  Array<C> weights;
  GroupColumn<T> column;
};

template <typename T>
class UsualRowsTest : public ::testing::Test {};
TYPED_TEST_SUITE(UsualRowsTest, ValueTypes);

TYPED_TEST(UsualRowsTest, AddInTheOrderOfBlocksWhateverTheDim) {
  const std::vector<int64_t> lengths = {1,  0,   9,   10,  8,   16, 17,  2,
                                        24, 127, 128, 129, 137, 5,  300, 0};
  for (const int64_t dim : {1,  2,  3,  4,  5,  7,  8,  9,   12,  16,  17,  20,  24,  31,  32, 33,
                            48, 63, 64, 65, 96, 97, 99, 100, 127, 128, 129, 200, 255, 256, 257}) {
    for (const bool is_weighted : {false, true}) {
      for (const Combiner combiner : {Combiner::kSum, Combiner::kMean}) {
        for (const int divisor : {1, 7}) {
          SCOPED_TRACE(::testing::Message() << dim << " " << is_weighted << " " << divisor);
          PairColumn<TypeParam> column(dim, lengths, divisor, is_weighted);
          column.column.combiner = combiner;
          const std::string in_order = column.Combine(3).bytes();
          column.Reverse();
          ASSERT_EQ(column.Combine(1).bytes(), in_order);
        }
      }
    }
  }
}

TEST(UsualRows, HaveAnyNumberOfPairs) {
  std::vector<int64_t> lengths;
  for (const int64_t edge : {8, 16, 128, 256, 512, 4096}) {
    for (int64_t length = edge - 1; length <= edge + 10; ++length) lengths.push_back(length);
  }
  for (const int64_t dim : {8, 20, 129}) {
    PairColumn<float> column(dim, lengths, 1, false);
    column.column.combiner = Combiner::kSum;
    Array<float> want(column.column.num_rows * (dim + kGap), 0);
    for (int64_t i = 0; i < column.num_pairs; ++i) {
      for (int64_t d = 0; d < dim && column.ids[i] >= 0; ++d) {
        want[column.row_ids[i] * (dim + kGap) + d] += column.table[column.ids[i] * dim + d];
      }
    }
    for (const int num_threads : {1, 3}) {
      ASSERT_EQ(column.Combine(num_threads).values(), want.values()) << dim;
    }
  }
}

}  // namespace
}  // namespace fused_embedding
