// The contract of ColdStore, which every implementation keeps.

#include "tests/cpp/cold_store_testing.h"

namespace fused_embedding {
namespace {

class ColdStoreContract : public ColdStoreTest, public ::testing::WithParamInterface<const char*> {
 protected:
  ColdStoreContract() : ColdStoreTest(GetParam()) {}
};

INSTANTIATE_TEST_SUITE_P(Stores, ColdStoreContract, ::testing::Values("memory", "rocksdb"),
                         [](const auto& info) { return std::string(info.param); });

const Rows kStoredRows = {
    {kInt64Min, "min"}, {-1, "neg"}, {0, "nil"}, {7, "pos"}, {kInt64Max, "max"}};

TEST_P(ColdStoreContract, AnyKeyIsLegal) {
  const StorePtr store = Opened(OptionsOf(3));
  EXPECT_TRUE(Got(KeysOf(kStoredRows), store.get()).empty());
  ASSERT_TRUE(IsOk(Put(kStoredRows, store.get())));
  EXPECT_EQ(Got(KeysOf(kStoredRows), store.get()), kStoredRows);
  EXPECT_EQ(Got({-2, -1, 1, 7, 8}, store.get()), (Rows{{-1, "neg"}, {7, "pos"}}));
  EXPECT_EQ(Scanned(store.get()), kStoredRows);
  ASSERT_TRUE(IsOk(Erase({-5, -1, 7}, store.get())));
  EXPECT_EQ(Scanned(store.get()), (Rows{{kInt64Min, "min"}, {0, "nil"}, {kInt64Max, "max"}}));
}

TEST_P(ColdStoreContract, EmptyBatches) {
  const StorePtr store = Opened(OptionsOf());
  EXPECT_TRUE(Got({}, store.get()).empty());
  EXPECT_TRUE(IsOk(Put({}, store.get())));
  EXPECT_TRUE(IsOk(Erase({}, store.get())));
  EXPECT_TRUE(IsOk(store->Flush()));
  EXPECT_TRUE(Scanned(store.get()).empty());
}

TEST_P(ColdStoreContract, BadBatchesDoNothing) {
  const StorePtr store = Opened(OptionsOf(3));
  ASSERT_TRUE(IsOk(Put(kStoredRows, store.get())));
  const auto put = [&](std::vector<int64_t> keys, const std::string& values) {
    return store->MultiPut(AsSpan(keys), AsSpan(values));
  };
  const char* path = store->path().c_str();
  EXPECT_TRUE(IsInvalid(put({1, 2, 2}, "aaabbbccc"), {path, "keys[2] = 2 follows 2"}));
  EXPECT_TRUE(IsInvalid(put({1, 0}, "aaabbb"), {path, "keys[1] = 0 follows 1"}));
  EXPECT_TRUE(IsInvalid(put({1, 2}, "aaabb"), {path, "rows of 3 bytes", "5 bytes for 2 keys"}));
  EXPECT_TRUE(IsInvalid(put({1, 2}, "aaa"), {"3 bytes for 2 keys"}));
  EXPECT_TRUE(IsInvalid(put({}, "aaa"), {"3 bytes for 0 keys"}));
  EXPECT_TRUE(IsInvalid(Erase({5, 5}, store.get()), {"keys[1] = 5 follows 5"}));
  Rows none;
  EXPECT_TRUE(IsInvalid(Get({3, 1}, store.get(), &none), {"keys[1] = 1 follows 3"}));
  const Array<int64_t> keys = {1, 2};
  Array<char> values(6);
  Array<bool> found(1);
  EXPECT_TRUE(IsInvalid(store->MultiGet(keys.span(), values.span(), found.span()),
                        {"found has 1 elements for 2 keys"}));
  EXPECT_EQ(Scanned(store.get()), kStoredRows);
}

TEST_P(ColdStoreContract, BadOptions) {
  StorePtr store;
  const auto opened = [&](const auto& change) {
    ColdStoreOptions options = OptionsOf();
    change(&options);
    return Open(options, &store);
  };
  const auto set = [](auto member, auto value) {
    return [=](ColdStoreOptions* options) { options->*member = value; };
  };
  using O = ColdStoreOptions;
  EXPECT_TRUE(IsInvalid(opened(set(&O::path, "")), {"needs the name of a folder"}));
  EXPECT_TRUE(IsInvalid(opened(set(&O::path, std::string("a\0b", 3))), {"name of a folder"}));
  EXPECT_TRUE(IsInvalid(opened(set(&O::checkpoint, std::string(1, '\0'))), {"name of a folder"}));
  EXPECT_TRUE(IsInvalid(opened(set(&O::value_bytes, 0)), {"value_bytes must be", "got 0"}));
  EXPECT_TRUE(IsInvalid(opened(set(&O::value_bytes, kInt64Max)), {"value_bytes must be"}));
  EXPECT_TRUE(IsInvalid(opened(set(&O::memory_bytes, 1)), {"memory_bytes must be", "got 1"}));
  EXPECT_TRUE(IsInvalid(opened(set(&O::num_readers, 0)), {"num_readers must be", "got 0"}));
  EXPECT_TRUE(IsInvalid(opened(set(&O::num_readers, 5000)), {"num_readers must be"}));
  EXPECT_EQ(store, nullptr);
  EXPECT_FALSE(fs::exists(Path("store")));
}

// Against a map: random batches, flushes, and checkpoints that the next store begins with.
TEST_P(ColdStoreContract, RandomCallsAgreeWithAMap) {
  for (const int64_t value_bytes : {1, 12, 700, 9000}) {
    Random random(static_cast<uint64_t>(value_bytes));
    StorePtr store = Opened(OptionsOf(value_bytes));
    Rows rows;
    const auto random_keys = [&] {
      std::set<int64_t> keys;
      const int64_t n = RandomInt(&random, 0, 150);
      for (int64_t i = 0; i < n; ++i) keys.insert(RandomInt(&random, -300, 300));
      return std::vector<int64_t>(keys.begin(), keys.end());
    };
    for (int step = 0; step < 120; ++step) {
      SCOPED_TRACE("value_bytes " + std::to_string(value_bytes) + ", step " + std::to_string(step));
      const std::vector<int64_t> keys = random_keys();
      const int64_t action = RandomInt(&random, 0, 9);
      if (action < 4) {
        Rows put;
        for (const int64_t key : keys) rows[key] = put[key] = ValueOf(key, step, value_bytes);
        ASSERT_TRUE(IsOk(Put(put, store.get())));
      } else if (action < 6) {
        for (const int64_t key : keys) rows.erase(key);
        ASSERT_TRUE(IsOk(Erase(keys, store.get())));
      } else if (action == 6) {
        ASSERT_TRUE(IsOk(store->Flush()));
      } else if (action == 7 && step % 3 == 0) {
        const std::string name = std::to_string(value_bytes) + "_" + std::to_string(step);
        ASSERT_TRUE(IsOk(store->Checkpoint(Path(name))));
        ASSERT_TRUE(IsOk(Put({{1000, std::string(static_cast<size_t>(value_bytes), 'l')}},
                             store.get())));  // lost with the store
        store.reset();
        store = Opened(OptionsOf(value_bytes, name));
      }
      Rows want;
      for (const int64_t key : keys) {
        if (rows.count(key) != 0) want[key] = rows[key];
      }
      ASSERT_EQ(Got(keys, store.get()), want);
      if (step % 10 == 0) {
        ASSERT_EQ(Scanned(store.get()), rows);
      }
    }
  }
}

// More than the write buffers hold, in more tasks and pieces than one.
TEST_P(ColdStoreContract, LargeBatches) {
  constexpr int64_t kNumRows = 30000, kValueBytes = 400;
  const StorePtr store = Opened(OptionsOf(kValueBytes));
  Rows rows;
  for (int64_t i = 0; i < kNumRows; ++i) rows[i * 7 - 50000] = ValueOf(i, 0, kValueBytes);
  ASSERT_TRUE(IsOk(Put(rows, store.get())));
  EXPECT_TRUE(Got(KeysOf(rows), store.get()) == rows);
  ASSERT_TRUE(IsOk(store->Flush()));
  EXPECT_TRUE(Got(KeysOf(rows), store.get()) == rows);
  EXPECT_TRUE(Scanned(store.get()) == rows);
  const std::vector<int64_t> all = KeysOf(rows);
  ASSERT_TRUE(IsOk(Erase({all.begin(), all.end() - 3}, store.get())));
  EXPECT_EQ(Scanned(store.get()).size(), 3u);
}

TEST_P(ColdStoreContract, CountsWhatWasDone) {
  const StorePtr store = Opened(OptionsOf(3));
  ASSERT_TRUE(IsOk(Put(kStoredRows, store.get())));
  EXPECT_EQ(Got({-1, 0, 5}, store.get()).size(), 2u);
  ASSERT_TRUE(IsOk(Erase({0, 100}, store.get())));
  ASSERT_TRUE(IsOk(store->Flush()));
  EXPECT_FALSE(Put({{3, "wrong size"}}, store.get()).ok());
  const ColdStoreStatistics statistics = store->Statistics();
  EXPECT_EQ(statistics.num_puts, 5);
  EXPECT_EQ(statistics.num_gets, 3);
  EXPECT_EQ(statistics.num_found, 2);
  EXPECT_EQ(statistics.num_erases, 2);
  EXPECT_GT(statistics.disk_bytes, 0);
  EXPECT_GT(statistics.memory_bytes, 0);
  EXPECT_LT(statistics.memory_bytes, int64_t{8} << 20);
  EXPECT_EQ(store->value_bytes(), 3);
  EXPECT_EQ(store->path(), Path("store"));
}

TEST_P(ColdStoreContract, ScanSeesOneMomentAndStopsAtAnError) {
  const StorePtr store = Opened(OptionsOf(3));
  Rows rows;
  for (int64_t key = 0; key < 1000; ++key) rows[key] = "old";
  ASSERT_TRUE(IsOk(Put(rows, store.get())));
  int64_t num_rows = 0;
  const auto change_meanwhile = [&](Span<const int64_t> keys, Span<const char> values) {
    num_rows += keys.size;
    for (const char* value = values.begin(); value != values.end(); value += 3) {
      EXPECT_EQ(std::string(value, 3), "old");
    }
    return Put({{999, "new"}, {5000, "new"}}, store.get());
  };
  EXPECT_TRUE(IsOk(store->Scan(change_meanwhile)));
  EXPECT_EQ(num_rows, 1000);
  EXPECT_EQ(Scanned(store.get()).size(), 1001u);
  int num_visits = 0;
  const auto fail = [&](Span<const int64_t>, Span<const char>) {
    ++num_visits;
    return InvalidArgument("enough");
  };
  EXPECT_TRUE(IsInvalid(store->Scan(fail), {"enough"}));
  EXPECT_EQ(num_visits, 1);
}

TEST_P(ColdStoreContract, ACheckpointDoesNotChange) {
  StorePtr store = Opened(OptionsOf(3));
  ASSERT_TRUE(IsOk(Put(kStoredRows, store.get())));
  ASSERT_TRUE(IsOk(store->Checkpoint(Path("deep/in/first"))));
  ASSERT_TRUE(IsOk(Put({{-1, "new"}, {3, "new"}}, store.get())));
  ASSERT_TRUE(IsOk(Erase({kInt64Max}, store.get())));
  ASSERT_TRUE(IsOk(store->Checkpoint(Path("second"))));
  const Rows second = Scanned(store.get());
  store.reset();
  for (int repeat = 0; repeat < 2; ++repeat) {  // the first store does not spoil it for the second
    store = Opened(OptionsOf(3, "deep/in/first"));
    EXPECT_EQ(Scanned(store.get()), kStoredRows);
    ASSERT_TRUE(IsOk(Put({{0, "bad"}}, store.get())));
    ASSERT_TRUE(IsOk(store->Flush()));
    store.reset();
  }
  EXPECT_EQ(Scanned(Opened(OptionsOf(3, "second")).get()), second);
  EXPECT_FALSE(fs::exists(Path("second.tmp")));
}

// Where it is, by several at once, and also where nothing may be written.
TEST_P(ColdStoreContract, ACheckpointIsReadWithoutAChange) {
  StorePtr store = Opened(OptionsOf(3));
  ASSERT_TRUE(IsOk(Put(kStoredRows, store.get())));
  ASSERT_TRUE(IsOk(store->Checkpoint(Path("saved"))));
  store.reset();
  fs::remove_all(Path("store"));
  const auto bytes_of_files = [&] {
    Rows files;
    for (const auto& entry : fs::recursive_directory_iterator(Path("saved"))) {
      if (entry.is_regular_file()) {
        files[static_cast<int64_t>(files.size())] =
            entry.path().string() + ReadFile(entry.path().string());
      }
    }
    return files;
  };
  const Rows files = bytes_of_files();
  ColdStoreOptions options = OptionsOf(3, "saved");
  options.is_read_only = true;
  {
    const StorePtr one = Opened(options), other = Opened(options);
    EXPECT_EQ(Scanned(one.get()), kStoredRows);
    EXPECT_EQ(Got(KeysOf(kStoredRows), other.get()), kStoredRows);
    EXPECT_EQ(Got({-12345}, other.get()), Rows());
  }
  EXPECT_EQ(bytes_of_files(), files);
  EXPECT_FALSE(fs::exists(Path("store")));
  options.value_bytes = 4;
  EXPECT_TRUE(IsInvalid(Open(options, &store), {Path("saved").c_str(), "rows of 3 bytes"}));
}

TEST_P(ColdStoreContract, ACheckpointReplacesNothing) {
  const StorePtr store = Opened(OptionsOf(3));
  fs::create_directories(Path("there"));
  EXPECT_TRUE(Fails(store->Checkpoint(Path("there")), StatusCode::kFailedPrecondition,
                    {Path("there").c_str(), store->path().c_str(), "exists"}));
  EXPECT_TRUE(IsInvalid(store->Checkpoint(""), {"name of a folder"}));
  WriteFile(Path("file"), "");
  EXPECT_TRUE(Fails(store->Checkpoint(Path("file/in")), StatusCode::kFailedPrecondition,
                    {Path("file/in").c_str(), "Not a directory"}));
  // What a killed process left.
  fs::create_directories(Path("again.tmp/data"));
  WriteFile(Path("again.tmp/data/junk"), "junk");
  ASSERT_TRUE(IsOk(Put(kStoredRows, store.get())));
  EXPECT_TRUE(IsOk(store->Checkpoint(Path("again"))));
  EXPECT_FALSE(fs::exists(Path("again.tmp")));
  EXPECT_FALSE(fs::exists(Path("again/data/junk")));
  EXPECT_TRUE(IsOk(store->Checkpoint(Path("slashes//"))));
  EXPECT_TRUE(fs::exists(Path("slashes/data")));
}

TEST_P(ColdStoreContract, AStoreBeginsEmptyAndLeavesNothing) {
  StorePtr store = Opened(OptionsOf(3));
  ASSERT_TRUE(IsOk(Put(kStoredRows, store.get())));
  ASSERT_TRUE(IsOk(store->Flush()));
  store.reset();
  EXPECT_FALSE(fs::exists(Path("store/data")));
  fs::create_directories(Path("store/data"));
  WriteFile(Path("store/data/left"), "by a killed process");
  store = Opened(OptionsOf(5));  // another size than before
  EXPECT_TRUE(Scanned(store.get()).empty());
  EXPECT_FALSE(fs::exists(Path("store/data/left")));
}

TEST_P(ColdStoreContract, FoldersOfOthersAreLeftAlone) {
  StorePtr other;
  fs::create_directories(Path("store"));
  WriteFile(Path("store/thesis.tex"), "dear");
  EXPECT_TRUE(Fails(Open(OptionsOf(), &other), StatusCode::kFailedPrecondition,
                    {Path("store").c_str(), "thesis.tex", "new or empty"}));
  EXPECT_EQ(ReadFile(Path("store/thesis.tex")), "dear");
  fs::remove(Path("store/thesis.tex"));

  const StorePtr store = Opened(OptionsOf(3));
  ASSERT_TRUE(IsOk(Put(kStoredRows, store.get())));
  EXPECT_TRUE(Fails(Open(OptionsOf(3), &other), StatusCode::kFailedPrecondition,
                    {Path("store").c_str(), "in use", "folder of its own"}));
  EXPECT_EQ(other, nullptr);
  EXPECT_EQ(Scanned(store.get()), kStoredRows);
}

TEST_P(ColdStoreContract, OtherCheckpointsAreRefused) {
  StorePtr store = Opened(OptionsOf(3));
  ASSERT_TRUE(IsOk(store->Checkpoint(Path("rows_of_3"))));
  store.reset();
  EXPECT_TRUE(IsInvalid(Open(OptionsOf(4, "rows_of_3"), &store),
                        {Path("rows_of_3").c_str(), "rows of 3 bytes", "rows of 4 bytes"}));
  fs::create_directories(Path("folder"));
  WriteFile(Path("file"), "file");
  for (const char* name : {"absent", "folder", "file"}) {
    EXPECT_TRUE(Fails(Open(OptionsOf(3, name), &store), StatusCode::kFailedPrecondition,
                      {Path(name).c_str(), "no checkpoint"}));
  }
  EXPECT_EQ(store, nullptr);
}

// Threads put and erase keys of their own and read all: a row is of one put, whole.
TEST_P(ColdStoreContract, ManyThreads) {
  constexpr int64_t kThreads = 4, kKeys = 400, kRounds = 25, kValueBytes = 64;
  const StorePtr store = Opened(OptionsOf(kValueBytes));
  std::atomic<int64_t> num_torn{0};
  const auto work = [&](int64_t thread) {
    std::vector<int64_t> all;
    for (int64_t key = 0; key < kKeys; ++key) all.push_back(key);
    for (int64_t round = 0; round < kRounds; ++round) {
      Rows put;
      for (int64_t key = thread; key < kKeys; key += kThreads) {
        put[key] = std::string(kValueBytes, static_cast<char>('a' + round));
      }
      EXPECT_TRUE(IsOk(Put(put, store.get())));
      for (const auto& [key, value] : Got(all, store.get())) {
        if (value != std::string(kValueBytes, value[0])) ++num_torn;
        if (key % kThreads == thread) {
          EXPECT_EQ(value, put[key]);
        }
      }
      if (round % 8 == thread) {
        EXPECT_TRUE(IsOk(store->Flush()));
      }
      if (round % 8 == thread + 4) {
        EXPECT_TRUE(IsOk(Erase(KeysOf(put), store.get())));
      }
      if (round == 5 + thread) {
        EXPECT_TRUE(IsOk(store->Checkpoint(Path("from" + std::to_string(thread)))));
      }
      if (round == 20) {
        EXPECT_LE(Scanned(store.get()).size(), static_cast<size_t>(kKeys));
      }
    }
  };
  std::vector<std::thread> threads;
  for (int64_t thread = 0; thread < kThreads; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_torn, 0);
  EXPECT_EQ(Scanned(store.get()).size(), static_cast<size_t>(kKeys));
}

// Faults of FaultyColdStore over each store: after them it has what the contract says.
TEST_P(ColdStoreContract, Faults) {
  Faults faults;
  FaultyColdStore store(OptionsOf(3), Opened(OptionsOf(3)), &faults);
  ASSERT_TRUE(IsOk(Put(kStoredRows, &store)));
  const char* path = store.path().c_str();
  const auto is_io_error = [&](const Status& status) {
    return Fails(status, StatusCode::kFailedPrecondition, {path, "Input/output error"});
  };
  faults.calls_until_error = 2;
  EXPECT_EQ(Got({0}, &store).size(), 1u);
  EXPECT_TRUE(IsOk(store.Flush()));
  Rows none;
  EXPECT_TRUE(is_io_error(Get({0}, &store, &none)));
  EXPECT_EQ(Got({0}, &store).size(), 1u);  // once
  for (const auto& call : std::vector<std::function<Status()>>{
           [&] { return Put({{1, "bad"}}, &store); }, [&] { return Erase({0}, &store); },
           [&] { return store.Flush(); }, [&] { return Scan(&store, &none); },
           [&] { return store.Checkpoint(Path("never")); }}) {
    faults.calls_until_error = 0;
    EXPECT_TRUE(is_io_error(call()));
  }
  EXPECT_EQ(Scanned(&store), kStoredRows);
  EXPECT_FALSE(fs::exists(Path("never")));

  faults.free_bytes = 8;
  faults.rows_until_tear = 2;
  const Rows more = {{1, "aaa"}, {2, "bbb"}, {3, "ccc"}};
  EXPECT_TRUE(Fails(Put(more, &store), StatusCode::kResourceExhausted, {path, "No space left"}));
  EXPECT_EQ(Got({1, 2, 3}, &store), (Rows{{1, "aaa"}, {2, "bbb"}}));
  faults.free_bytes = 9;
  EXPECT_TRUE(IsOk(Put(more, &store)));
  EXPECT_EQ(Got({1, 2, 3}, &store), more);
  EXPECT_EQ(faults.free_bytes, 0);

  faults.latency_us = 2000;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(Got({1}, &store).size(), 1u);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(2));
}

}  // namespace
}  // namespace fused_embedding
