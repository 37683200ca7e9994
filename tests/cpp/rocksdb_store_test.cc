// What only a store in RocksDB has: a library, a disk that fills, rights, descriptors.

#include <sys/mount.h>

#include "tests/cpp/cold_store_testing.h"

namespace fused_embedding {
namespace {

class RocksDbStoreTest : public ColdStoreTest {
 protected:
  RocksDbStoreTest() : ColdStoreTest("rocksdb") {}
};

Rows RowsOf(int64_t begin, int64_t end, int64_t value_bytes, int64_t round = 0) {
  Rows rows;
  for (int64_t key = begin; key < end; ++key) rows[key] = ValueOf(key, round, value_bytes);
  return rows;
}

TEST_F(RocksDbStoreTest, LibrariesThatCannotBeLoadedSayWhatToInstall) {
  StorePtr store;
  const std::string absent = Path("absent.so"), text = Path("text.so");
  EXPECT_TRUE(Fails(OpenColdStore(absent, OptionsOf(), &store), StatusCode::kUnimplemented,
                    {Path("store").c_str(), absent.c_str(), "install librocksdb-dev"}));
  WriteFile(text, "no library");
  EXPECT_TRUE(Fails(OpenColdStore(text, OptionsOf(), &store), StatusCode::kUnimplemented,
                    {text.c_str(), "apt-get install librocksdb7.8"}));
  EXPECT_TRUE(Fails(OpenColdStore("/lib/x86_64-linux-gnu/libc.so.6", OptionsOf(), &store),
                    StatusCode::kUnimplemented, {"libc.so.6", "another build"}));
  EXPECT_EQ(store, nullptr);
}

TEST_F(RocksDbStoreTest, AnotherProcessHasTheStore) {
  const StorePtr store = Opened(OptionsOf());
  ASSERT_TRUE(IsOk(Put(RowsOf(0, 10, 12), store.get())));
  const std::string lock = "flock -n " + Path("store/fe_cold_store") + " true";
  EXPECT_NE(std::system(lock.c_str()), 0);
  EXPECT_EQ(Scanned(store.get()).size(), 10u);
}

TEST_F(RocksDbStoreTest, AFolderWithoutPermission) {
  if (getuid() != 0) GTEST_SKIP() << "needs root, to stop being it";
  fs::permissions(Path(""), fs::perms::owner_all);
  constexpr uid_t kNobody = 65534;
  ASSERT_EQ(seteuid(kNobody), 0);
  StorePtr store;
  const Status status = Open(OptionsOf(), &store);
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_TRUE(
      Fails(status, StatusCode::kFailedPrecondition, {Path("store").c_str(), "Permission denied"}));
}

TEST_F(RocksDbStoreTest, AFolderThatIsRemovedMeanwhile) {
  StorePtr store = Opened(OptionsOf());
  ASSERT_TRUE(IsOk(Put(RowsOf(0, 1000, 12), store.get())));
  fs::remove_all(Path("store"));
  const std::string data = Path("store/data");
  EXPECT_TRUE(Fails(store->Flush(), StatusCode::kFailedPrecondition,
                    {data.c_str(), "No such file or directory"}));
  EXPECT_FALSE(store->Checkpoint(Path("checkpoint")).ok());
  EXPECT_FALSE(fs::exists(Path("checkpoint")));
  EXPECT_EQ(Got({5}, store.get()).size(), 1u);  // from memory
  store.reset();
  EXPECT_TRUE(Scanned(Opened(OptionsOf()).get()).empty());
}

// No copies of rows, there and back; and nothing shared that RocksDB changes.
TEST_F(RocksDbStoreTest, CheckpointsAreLinksToImmutableFiles) {
  StorePtr store = Opened(OptionsOf());
  ASSERT_TRUE(IsOk(Put(RowsOf(0, 10, 12), store.get())));
  const auto check_links = [&] {
    int num_linked = 0;
    for (const auto& entry : fs::directory_iterator(Path("checkpoint/data"))) {
      const bool is_linked = entry.path().extension() == ".sst";
      num_linked += is_linked;
      if (entry.path().filename().string().rfind("OPTIONS", 0) == 0) continue;  // as RocksDB likes
      EXPECT_EQ(fs::hard_link_count(entry.path()), is_linked ? 2u : 1u) << entry.path();
    }
    EXPECT_EQ(num_linked, 1);
  };
  ASSERT_TRUE(IsOk(store->Checkpoint(Path("checkpoint"))));
  check_links();
  store.reset();
  store = Opened(OptionsOf(12, "checkpoint"));
  check_links();
}

int64_t NumDescriptors() {
  const fs::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

TEST_F(RocksDbStoreTest, DescriptorsAreGivenBack) {
  const auto open_and_close = [&] {
    const StorePtr store = Opened(OptionsOf());
    ASSERT_TRUE(IsOk(Put(RowsOf(0, 100, 12), store.get())));
    ASSERT_TRUE(IsOk(store->Flush()));
  };
  open_and_close();  // RocksDB keeps some for the process
  const int64_t before = NumDescriptors();
  for (int i = 0; i < 5; ++i) open_and_close();
  EXPECT_EQ(NumDescriptors(), before);
}

TEST_F(RocksDbStoreTest, ManyFilesDoNotNeedManyDescriptors) {
  StorePtr store = Opened(OptionsOf(8));
  const int64_t before = NumDescriptors();
  for (int64_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(IsOk(Put({{i, ValueOf(i, 0, 8)}}, store.get())));
    ASSERT_TRUE(IsOk(store->Flush()));
    ASSERT_LE(NumDescriptors(), before + 128);
  }
  EXPECT_EQ(Scanned(store.get()), RowsOf(0, 200, 8));
}

TEST_F(RocksDbStoreTest, SpaceOfDeadRowsComesBackAndMemoryIsBounded) {
  constexpr int64_t kRows = 20000, kValueBytes = 500;  // 10 MB
  const StorePtr store = Opened(OptionsOf(kValueBytes));
  for (int64_t round = 0; round < 6; ++round) {
    ASSERT_TRUE(IsOk(Put(RowsOf(0, kRows, kValueBytes, round), store.get())));
    ASSERT_TRUE(IsOk(store->Flush()));
    EXPECT_LE(store->Statistics().memory_bytes, int64_t{8} << 20);
  }
  EXPECT_TRUE(Scanned(store.get()) == RowsOf(0, kRows, kValueBytes, 5));
  EXPECT_LT(store->Statistics().disk_bytes, 5 * kRows * kValueBytes / 2);
}

TEST_F(RocksDbStoreTest, ReadsOfTheDiskAreCounted) {
  const StorePtr store = Opened(OptionsOf(500));
  const Rows rows = RowsOf(0, 20000, 500);
  ASSERT_TRUE(IsOk(Put(rows, store.get())));
  ASSERT_TRUE(IsOk(store->Flush()));
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 20000; key += 100) keys.push_back(key);
  EXPECT_EQ(Got(keys, store.get()).size(), 200u);
  const ColdStoreStatistics statistics = store->Statistics();
  EXPECT_GE(statistics.num_disk_reads, 150);  // the cache may have some blocks
  EXPECT_GE(statistics.disk_bytes_read, 150 * 4096);
  EXPECT_LT(statistics.num_disk_reads, 400);
}

// What this process has given to write calls.
int64_t WrittenByProcess() {
  std::ifstream file("/proc/self/io");
  std::string name;
  int64_t bytes = 0;
  while (file >> name >> bytes && name != "wchar:") continue;
  return bytes;
}

TEST_F(RocksDbStoreTest, WritesOfTheDiskAreCounted) {
  constexpr int64_t kRows = 20000, kValueBytes = 500, kRounds = 8;
  const int64_t before = WrittenByProcess();
  const StorePtr store = Opened(OptionsOf(kValueBytes));
  for (int64_t round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(IsOk(Put(RowsOf(0, kRows, kValueBytes, round), store.get())));
  }
  ASSERT_TRUE(IsOk(store->Flush()));
  int64_t written = -1, by_process = 0;
  while (written != by_process) {  // merges may still run
    written = by_process;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    by_process = WrittenByProcess() - before;
  }
  const ColdStoreStatistics statistics = store->Statistics();
  EXPECT_EQ(statistics.put_bytes, kRounds * kRows * (kValueBytes + 8));
  EXPECT_GT(statistics.disk_bytes_written, statistics.put_bytes);
  // To half a unit of what RocksDB tells, and its lists of files.
  EXPECT_NEAR(static_cast<double>(statistics.disk_bytes_written), static_cast<double>(by_process),
              6e6 + 0.02 * static_cast<double>(by_process));
}

// A small file system of its own, or nothing where one may not mount.
class FullDisk : public RocksDbStoreTest {
 protected:
  void SetUp() override {
    RocksDbStoreTest::SetUp();
    if (IsSkipped()) return;
    fs::create_directories(Path("disk"));
    is_mounted_ = mount("tmpfs", Path("disk").c_str(), "tmpfs", 0, "size=40m") == 0;
    if (!is_mounted_) GTEST_SKIP() << "needs root, to mount a small file system";
  }
  void TearDown() override {
    if (is_mounted_) umount2(Path("disk").c_str(), MNT_DETACH);
    RocksDbStoreTest::TearDown();
  }

 private:
  bool is_mounted_ = false;
};

TEST_F(FullDisk, IsAnErrorAndTrainingGoesOnOnceThereIsSpace) {
  constexpr int64_t kValueBytes = 1000, kRowsPerPut = 1000;
  WriteFile(Path("disk/others"), std::string(size_t{20} << 20, 'x'));
  ColdStoreOptions options = OptionsOf(kValueBytes);
  options.path = Path("disk/store");
  const StorePtr store = Opened(options);
  Rows rows;  // of puts that returned OK
  Rows failed;
  Status status;
  while (status.ok()) {
    const auto next = static_cast<int64_t>(rows.size());
    ASSERT_LT(next, 100000) << "a disk of 40 MB is never full";
    failed = RowsOf(next, next + kRowsPerPut, kValueBytes);
    status = Put(failed, store.get());
    if (status.ok()) rows.insert(failed.begin(), failed.end());
  }
  EXPECT_TRUE(Fails(status, StatusCode::kResourceExhausted,
                    {options.path.c_str(), "No space left on device"}));
  EXPECT_GT(rows.size(), 5000u);
  EXPECT_TRUE(Got(KeysOf(rows), store.get()) == rows);
  EXPECT_TRUE(Fails(store->Checkpoint(Path("disk/checkpoint")), StatusCode::kResourceExhausted,
                    {options.path.c_str()}));
  EXPECT_FALSE(fs::exists(Path("disk/checkpoint")));
  EXPECT_FALSE(fs::exists(Path("disk/checkpoint.tmp")));

  fs::remove(Path("disk/others"));
  for (int attempt = 0; attempt < 300 && !status.ok(); ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    status = Put(failed, store.get());
  }
  ASSERT_TRUE(IsOk(status));
  rows.insert(failed.begin(), failed.end());
  EXPECT_TRUE(Got(KeysOf(rows), store.get()) == rows);
  ASSERT_TRUE(IsOk(store->Checkpoint(Path("disk/checkpoint"))));
}

}  // namespace
}  // namespace fused_embedding
