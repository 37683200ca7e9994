// Inputs that make no sense, memory that runs out, and what is counted: memory, waits, launches.

#include "tests/cpp/cuda_gpu_table_model.h"

namespace fused_embedding {
namespace {

using CudaGpuTableFaults = GpuTest;

// One use of each key, at step 2 of each table.
GpuUses UsesOfStep2(size_t num_tables) {
  static const std::vector<int64_t> steps(16, 2);
  return {{}, {}, {steps.data(), static_cast<int64_t>(num_tables)}};
}

std::unique_ptr<GpuTable> TableOfKeys(const GpuExec& gpu, const GpuTableConfig& config,
                                      const std::vector<int64_t>& keys) {
  std::unique_ptr<GpuTable> table = MakeGpuTable(gpu, config);
  FindOrInsert(gpu, {table.get()}, {keys}, {{}, std::vector<uint64_t>(keys.size(), 5), 1});
  return table;
}

TEST_F(CudaGpuTableFaults, RefusesConfigsThatMakeNoSense) {
  const GpuTableConfig good = TestGpuConfig(GpuEviction::kLru, 4);
  EXPECT_TRUE(IsOk(CheckGpuTableConfig(good)));
  const auto check = [&](const auto& change) {
    GpuTableConfig config = good;
    change(&config);
    std::unique_ptr<GpuTable> table;
    const Status status = GpuTable::Create(gpu, config, &table);
    EXPECT_EQ(table, nullptr);
    return status;
  };
  EXPECT_TRUE(IsInvalid(check([](auto* c) { c->layout.dim = 0; }), {"embedding_dim", "got 0"}));
  EXPECT_TRUE(IsInvalid(check([](auto* c) { c->layout.slots[0].width = 0; }), {"accumulator"}));
  for (const int64_t min_buckets : {int64_t{0}, int64_t{3}, int64_t{-4}, int64_t{1} << 32}) {
    EXPECT_TRUE(IsInvalid(check([&](auto* c) { c->min_buckets = min_buckets; }),
                          {"min_buckets", "power of two", std::to_string(min_buckets).c_str()}));
  }
  EXPECT_TRUE(IsInvalid(check([](auto* c) { c->min_buckets = 8; }), {"max_bytes", "8 buckets"}));
  EXPECT_TRUE(IsInvalid(check([](auto* c) { c->max_bytes = -1; }), {"max_bytes = -1"}));
  EXPECT_TRUE(IsInvalid(check([](auto* c) { c->initializer.b = -2; }), {"uniform"}));
}

TEST_F(CudaGpuTableFaults, RefusesBatchesThatMakeNoSense) {
  const auto table = MakeGpuTable(gpu, TestGpuConfig(GpuEviction::kGiven, 4));
  const auto other = MakeGpuTable(gpu, TestGpuConfig(GpuEviction::kLru, 4));
  const DeviceArray<int64_t> keys(Array<int64_t>{1, 2, 3}), handles(3);
  const auto find = [&](const std::vector<GpuTable*>& tables, const std::vector<int64_t>& ends,
                        const GpuLookupOutput& out) {
    return FindInGpuTables(gpu, {AsSpan(tables), AsSpan(ends), keys.view()}, out);
  };
  const GpuLookupOutput out = {handles.span()};
  EXPECT_TRUE(IsOk(find({table.get(), other.get()}, {1, 3}, out)));
  EXPECT_TRUE(IsInvalid(find({table.get()}, {1, 3}, out), {"ends", "1 tables", "got 2"}));
  EXPECT_TRUE(IsInvalid(find({table.get(), other.get()}, {4, 3}, out), {"ends[1] = 3", "4"}));
  EXPECT_TRUE(IsInvalid(find({table.get()}, {-1}, out), {"ends[0] = -1"}));
  EXPECT_TRUE(IsInvalid(find({table.get()}, {2}, out), {"number of keys, 3", "got 2"}));
  EXPECT_TRUE(IsInvalid(find({}, {}, out), {"number of keys, 3", "got 0"}));
  EXPECT_TRUE(IsInvalid(find({table.get(), nullptr}, {1, 3}, out), {"tables[1]", "null"}));
  EXPECT_TRUE(IsInvalid(find({table.get(), table.get()}, {1, 3}, out), {"tables[1]", "twice"}));
  EXPECT_TRUE(IsInvalid(find({table.get()}, {3}, {{handles.data(), 2}}), {"handles", "got 2"}));
  char* const values[] = {nullptr, nullptr};
  EXPECT_TRUE(IsInvalid(find({table.get()}, {3}, {handles.span(), {values, 2}}), {"got 2"}));
  EXPECT_TRUE(IsInvalid(find({table.get()}, {3}, {handles.span(), {values, 1}}), {"values[0]"}));
  const int64_t too_many = int64_t{1} << 31;  // not read
  EXPECT_TRUE(IsInvalid(FindInGpuTables(gpu, {{}, {}, {nullptr, too_many}}, out), {"2147483648"}));
  const DeviceArray<bool> is_erased(2);
  const DeviceKeys of_table({table.get()}, {{1, 2, 3}});
  EXPECT_TRUE(
      IsInvalid(EraseFromGpuTables(gpu, of_table.view(), is_erased.span()), {"is_erased", "3"}));
}

TEST_F(CudaGpuTableFaults, RefusesRunsThatDoNotFitTheirPlan) {
  const auto table = MakeGpuTable(gpu, TestGpuConfig(GpuEviction::kGiven, 4));
  const DeviceKeys keys({table.get()}, {{1, 2, 3}}), fewer({table.get()}, {{1, 2}});
  const DeviceArray<int64_t> handles(3);
  const DeviceArray<uint64_t> scores(Array<uint64_t>{1, 2, 3});
  const DeviceArray<int32_t> counts(2), num_rows(1);
  const DeviceArray<uint32_t> numbers(Array<uint32_t>{4, 5, 6});
  GpuInsertPlan plan;
  const auto run = [&](const GpuTableKeys& in, const GpuUses& uses, const GpuEvicted& evicted) {
    return RunGpuFindOrInsert(gpu, in, uses, plan, evicted, {{handles.data(), in.keys.size}});
  };
  const int64_t steps[2] = {1, 1};
  const GpuUses uses = {{}, scores.view(), {steps, 1}};
  const auto is_stale = [&](const Status& status) {
    return Fails(status, StatusCode::kFailedPrecondition, {"PlanGpuInsert"});
  };
  EXPECT_TRUE(is_stale(run(keys.view(), uses, {})));  // no plan yet
  ASSERT_TRUE(IsOk(PlanGpuInsert(gpu, keys.view(), &plan)));
  EXPECT_TRUE(is_stale(run(fewer.view(), uses, {})));
  EXPECT_TRUE(IsInvalid(run(keys.view(), {}, {}), {"table 0", "scores", "got 0"}));
  EXPECT_TRUE(
      IsInvalid(run(keys.view(), {counts.view(), scores.view(), {steps, 1}}, {}), {"counts", "3"}));
  for (const int64_t num_steps : {0, 2}) {
    EXPECT_TRUE(IsInvalid(run(keys.view(), {{}, scores.view(), {steps, num_steps}}, {}),
                          {"steps", "each of 1 tables", num_steps == 0 ? "got 0" : "got 2"}));
  }
  const GpuRows rows[2] = {};
  EXPECT_TRUE(IsInvalid(run(keys.view(), uses, {{rows, 2}, num_rows.span()}), {"2 and 1"}));
  GpuInsertPlan upsert_plan;
  const auto upsert = [&](const GpuContent& content) {
    return RunGpuUpsert(gpu, keys.view(), content, upsert_plan, {});
  };
  const auto is_stale_upsert = [&](const Status& status) {
    return Fails(status, StatusCode::kFailedPrecondition, {"PlanGpuUpsert"});
  };
  EXPECT_TRUE(is_stale_upsert(RunGpuUpsert(gpu, keys.view(), {}, plan, {})));  // of the other kind
  ASSERT_TRUE(IsOk(PlanGpuUpsert(gpu, keys.view(), &upsert_plan)));
  EXPECT_TRUE(
      is_stale(RunGpuFindOrInsert(gpu, keys.view(), uses, upsert_plan, {}, {handles.span()})));
  EXPECT_TRUE(
      IsInvalid(upsert({numbers.view(), numbers.view(), scores.view(), {}}), {"rows of 1"}));
  EXPECT_TRUE(IsInvalid(upsert({numbers.view(), numbers.view(), {}, {}}), {"scores"}));
  const char* const no_rows[] = {nullptr};
  EXPECT_TRUE(IsInvalid(upsert({numbers.view(), numbers.view(), scores.view(), {no_rows, 1}}),
                        {"rows[0]", "null"}));
  EXPECT_TRUE(Export(gpu, *table).empty());
  EXPECT_TRUE(IsOk(run(keys.view(), uses, {})));
  EXPECT_TRUE(is_stale(run(keys.view(), uses, {})));  // the table has changed
  EXPECT_TRUE(is_stale_upsert(upsert({})));
}

TEST_F(CudaGpuTableFaults, TakesBatchesWithoutKeysAndCallsWithoutTables) {
  const auto table = TableOfKeys(gpu, TestGpuConfig(GpuEviction::kLru, 4), {1, 2});
  for (const std::vector<GpuTable*>& tables :
       {std::vector<GpuTable*>{table.get()}, std::vector<GpuTable*>{}}) {
    const KeyLists lists(tables.size());
    for (const GpuLookup& lookup : Find(gpu, tables, lists)) EXPECT_TRUE(lookup.handles.empty());
    for (const GpuLookup& lookup : FindOrInsert(gpu, tables, lists, {})) {
      EXPECT_TRUE(lookup.handles.empty());
    }
    for (const KeyedGpuRows& evicted :
         Upsert(gpu, tables, std::vector<KeyedGpuRows>(lists.size()))) {
      EXPECT_TRUE(evicted.empty());
    }
    EXPECT_TRUE(Erase(gpu, tables, lists).empty());
  }
  EXPECT_EQ(Export(gpu, *table).size(), 2u);
}

TEST_F(CudaGpuTableFaults, EvictsWithoutAnOutputForEvictedRows) {
  const GpuTableConfig config = TestGpuConfig(GpuEviction::kLru, 1);
  const auto table = TableOfKeys(gpu, config, KeysOfBucket(config, 0, 0, kEntries));
  const std::vector<int64_t> new_keys = KeysOfBucket(config, 0, 100, 3);
  const DeviceKeys keys({table.get()}, {new_keys});
  const DeviceArray<int64_t> handles(3);
  GpuInsertPlan plan;
  ASSERT_TRUE(IsOk(PlanGpuInsert(gpu, keys.view(), &plan)));
  EXPECT_EQ(plan.num_evicted, std::vector<int64_t>{3});
  ASSERT_TRUE(
      IsOk(RunGpuFindOrInsert(gpu, keys.view(), UsesOfStep2(1), plan, {}, {handles.span()})));
  const std::map<int64_t, GpuRow> rows = ByKey(Export(gpu, *table));
  EXPECT_EQ(rows.size(), static_cast<size_t>(kEntries));
  for (const int64_t key : new_keys) EXPECT_EQ(rows.count(key), 1u);
}

// The plan is for one eviction; its keys change before the run, which then evicts three.
TEST_F(CudaGpuTableFaults, EvictedRowsStayWithinThePlannedArrays) {
  const GpuTableConfig config = TestGpuConfig(GpuEviction::kLru, 1);
  const std::vector<int64_t> old_keys = KeysOfBucket(config, 0, 0, kEntries);
  const auto table = TableOfKeys(gpu, config, old_keys);
  GpuTable* const pointer = table.get();
  const int64_t end = 3;
  const DeviceArray<int64_t> keys(
      Array<int64_t>{KeyOfBucket(config, 0, 100), old_keys[0], old_keys[1]});
  const GpuTableKeys in = {{&pointer, 1}, {&end, 1}, keys.view()};
  GpuInsertPlan plan;
  ASSERT_TRUE(IsOk(PlanGpuInsert(gpu, in, &plan)));
  ASSERT_EQ(plan.num_evicted, std::vector<int64_t>{1});
  const Array<int64_t> others = Array<int64_t>::Of(KeysOfBucket(config, 0, 100, 3));
  Cuda(cudaMemcpyAsync(keys.data(), others.span().data, 3 * sizeof(int64_t), cudaMemcpyHostToDevice,
                       nullptr));
  const RowArrays arrays(3, table->row_bytes());
  const GpuRows rows = arrays.rows();
  const DeviceArray<int32_t> num_rows(1);
  const DeviceArray<int64_t> handles(3);
  ASSERT_TRUE(IsOk(RunGpuFindOrInsert(gpu, in, UsesOfStep2(1), plan, {{&rows, 1}, num_rows.span()},
                                      {handles.span()})));
  const int64_t untouched = static_cast<int64_t>(0xcdcdcdcdcdcdcdcd);
  const std::vector<int64_t> evicted = KeysOf(arrays.First(3));
  EXPECT_NE(evicted[0], untouched);
  EXPECT_EQ(evicted[1], untouched);
  EXPECT_EQ(evicted[2], untouched);
}

TEST_F(CudaGpuTableFaults, FrequenciesAndVersionsSaturate) {
  const auto table = MakeGpuTable(gpu, TestGpuConfig(GpuEviction::kLru, 1));
  const int32_t most = std::numeric_limits<int32_t>::max();
  for (int i = 0; i < 3; ++i)
    FindOrInsert(gpu, {table.get()}, {{7, 8}}, {{most, -5}, {}, kInt64Max});
  const std::map<int64_t, GpuRow> rows = ByKey(Export(gpu, *table));
  EXPECT_EQ(rows.at(7).frequency, 0xffffffffu);
  EXPECT_EQ(rows.at(8).frequency, 0u);  // a negative count is none
  EXPECT_EQ(rows.at(7).version, kDeadVersion - 1);
}

TEST_F(CudaGpuTableFaults, RefusesExportsThatDoNotFitTheirTable) {
  const GpuTableConfig config = TestGpuConfig(GpuEviction::kLru, 1);
  const auto table = TableOfKeys(gpu, config, {1, 2, 3});
  GpuExportPlan plan;
  const std::vector<std::pair<int64_t, int64_t>> outside = {{-1, 1}, {0, 2}, {1, 0}};
  for (const auto& [begin, end] : outside) {
    EXPECT_TRUE(IsInvalid(PlanGpuExport(gpu, *table, begin, end, &plan), {"buckets [", "[0, 1)"}));
  }
  EXPECT_TRUE(Fails(RunGpuExport(gpu, *table, plan, {}), StatusCode::kFailedPrecondition,
                    {"PlanGpuExport"}));
  ASSERT_TRUE(IsOk(PlanGpuExport(gpu, *table, 0, 1, &plan)));
  const RowArrays arrays(plan.num_rows, table->row_bytes());
  GpuRows rows = arrays.rows();
  rows.rows += 4;
  EXPECT_TRUE(IsInvalid(RunGpuExport(gpu, *table, plan, rows), {"aligned to 16"}));
  EXPECT_TRUE(IsOk(RunGpuExport(gpu, *table, plan, {})));  // nothing is wanted
  Erase(gpu, {table.get()}, {{2}});
  EXPECT_TRUE(Fails(RunGpuExport(gpu, *table, plan, arrays.rows()), StatusCode::kFailedPrecondition,
                    {"changed"}));
}

// Each allocation of a batch that doubles two tables and evicts.
TEST_F(CudaGpuTableFaults, ATableIsWholeWhenMemoryRunsOut) {
  const GpuTableConfig growing = TestGpuConfig(GpuEviction::kLru, 4);
  const GpuTableConfig full = TestGpuConfig(GpuEviction::kLru, 1);
  std::vector<int64_t> old_keys;
  for (uint64_t i = 0; i < kEntries - 2; ++i) old_keys.push_back(KeyOfBucket(growing, i % 4, i));
  const KeyLists lists(3, {old_keys[5], KeyOfBucket(growing, 2, 70), KeyOfBucket(growing, 1, 71),
                           KeyOfBucket(growing, 3, 72)});
  bool has_failed = true;
  int64_t num_allocations = 0, num_grown = 0;
  for (; has_failed; ++num_allocations) {
    CountingGpu counting;
    std::vector<std::unique_ptr<GpuTable>> tables;
    for (const GpuTableConfig& config : {growing, full, growing}) {
      tables.push_back(TableOfKeys(counting, config, old_keys));
    }
    const std::vector<GpuTable*> pointers = {tables[0].get(), tables[1].get(), tables[2].get()};
    const DeviceKeys keys(pointers, lists);
    const Lookups lookups(pointers, lists);
    const auto insert = [&] {
      GpuInsertPlan plan;
      FE_RETURN_IF_ERROR(PlanGpuInsert(counting, keys.view(), &plan));
      const EvictedArrays evicted(pointers, plan);
      const Status run = RunGpuFindOrInsert(counting, keys.view(), UsesOfStep2(pointers.size()),
                                            plan, evicted.out(), lookups.out());
      Cuda(cudaStreamSynchronize(nullptr));
      return run;
    };
    counting.FailAfter(num_allocations);
    const Status status = insert();
    EXPECT_EQ(status.ok(), !counting.has_failed());
    EXPECT_TRUE(status.ok() || Fails(status, StatusCode::kResourceExhausted, {"device memory"}));
    has_failed = counting.has_failed();
    counting.FailAfter(-1);
    for (size_t t = 0; t < tables.size(); ++t) {
      num_grown += tables[t]->num_buckets() > 1;
      GpuTableModel before(tables[t]->config()), after(tables[t]->config());
      for (GpuTableModel* model : {&before, &after}) {
        ASSERT_TRUE(model->Plan(old_keys));
        model->FindOrInsert(old_keys, nullptr, nullptr, 1);
      }
      ASSERT_TRUE(after.Plan(lists[t]));
      after.FindOrInsert(lists[t], nullptr, nullptr, 2);
      const std::map<int64_t, GpuRow> rows = ByKey(Export(counting, *tables[t]));
      EXPECT_TRUE(rows == before.rows() || rows == after.rows())
          << "allocation " << num_allocations << ", table " << t;
      const GpuLookup found = Find(counting, {pointers[t]}, {old_keys})[0];
      for (size_t i = 0; i < old_keys.size(); ++i) {
        EXPECT_EQ(found.handles[i] >= 0, rows.count(old_keys[i]) > 0);
      }
    }
  }
  EXPECT_GT(num_allocations, 25);
  EXPECT_GT(num_grown, 0);
}

TEST_F(CudaGpuTableFaults, HoldsTheMemoryThatItSays) {
  CountingGpu counting;
  const GpuTableConfig config = TestGpuConfig(GpuEviction::kLru, 16);
  {
    const auto table = MakeGpuTable(counting, config);
    const int64_t other_bytes = counting.num_bytes() - table->memory_bytes();
    EXPECT_LT(other_bytes, 100);  // the initial slots
    for (int64_t batch = 0; batch < 30; ++batch) {
      std::vector<int64_t> keys;
      for (int64_t i = 0; i < 40; ++i) keys.push_back(40 * batch + i);
      FindOrInsert(counting, {table.get()}, {keys}, {});
      EXPECT_EQ(counting.num_bytes(), table->memory_bytes() + other_bytes);
      EXPECT_LE(table->memory_bytes(), config.max_bytes);
    }
    EXPECT_EQ(table->memory_bytes(), config.max_bytes);
  }
  EXPECT_EQ(counting.num_bytes(), 0);
  for (const int64_t num_left : {0, 1}) {  // the initial slots, the buckets
    counting.FailAfter(num_left);
    std::unique_ptr<GpuTable> table;
    EXPECT_TRUE(Fails(GpuTable::Create(counting, config, &table), StatusCode::kResourceExhausted,
                      {"device memory"}));
    EXPECT_EQ(counting.num_bytes(), 0);
  }
}

TEST_F(CudaGpuTableFaults, AnExportRestoresATable) {
  GpuTableConfig config = TestGpuConfig(GpuEviction::kGiven, 16);
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < 300; ++i) keys.push_back(i * i);
  const auto table = TableOfKeys(gpu, config, keys);
  const KeyedGpuRows rows = Export(gpu, *table, 5);
  EXPECT_EQ(rows.size(), keys.size());
  config.hash_key = 99;  // keys are in other buckets
  config.initializer.seed = 8;
  const auto restored = MakeGpuTable(gpu, config);
  for (size_t begin = 0; begin < rows.size(); begin += 100) {
    const KeyedGpuRows piece(rows.begin() + static_cast<int64_t>(begin),
                             rows.begin() + static_cast<int64_t>(begin) + 100);
    EXPECT_TRUE(Upsert(gpu, {restored.get()}, {piece})[0].empty());
  }
  EXPECT_EQ(ByKey(Export(gpu, *restored)), ByKey(rows));
}

#ifdef FE_CUDA_EMULATION
TEST_F(CudaGpuTableFaults, LaunchesAndWaitsDoNotDependOnTheNumberOfTables) {
  const std::vector<int64_t> some_new = {3, 4, 5}, none_new = {3, 1, 2};
  const auto launches = [&](size_t num_tables, const auto& call,
                            const std::vector<int64_t>& keys_of_table) {
    std::vector<std::unique_ptr<GpuTable>> tables;
    std::vector<GpuTable*> pointers;
    KeyLists lists;
    for (size_t t = 0; t < num_tables; ++t) {
      tables.push_back(TableOfKeys(gpu, TestGpuConfig(GpuEviction::kLru, 4), {1, 2, 3}));
      pointers.push_back(tables.back().get());
      lists.push_back(keys_of_table);
    }
    const int64_t before = cuda_emulation::NumLaunches();
    call(pointers, lists);
    Cuda(cudaStreamSynchronize(nullptr));
    return cuda_emulation::NumLaunches() - before;
  };
  const auto find = [&](const auto& tables, const auto& lists) { Find(gpu, tables, lists); };
  const auto erase = [&](const auto& tables, const auto& lists) { Erase(gpu, tables, lists); };
  const auto insert = [&](const auto& tables, const auto& lists) {
    const DeviceKeys keys(tables, lists);
    const int64_t num_waits = NumWaits(), want_waits = lists[0] == none_new ? 1 : 2;
    GpuInsertPlan plan;
    EXPECT_TRUE(IsOk(PlanGpuInsert(gpu, keys.view(), &plan)));
    EXPECT_EQ(NumWaits() - num_waits, want_waits);
    const EvictedArrays evicted(tables, plan);
    const Lookups lookups(tables, lists);
    EXPECT_TRUE(IsOk(RunGpuFindOrInsert(gpu, keys.view(), UsesOfStep2(tables.size()), plan,
                                        evicted.out(), lookups.out())));
    EXPECT_EQ(NumWaits() - num_waits, want_waits);
  };
  for (const size_t num_tables : {1, 2, 5}) {
    EXPECT_EQ(launches(num_tables, find, some_new), 2);    // search, values
    EXPECT_EQ(launches(num_tables, erase, some_new), 3);   // buckets, numbers to sort, erasing
    EXPECT_EQ(launches(num_tables, insert, none_new), 4);  // search, which are owned, uses, values
    // Behind the first two 4 to sort, pins, overflow; uses, entries, evicted rows' count, rows,
    // values.
    EXPECT_EQ(launches(num_tables, insert, some_new), 12);
  }
}
#endif  // FE_CUDA_EMULATION

}  // namespace
}  // namespace fused_embedding
