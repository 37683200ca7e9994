// Training steps on tables in a GPU's memory, from ids to updated rows, against maps.

#include <cmath>
#include <map>

#include "tests/cpp/cuda_gpu_table_testing.h"
#include "tests/cpp/cuda_group_keys_testing.h"
#include "tf_ops/core/lookup/group/group_lookup_grad.h"
#include "tf_ops/core/lookup/group/table_group_lookup.cu.h"
#include "tf_ops/core/optimizer/apply.cu.h"

namespace fused_embedding {
namespace {

using CudaTableGroup = GpuTest;
using Row = std::vector<double>;

constexpr int64_t kDim = 5, kMatrixRows = 7;
constexpr double kSgdRate = 0.5;

double FirstNumber(int64_t key, int64_t d) {
  const int64_t row = (key % kMatrixRows + kMatrixRows) % kMatrixRows;
  return static_cast<double>(row * kDim + d) / 8;
}

constexpr double kNoPermission = -0.5;

// A table that admits keys at their `min_frequency`-th occurrence.
GpuTableConfig Config(int64_t min_frequency = 0) {
  GpuTableConfig config;
  config.min_frequency = min_frequency;
  config.no_permission_value = kNoPermission;
  config.max_count_bytes = 1 << 20;
  config.layout.dim = kDim;
  config.initializer.kind = InitializerKind::kMatrix;
  for (int64_t row = 0; row < kMatrixRows; ++row) {
    for (int64_t d = 0; d < kDim; ++d) {
      const float number = static_cast<float>(FirstNumber(row, d));
      const char* bytes = reinterpret_cast<const char*>(&number);
      config.initializer.matrix.insert(config.initializer.matrix.end(), bytes, bytes + 4);
    }
  }
  config.min_buckets = 4;
  config.max_bytes = BytesOfBuckets(config.layout, 16);
  return config;
}

// A table as a map, and what a column reads from it and adds to it.
struct Model {
  struct Entry {
    Row value;
    int64_t frequency = 0, version = 0;
  };
  int64_t min_frequency = 0;
  std::map<int64_t, Entry> rows;
  std::map<int64_t, int64_t> counts;  // of keys without a row

  static Row First(int64_t key) {
    Row first;
    for (int64_t d = 0; d < kDim; ++d) first.push_back(FirstNumber(key, d));
    return first;
  }
  Row Read(int64_t key) const {
    if (const auto found = rows.find(key); found != rows.end()) return found->second.value;
    return min_frequency > 0 ? Row(kDim, kNoPermission) : First(key);
  }
  void Use(int64_t key, int64_t count, int64_t step) {
    if (const auto found = rows.find(key); found != rows.end()) {
      found->second.frequency += count;
      found->second.version = step;
    } else if ((counts[key] += count) >= min_frequency) {
      rows[key] = {First(key), counts[key], step};
    }
  }
};

// The pairs of a row of the batch: keys, and their share of the result.
using Shares = std::vector<std::pair<int64_t, double>>;

std::vector<Shares> SharesOfRows(const KeyColumnCase& column) {
  std::vector<Shares> rows(static_cast<size_t>(column.num_rows));
  for (size_t i = 0; i < column.ids.size(); ++i) {
    const double weight = column.weights.empty() ? 1 : static_cast<double>(column.weights[i]);
    if (column.prune && (column.ids[i] < 0 || !(weight > 0))) continue;
    rows[static_cast<size_t>(column.row_ids[i])].emplace_back(column.ids[i], weight);
  }
  for (Shares& row : rows) {
    if (row.empty() && column.default_id >= 0) row = {{column.default_id, 1}};
    double sum = 0;
    for (const auto& [key, weight] : row) sum += weight;
    for (auto& share : row) share.second = sum == 0 ? 0 : share.second / sum;
  }
  return rows;
}

// Tables in device memory, and as maps.
class Tables {
 public:
  Tables(const GpuExec& gpu, size_t num_tables) : gpu_(gpu), models_(num_tables) {
    for (size_t t = 0; t < num_tables; ++t) {
      models_[t].min_frequency = 2 * static_cast<int64_t>(t % 2);
      owners_.push_back(MakeGpuTable(gpu, Config(models_[t].min_frequency)));
      tables_.push_back(owners_.back().get());
    }
  }

  // A lookup, and a step of gradient descent if it inserts.
  void Step(const std::vector<KeyColumnCase>& cases, int64_t step, bool insert, Random* random) {
    const DeviceKeyColumns columns(cases);
    const GpuUseLists uses = {{}, {}, step};
    const std::vector<int64_t> steps = uses.StepsOf(tables_.size());
    const GpuTableGroupInput<float> in = {columns.input(num_tables()), AsSpan(tables_), insert,
                                          AsSpan(steps)};
    const int64_t num_waits = NumWaits();
    GpuTableGroupPlan plan;
    ASSERT_TRUE(IsOk(PlanTableGroupLookup(gpu_, in, &plan)));
    const int64_t num_planned = NumWaits() - num_waits;
    const bool is_any_new = plan.training.insert.order.size() > 0;
    EXPECT_EQ(num_planned, !kIsEmulated ? 0 : !insert ? 1 : is_any_new ? 3 : 2);
    if (insert) Count(cases, uses);
    Outputs out(cases, plan, models_.size());
    ASSERT_TRUE(IsOk(RunTableGroupLookup<float>(gpu_, in, plan, out.view())));
    EXPECT_EQ(NumWaits() - num_waits, num_planned) << "a Run waits";
    ExpectCombined(cases, out);
    ExpectKeysOfTables(plan, out);
    if (insert) Train(cases, in, plan, out, random);
    ExpectContent();
  }

 private:
  struct Outputs {
    Outputs(const std::vector<KeyColumnCase>& cases, const GpuTableGroupPlan& plan,
            size_t num_tables)
        : handles(plan.num_keys()) {
      for (size_t t = 0; t < num_tables; ++t) {
        rows.emplace_back(plan.num_keys(t) * kDim);
        row_pointers.push_back(rows.back().data());
      }
      for (const KeyColumnCase& column : cases) {
        combined.emplace_back(column.num_rows * kDim);
        combined_out.push_back({combined.back().data(), kDim});
      }
    }
    GpuTableGroupOutput<float> view() const {
      return {handles.span(), AsSpan(row_pointers), AsSpan(combined_out)};
    }

    DeviceArray<int64_t> handles;
    std::vector<DeviceArray<float>> rows, combined;
    std::vector<float*> row_pointers;
    std::vector<CombinedOut<float>> combined_out;
  };

  int64_t num_tables() const { return static_cast<int64_t>(models_.size()); }

  void Count(const std::vector<KeyColumnCase>& cases, const GpuUseLists& uses) {
    const FoundKeys keys = WantedKeys(cases, num_tables());
    for (size_t t = 0; t < models_.size(); ++t) {
      for (size_t i = 0; i < keys.keys[t].size(); ++i) {
        models_[t].Use(keys.keys[t][i], keys.counts[t][i], uses.StepOf(t));
      }
    }
  }

  void ExpectKeysOfTables(const GpuTableGroupPlan& plan, const Outputs& out) const {
    std::vector<DeviceArray<int64_t>> keys, handles;
    std::vector<int64_t*> key_pointers, handle_pointers;
    for (size_t t = 0; t < models_.size(); ++t) {
      keys.emplace_back(plan.num_keys(t));
      handles.emplace_back(plan.num_keys(t));
      key_pointers.push_back(keys.back().data());
      handle_pointers.push_back(handles.back().data());
    }
    const int64_t num_waits = NumWaits();
    ASSERT_TRUE(IsOk(CopyKeysOfTables(gpu_, plan, out.handles.view(), AsSpan(key_pointers),
                                      AsSpan(handle_pointers))));
    EXPECT_EQ(NumWaits(), num_waits);
    Ints all_keys, all_handles;
    for (size_t t = 0; t < models_.size(); ++t) {
      const Ints of_table = keys[t].ToHost().values(), found = handles[t].ToHost().values();
      all_keys.insert(all_keys.end(), of_table.begin(), of_table.end());
      all_handles.insert(all_handles.end(), found.begin(), found.end());
    }
    Ints want = OnHost(plan.keys.keys).values();
    want.resize(static_cast<size_t>(plan.num_keys()));
    EXPECT_EQ(all_keys, want);
    EXPECT_EQ(all_handles, out.handles.ToHost().values());
  }

  void ExpectCombined(const std::vector<KeyColumnCase>& cases, const Outputs& out) const {
    for (size_t c = 0; c < cases.size(); ++c) {
      const Model& model = models_[static_cast<size_t>(cases[c].table)];
      const std::vector<Shares> rows = SharesOfRows(cases[c]);
      const Array<float> got = out.combined[c].ToHost();
      for (size_t r = 0; r < rows.size(); ++r) {
        Row want(kDim);
        for (const auto& [key, share] : rows[r]) {
          const Row value = model.Read(key);
          for (size_t d = 0; d < want.size(); ++d) want[d] += share * value[d];
        }
        for (size_t d = 0; d < want.size(); ++d) {
          ASSERT_NEAR(got[static_cast<int64_t>(r * want.size() + d)], want[d], 1e-4)
              << "column " << c << ", row " << r;
        }
      }
    }
  }

  // The gradient by positions, and the same rows where unique ids are searched for.
  std::vector<DeviceArray<float>> Gradient(const GroupGradInput<float>& in) const {
    GroupGradInput<float> searched = in;
    searched.ids_are_positions = false;
    std::vector<DeviceArray<float>> rows = RowsGrad(in);
    const std::vector<DeviceArray<float>> want = RowsGrad(searched);
    for (size_t t = 0; t < rows.size(); ++t) {
      EXPECT_EQ(rows[t].ToHost().bytes(), want[t].ToHost().bytes()) << "table " << t;
    }
    return rows;
  }

  std::vector<DeviceArray<float>> RowsGrad(const GroupGradInput<float>& in) const {
    GpuGroupGradPlan<float> plan;
    const int64_t num_waits = NumWaits();
    EXPECT_TRUE(IsOk(PlanGroupLookupGrad(gpu_, in, &plan)));
    EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? 1 : 0);
    std::vector<DeviceArray<float>> rows;
    std::vector<DeviceArray<int64_t>> ids;
    std::vector<TableGrad<float>> out;
    for (const auto& table : plan.tables) {
      rows.emplace_back(table.num_unique * kDim);
      ids.emplace_back(table.num_unique);
      out.push_back({ids.back().data(), rows.back().data()});
    }
    EXPECT_TRUE(IsOk(RunGroupLookupGrad<float>(gpu_, plan, AsSpan(std::as_const(out)))));
    for (const DeviceArray<int64_t>& of_table : ids) {
      const Ints got = of_table.ToHost().values();
      for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], static_cast<int64_t>(i));
    }
    return rows;
  }

  void Train(const std::vector<KeyColumnCase>& cases, const GpuTableGroupInput<float>& in,
             const GpuTableGroupPlan& plan, const Outputs& out, Random* random) {
    std::vector<DeviceArray<float>> memory;
    std::vector<CombinedGrad<float>> grads;
    std::vector<std::map<int64_t, Row>> sums(models_.size());
    for (const KeyColumnCase& column : cases) {
      Array<float> grad(column.num_rows * kDim);
      for (float& g : grad.span()) g = static_cast<float>(RandomInt(random, -8, 8)) / 8;
      const std::vector<Shares> rows = SharesOfRows(column);
      for (size_t r = 0; r < rows.size(); ++r) {
        for (const auto& [key, share] : rows[r]) {
          Row& sum = sums[static_cast<size_t>(column.table)][key];
          sum.resize(kDim);
          for (size_t d = 0; d < sum.size(); ++d) {
            sum[d] += share * static_cast<double>(grad[static_cast<int64_t>(r * sum.size() + d)]);
          }
        }
      }
      memory.emplace_back(grad);
      grads.push_back({memory.back().data(), kDim});
    }
    std::vector<GroupColumn<float>> positions =
        PositionColumns(in.keys, plan, AsSpan(out.row_pointers));
    GroupGradInput<float> grad_in = {AsSpan(std::as_const(positions)), AsSpan(std::as_const(grads)),
                                     in.keys.table_of_column, num_tables(), true};
    const std::vector<DeviceArray<float>> rows_grad = Gradient(grad_in);
    for (GroupColumn<float>& column : positions) column.max_norm = 3;
    (void)Gradient(grad_in);
    Apply(plan, out, rows_grad);
    for (size_t t = 0; t < models_.size(); ++t) {
      for (const auto& [key, sum] : sums[t]) {
        const auto row = models_[t].rows.find(key);
        if (row == models_[t].rows.end()) continue;
        Row& value = row->second.value;
        for (size_t d = 0; d < value.size(); ++d) value[d] -= kSgdRate * sum[d];
      }
    }
  }

  void Apply(const GpuTableGroupPlan& plan, const Outputs& out,
             const std::vector<DeviceArray<float>>& rows_grad) const {
    RuleInfo rule;
    ASSERT_TRUE(IsOk(FindRule("sgd", &rule)));
    std::vector<GpuApplyInput> inputs;
    int64_t first = 0;
    for (size_t t = 0; t < tables_.size(); ++t) {
      const int64_t n = plan.num_keys(t);
      inputs.push_back({tables_[t],
                        {out.handles.data() + first, n},
                        reinterpret_cast<const char*>(rows_grad[t].data()),
                        "Own"});
      first += n;
    }
    ASSERT_TRUE(IsOk(fused_embedding::Apply(gpu_, rule, {&kSgdRate, 1}, AsSpan(inputs))));
  }

  void ExpectContent() const {
    for (size_t t = 0; t < models_.size(); ++t) {
      const std::map<int64_t, GpuRow> rows = ByKey(Export(gpu_, *tables_[t]));
      ASSERT_EQ(rows.size(), models_[t].rows.size());
      for (const auto& [key, want] : models_[t].rows) {
        const GpuRow& row = rows.at(key);
        EXPECT_EQ(row.frequency, want.frequency) << "key " << key;
        EXPECT_EQ(row.version, want.version) << "key " << key;
        float value[kDim];
        std::memcpy(value, row.bytes.data(), sizeof(value));
        for (size_t d = 0; d < want.value.size(); ++d) {
          ASSERT_NEAR(value[d], want.value[d], 1e-4) << "key " << key;
        }
      }
    }
  }

  const GpuExec& gpu_;
  std::vector<std::unique_ptr<GpuTable>> owners_;
  std::vector<GpuTable*> tables_;
  std::vector<Model> models_;
};

std::vector<KeyColumnCase> RandomColumns(Random* random, int64_t num_tables) {
  std::vector<KeyColumnCase> columns;
  for (int64_t c = RandomInt(random, 1, 6); c > 0; --c) {
    columns.push_back(RandomKeyColumn(random, num_tables, 12));
    columns.back().dim = kDim;
  }
  return columns;
}

TEST_F(CudaTableGroup, TrainsAsMapsInAnyOrderOfThreads) {
  for (const uint64_t seed : OrderSeeds()) {
    Random random(1);
    for (int round = 0; round < NumCases(10); ++round) {
      SCOPED_TRACE(testing::Message() << "order " << seed << ", round " << round);
      const int64_t num_tables = RandomInt(&random, 1, 3);
      Tables tables(gpu, static_cast<size_t>(num_tables));
      ShuffleOrder(seed);
      for (int64_t step = 0; step < 6; ++step) {
        tables.Step(RandomColumns(&random, num_tables), step, step % 3 != 2, &random);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaTableGroup, TakesColumnsWithoutIds) {
  KeyColumnCase no_rows{{}, {}, 0}, no_ids{{}, {}, 3}, ids{{4, 4, 5}, {0, 1, 1}, 2};
  no_rows.dim = no_ids.dim = ids.dim = kDim;
  ids.table = 1;
  Random random(1);
  Tables tables(gpu, 2);
  for (int64_t step = 0; step < 3; ++step) {
    for (const bool insert : {false, true}) {
      tables.Step({no_rows}, step, insert, &random);
      tables.Step({no_ids, no_rows}, step, insert, &random);
      tables.Step({no_ids, ids}, step, insert, &random);
      if (HasFatalFailure()) return;
    }
  }
}

// What goes wrong in a plan leaves the tables as they are.
TEST_F(CudaTableGroup, NamesWhatDoesNotFit) {
  const auto table = MakeGpuTable(gpu, Config());
  GpuTable* const tables[] = {table.get(), table.get()};
  KeyColumnCase column{{1}, {0}, 1};
  column.dim = kDim + 1;
  GpuTableGroupPlan plan;
  const DeviceKeyColumns wide({column});
  Status status = PlanTableGroupLookup<float>(gpu, {wide.input(1), {tables, 1}, true}, &plan);
  EXPECT_TRUE(IsInvalid(status, {"column 0", "dim 6", "has 5"}));
  column.dim = kDim;
  const DeviceKeyColumns columns({column});
  (void)(status = PlanTableGroupLookup<float>(gpu, {columns.input(2), {tables, 1}, true}, &plan));
  EXPECT_TRUE(IsInvalid(status, {"2 tables", "got 1"}));
  (void)(status = PlanTableGroupLookup<float>(gpu, {columns.input(2), {tables, 2}, true}, &plan));
  EXPECT_TRUE(IsInvalid(status, {"tables[1]", "occurs twice"}));
  EXPECT_TRUE(Export(gpu, *table).empty());
}

TEST_F(CudaTableGroup, RefusesAGradientOfMoreRowsThanPositions) {
  const DeviceArray<int64_t> ids(Array<int64_t>::Of(Ints{0})), rows(Array<int64_t>::Of(Ints{0}));
  const DeviceArray<float> table(2 * kDim), grads(kDim);
  GroupColumn<float> column;
  column.ids = ids.view();
  column.row_ids = {rows.data(), 1, 1, "row_ids"};
  column.num_rows = 1;
  column.dim = kDim;
  column.fill = false;
  column.table = table.data();
  column.table_rows = 2;
  const CombinedGrad<float> grad = {grads.data(), kDim};
  const int64_t table_number = 0;
  GpuGroupGradPlan<float> plan;
  const Status status = PlanGroupLookupGrad<float>(
      gpu, {{&column, 1}, {&grad, 1}, {&table_number, 1}, 1, true}, &plan);
  EXPECT_TRUE(IsInvalid(status, {"2 of them", "only 1 ids"}));
}

}  // namespace
}  // namespace fused_embedding
