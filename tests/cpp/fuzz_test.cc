// Random inputs, half of them malformed: every Plan says so, or Run gives what the definition
// gives. Memory errors are the sanitizers' to find: arrays have exact sizes.

#include "tests/cpp/naive_lookup.h"
#include "tf_ops/core/lookup/stages/gather.h"
#include "tf_ops/core/lookup/stages/partition.h"
#include "tf_ops/core/lookup/stages/post_lookup.h"
#include "tf_ops/core/lookup/stages/post_lookup_grad.h"
#include "tf_ops/core/lookup/stages/post_lookup_weights_grad.h"
#include "tf_ops/core/lookup/stages/pre_lookup.h"
#include "tf_ops/core/lookup/stages/prune_and_fill.h"
#include "tf_ops/core/lookup/stages/unique.h"

namespace fused_embedding {
namespace {

constexpr int kFuzzRounds = 5000;

// Threads now and then: to start them takes longer than all else here.
const CpuExec& ExecOf(int round) {
  static const SerialExec serial;
  static const ThreadedExec threaded(2);
  if (round % 32 == 0) return threaded;
  return serial;
}

int64_t AnyInt64(Random* random) {
  constexpr int64_t kSpecial[] = {
      kInt64Min,           kInt64Min + 1,   -1, 0, 1, kInt64Max - 1, kInt64Max, int64_t{1} << 31,
      -(int64_t{1} << 31), int64_t{1} << 32};
  if (RandomBool(random)) return kSpecial[RandomInt(random, 0, 9)];
  return static_cast<int64_t>((*random)());
}

// Mostly in [0, limit), at times anything.
int64_t RandomIndex(Random* random, int64_t limit, double bad = 0.02) {
  if (limit <= 0 || RandomBool(random, bad)) return AnyInt64(random);
  return RandomInt(random, 0, limit - 1);
}

// Mostly `size`, at times another one.
size_t RandomSize(Random* random, int64_t size, double bad = 0.05) {
  return static_cast<size_t>(RandomBool(random, bad) ? RandomInt(random, 0, 6) : size);
}

double AnyDouble(Random* random) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double kSpecial[] = {0, -0.0, 1, -1, kInfinity, -kInfinity, std::nan("")};
  if (RandomBool(random, 0.1)) return kSpecial[RandomInt(random, 0, 6)];
  return static_cast<double>(RandomInt(random, -64, 64)) / 16;
}

LookupCase AnyCase(Random* random) {
  LookupCase in;
  in.combiner = kCombiners[RandomInt(random, 0, 2)];
  const double max_norms[] = {-1, 0, 2, std::nan("")};
  in.max_norm = max_norms[RandomInt(random, 0, 3)];
  in.num_rows = RandomInt(random, 0, 5);
  in.dim = RandomInt(random, 0, 20);
  in.embeddings = ZeroMatrix(static_cast<size_t>(RandomInt(random, 0, 4)), in.dim);
  for (std::vector<double>& row : in.embeddings) {
    for (double& value : row) value = AnyDouble(random);
  }
  const int64_t num_pairs = RandomInt(random, 0, 8);
  const int64_t num_unique = static_cast<int64_t>(in.embeddings.size());
  for (int64_t k = 0; k < num_pairs; ++k) in.row_ids.push_back(RandomIndex(random, in.num_rows));
  in.unique_idx.resize(RandomSize(random, num_pairs));
  for (int32_t& u : in.unique_idx) u = static_cast<int32_t>(RandomIndex(random, num_unique));
  if (RandomBool(random)) in.weights.resize(RandomSize(random, num_pairs));
  for (double& weight : in.weights) weight = AnyDouble(random);
  if (RandomBool(random, 0.3)) in.is_zero_row.resize(RandomSize(random, in.num_rows));
  for (size_t row = 0; row < in.is_zero_row.size(); ++row) in.is_zero_row[row] = RandomBool(random);
  return in;
}

bool IsValid(const LookupCase& in) {
  const auto is_absent_or = [](size_t size, size_t want) { return size == 0 || size == want; };
  bool is_valid = in.unique_idx.size() == in.num_pairs() &&
                  is_absent_or(in.weights.size(), in.num_pairs()) &&
                  is_absent_or(in.is_zero_row.size(), static_cast<size_t>(in.num_rows));
  for (const int64_t row : in.row_ids) is_valid &= row >= 0 && row < in.num_rows;
  for (const int64_t u : in.unique_idx) {
    is_valid &= u >= 0 && u < static_cast<int64_t>(in.embeddings.size());
  }
  return is_valid;
}

template <typename T>
void CheckStagesFiveAndSix(const CpuExec& exec, const LookupCase& in, const Matrix& combined_grad) {
  const PairsOf<T> memory(in);
  const Pairs<T>& pairs = memory.pairs();
  PostLookupPlan<T> plan;
  PostLookupGradPlan<T> grad_plan;
  const Status status = PlanPostLookup(exec, pairs, &plan);
  ASSERT_EQ(status.ok(), IsValid(in)) << status.message();
  ASSERT_EQ(PlanPostLookupGrad(pairs, {}, &grad_plan).ok(), status.ok());
  if (!status.ok()) return;

  constexpr double kMagnitude = 1e4;  // embeddings, weights and gradients are up to 4
  Array<T> combined(in.num_rows * in.dim);
  Array<int32_t> num_ids(in.num_rows);
  RunPostLookup(exec, pairs, plan, combined.span(), num_ids.span());
  ExpectRowsClose(combined, NaiveCombine(in), kMagnitude);

  const Array<T> flat_grad = Flat<T>(combined_grad, in.dim);
  Array<T> rows_grad(pairs.rows.size * in.dim);
  Array<T*> rows(pairs.rows.size);
  for (int64_t u = 0; u < rows.size(); ++u) rows[u] = rows_grad.data() + u * in.dim;
  RunPostLookupGrad(exec, pairs, grad_plan, flat_grad.view(),
                    Span<T* const>{rows.data(), rows.size()});
  ExpectRowsClose(rows_grad, NaiveRowsGrad(in, combined_grad), kMagnitude);

  Array<ComputeType<T>> weights_grad(pairs.num_pairs());
  RunPostLookupWeightsGrad(exec, pairs, plan, {flat_grad.span().data, pairs.dim},
                           weights_grad.span());
  const std::vector<double> want = NaiveWeightsGrad(in, combined_grad);
  for (size_t k = 0; k < want.size(); ++k) {
    ASSERT_TRUE(IsClose(weights_grad[static_cast<int64_t>(k)], want[k], kMagnitude))
        << "pair " << k;
  }
}

template <typename T>
class FuzzTypes : public ::testing::Test {};
TYPED_TEST_SUITE(FuzzTypes, ValueTypes);

TYPED_TEST(FuzzTypes, PostLookupAndItsGradients) {
  Random random(53);
  for (int round = 0; round < kFuzzRounds; ++round) {
    const LookupCase in = AnyCase(&random);
    Matrix combined_grad = ZeroMatrix(static_cast<size_t>(in.num_rows), in.dim);
    for (std::vector<double>& row : combined_grad) {
      for (double& value : row) value = AnyDouble(&random);
    }
    CheckStagesFiveAndSix<TypeParam>(ExecOf(round), in, combined_grad);
    ASSERT_FALSE(this->HasFailure()) << "round " << round << ": " << in;
  }
}

TYPED_TEST(FuzzTypes, PruneAndFill) {
  Random random(59);
  for (int round = 0; round < kFuzzRounds; ++round) {
    PruneAndFillInput<TypeParam> in;
    in.num_rows = RandomInt(&random, 0, 6);
    in.default_id = AnyInt64(&random);
    in.default_weight = AnyDouble(&random);
    in.prune = RandomBool(&random);
    in.prune_weights = RandomBool(&random);
    in.fill = RandomBool(&random);
    Array<int64_t> ids(RandomInt(&random, 0, 8));
    Array<int64_t> indices(static_cast<int64_t>(RandomSize(&random, 2 * ids.size())));
    Array<TypeParam> weights(
        RandomBool(&random) ? static_cast<int64_t>(RandomSize(&random, ids.size())) : 0);
    for (int64_t i = 0; i < ids.size(); ++i) ids[i] = RandomIndex(&random, 9, 0.3);
    for (int64_t i = 0; i < weights.size(); ++i)
      weights[i] = Rounded<TypeParam>(AnyDouble(&random));
    for (int64_t i = 0; i < indices.size(); ++i) indices[i] = RandomIndex(&random, in.num_rows);
    in.ids = ids.view();
    in.indices = indices.view();
    in.weights = weights.view();

    const bool has_weights = weights.size() == ids.size();
    bool is_valid = indices.size() == 2 * ids.size() &&
                    (has_weights || (weights.size() == 0 && !(in.prune && in.prune_weights)));
    for (int64_t i = 0; is_valid && i < ids.size(); ++i) {
      is_valid = indices[2 * i] >= 0 && indices[2 * i] < in.num_rows;
    }
    Array<bool> is_row_empty(in.num_rows);
    PruneAndFillPlan plan;
    const Status status = PlanPruneAndFill(in, is_row_empty.span(), &plan);
    ASSERT_EQ(status.ok(), is_valid) << "round " << round << ": " << status.message();
    if (!is_valid) continue;

    std::vector<int64_t> want;
    std::set<int64_t> rows_with_ids;
    for (int64_t i = 0; i < ids.size(); ++i) {
      const bool is_dropped =
          in.prune && (ids[i] < 0 || (in.prune_weights && !(Load(weights[i]) > 0)));
      if (is_dropped) continue;
      want.push_back(ids[i]);
      rows_with_ids.insert(indices[2 * i]);
    }
    const int64_t num_empty = in.num_rows - static_cast<int64_t>(rows_with_ids.size());
    if (in.fill)
      want.insert(want.end(), static_cast<size_t>(num_empty), std::max<int64_t>(in.default_id, 0));
    Array<int64_t> ids_out(plan.nnz_out()), indices_out(2 * plan.nnz_out());
    Array<TypeParam> weights_out(weights.size() == 0 ? 0 : plan.nnz_out());
    RunPruneAndFill(in, plan, is_row_empty.view(),
                    {ids_out.span(), indices_out.span(), weights_out.span()});
    ASSERT_EQ(ids_out.values(), want) << "round " << round;
    for (int64_t row = 0; row < in.num_rows; ++row) {
      ASSERT_EQ(is_row_empty[row], rows_with_ids.count(row) == 0) << "round " << round;
    }
  }
}

TEST(Fuzz, PreLookupAndPartition) {
  Random random(61);
  constexpr PartitionStrategy kStrategies[] = {PartitionStrategy::kDiv, PartitionStrategy::kMod,
                                               PartitionStrategy::kModEv, PartitionStrategy::kHash};
  for (int round = 0; round < kFuzzRounds; ++round) {
    Array<int64_t> shard_rows(RandomInt(&random, 0, 4));
    for (int64_t p = 0; p < shard_rows.size(); ++p) shard_rows[p] = RandomIndex(&random, 6, 0.1);
    Array<int64_t> ids(RandomInt(&random, 0, 8));
    Array<int64_t> indices(2 * ids.size());
    PreLookupInput in;
    in.pairs.num_rows = RandomInt(&random, 0, 5);
    for (int64_t i = 0; i < ids.size(); ++i) {
      ids[i] = RandomIndex(&random, 10, 0.1);
      indices[2 * i] = RandomIndex(&random, in.pairs.num_rows, 0.01);
    }
    in.pairs.ids = ids.view();
    in.pairs.indices = indices.view();
    in.pairs.default_id = RandomIndex(&random, 10, 0.1);
    in.pairs.prune = RandomBool(&random);
    in.pairs.fill = RandomBool(&random);
    in.shard_rows = shard_rows.view();
    in.strategy = kStrategies[RandomInt(&random, 0, 3)];
    Array<int32_t> flags(in.pairs.num_rows + ids.size());
    Array<int64_t> shard_sizes(shard_rows.size());
    PreLookupPlan plan;
    if (!PlanPreLookup(in, flags.span(), shard_sizes.span(), &plan).ok()) continue;

    int64_t num_pairs = 0;
    std::vector<Array<int64_t>> arrays;
    for (const int64_t size : shard_sizes.values()) {
      num_pairs += size;
      arrays.emplace_back(size, -7);
      arrays.emplace_back(2 * size, -7);
    }
    ASSERT_EQ(num_pairs, plan.ids.size()) << "round " << round;
    Array<Span<int64_t>> shard_ids(shard_rows.size()), shard_indices(shard_rows.size());
    for (int64_t p = 0; p < shard_rows.size(); ++p) {
      shard_ids[p] = arrays[static_cast<size_t>(2 * p)].span();
      shard_indices[p] = arrays[static_cast<size_t>(2 * p) + 1].span();
    }
    RunPreLookup(in, plan, shard_ids.view(), shard_indices.view());
    for (int64_t p = 0; p < shard_rows.size(); ++p) {
      for (const int64_t id : shard_ids[p]) {
        const bool is_any_id =
            in.strategy == PartitionStrategy::kModEv || in.strategy == PartitionStrategy::kHash;
        ASSERT_TRUE(is_any_id || (id >= 0 && id < shard_rows[p])) << "round " << round;
      }
      for (int64_t i = 0; i < shard_indices[p].size; i += 2) {
        ASSERT_TRUE(shard_indices[p][i] >= 0 && shard_indices[p][i] < in.pairs.num_rows);
      }
    }
  }
}

TEST(Fuzz, Gather) {
  Random random(67);
  for (int round = 0; round < kFuzzRounds; ++round) {
    const int64_t num_rows = RandomInt(&random, 0, 5);
    const int64_t row_bytes = RandomInt(&random, 0, 70);
    Array<char> table(num_rows * row_bytes);
    for (int64_t i = 0; i < table.size(); ++i) table[i] = static_cast<char>(random());
    Array<int64_t> ids(RandomInt(&random, 0, 60));
    int64_t first_bad = -1;
    std::string want;
    for (int64_t i = 0; i < ids.size(); ++i) {
      ids[i] = RandomIndex(&random, num_rows, 0.01);
      const bool is_bad = ids[i] < 0 || ids[i] >= num_rows;
      if (is_bad && first_bad < 0) first_bad = i;
      if (!is_bad) want.append(table.data() + ids[i] * row_bytes, static_cast<size_t>(row_bytes));
    }
    Array<char> out(ids.size() * row_bytes);
    const Status status =
        Gather<int64_t>(ExecOf(round), {table.data(), num_rows, row_bytes}, ids.view(), out.data());
    if (first_bad < 0) {
      ASSERT_TRUE(IsOk(status)) << "round " << round;
      ASSERT_EQ(out.bytes(), want) << "round " << round;
    } else {
      const std::string position = "position " + std::to_string(first_bad) + " ";
      ASSERT_TRUE(IsInvalid(status, {position.c_str()})) << "round " << round;
    }
  }
}

TEST(Fuzz, Unique) {
  Random random(71);
  for (int round = 0; round < kFuzzRounds; ++round) {
    Array<int64_t> ids(RandomInt(&random, 0, 40));
    for (int64_t i = 0; i < ids.size(); ++i) ids[i] = RandomIndex(&random, 9, 0.5);
    Array<int32_t> idx(ids.size(), -7);
    UniquePlan<int64_t> plan;
    ASSERT_TRUE(IsOk((PlanUnique<int64_t, int32_t>(SerialExec(), ids.view(), idx.span(), &plan))));
    Array<int64_t> unique_ids(plan.num_unique);
    Array<int32_t> counts(plan.num_unique);
    RunUnique<int64_t, int32_t>(plan, idx.view(), unique_ids.span(), counts.span());
    int32_t num_seen = 0;
    int64_t total = 0;
    for (int64_t i = 0; i < ids.size(); ++i) {
      ASSERT_TRUE(idx[i] >= 0 && idx[i] <= num_seen)
          << "round " << round;  // first occurrence order
      num_seen = std::max(num_seen, idx[i] + 1);
      ASSERT_EQ(unique_ids[idx[i]], ids[i]) << "round " << round;
    }
    for (const int32_t count : counts.values()) total += count;
    ASSERT_EQ(num_seen, plan.num_unique);
    ASSERT_EQ(total, ids.size());
    ASSERT_EQ(std::set<int64_t>(unique_ids.data(), unique_ids.data() + unique_ids.size()).size(),
              static_cast<size_t>(plan.num_unique));
  }
}

}  // namespace
}  // namespace fused_embedding
