// A system that runs out of threads, before any of those that a tier starts or that RocksDB starts
// within a call. The call ends with a Status, and once there are threads again, it succeeds.

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>

#include "tests/cpp/cold_tier_testing.h"
#include "tf_ops/core/base/threads.h"
#include "tf_ops/core/checkpoint/checkpoint.h"

namespace {

std::atomic<int> num_threads_left{-1};  // so many can be started; < 0: any number

}  // namespace

// In front of the C library's, for all of this program and the libraries that it loads.
extern "C" __attribute__((visibility("default"))) int pthread_create(
    pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
    void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (num_threads_left == 0) return EAGAIN;
  if (num_threads_left > 0) --num_threads_left;
  return create(thread, attributes, run, argument);
}

namespace fused_embedding {
namespace {

constexpr char kLimitVariable[] = "FE_THREADS_LEFT";
constexpr char kFolderVariable[] = "FE_STARVED_FOLDER";
constexpr char kStarvedTest[] = "DISABLED_Starved.Process";

TEST(StartThread, SaysWhatIsMissing) {
  std::thread thread;
  num_threads_left = 0;
  const Status status = StartThread("to test", [] {}, &thread);
  num_threads_left = -1;
  EXPECT_TRUE(Fails(status, StatusCode::kResourceExhausted,
                    {"cannot start a thread to test: Resource temporarily unavailable", "pids"}));
  EXPECT_FALSE(thread.joinable());
  std::atomic<bool> is_run{false};
  ASSERT_TRUE(IsOk(StartThread("to test", [&] { is_run = true; }, &thread)));
  thread.join();
  EXPECT_TRUE(is_run);
}

// All ways to open a store in RocksDB.
Status UseTier(const std::string& folder) {
  TableConfig config = TieredConfig(folder + "/table", 32 << 10);
  config.storage.open = [](ColdStoreOptions options, StorePtr* store) {
    options.num_readers = 1;
    return OpenColdStore(RocksDbUnderTest(), options, store);
  };
  std::unique_ptr<EmbeddingTable> table, in_dram;
  FE_RETURN_IF_ERROR(EmbeddingTable::Create(config, &table));
  const std::vector<Slot> slots = {{"sum", 8, 0.25}};
  FE_RETURN_IF_ERROR(table->EnsureSlots(AsSpan(slots)));
  const Ints keys = KeyRange(0, 1000);
  FE_RETURN_IF_ERROR(LookUp(table.get(), keys).status);
  const std::string path = folder + "/save";
  FE_RETURN_IF_ERROR(SaveTable(*table, path));
  FE_RETURN_IF_ERROR(RestoreTable(SerialExec(), {{&path, 1}}, PartitionFilter(), table.get()));
  EXPECT_EQ(table->size(), 1000);
  config.storage = StorageConfig();
  FE_RETURN_IF_ERROR(EmbeddingTable::Create(config, &in_dram));
  FE_RETURN_IF_ERROR(RestoreTable(SerialExec(), {{&path, 1}}, PartitionFilter(), in_dram.get()));
  EXPECT_EQ(in_dram->size(), 1000);
  return Status();
}

// In a process of its own, where nobody has used RocksDB before.
TEST(DISABLED_Starved, Process) {
  const char* number = std::getenv(kLimitVariable);
  ASSERT_NE(number, nullptr) << "run by another test";
  const std::string folder = std::getenv(kFolderVariable);
  num_threads_left = std::atoi(number);
  const Status status = UseTier(folder);
  if (status.ok()) {
    WriteFile(folder + "/enough", "");
  } else {
    EXPECT_TRUE(Fails(status, StatusCode::kResourceExhausted, {"cannot start a thread"}));
  }
  num_threads_left = -1;
  EXPECT_TRUE(IsOk(UseTier(folder)));
}

int StatusOfProcess(int num_threads, const std::string& folder) {
  setenv(kLimitVariable, std::to_string(num_threads).c_str(), 1);
  setenv(kFolderVariable, folder.c_str(), 1);
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // RocksDB leaks a database that it cannot open
  // The library of RocksDB is found beside it.
  std::string program = fs::read_symlink("/proc/self/exe").string(),
              tests = std::string("--gtest_filter=") + kStarvedTest,
              disabled = "--gtest_also_run_disabled_tests", brief = "--gtest_brief=1";
  char* const arguments[] = {program.data(), tests.data(), disabled.data(), brief.data(), nullptr};
  const std::string output = folder + "/output";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0666);
  pid_t id = 0;
  EXPECT_EQ(posix_spawn(&id, program.c_str(), &actions, nullptr, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  int status = -1;
  EXPECT_EQ(waitpid(id, &status, 0), id);
  if (status != 0) ADD_FAILURE() << ReadFile(output);
  return status;
}

class ThreadStarvation : public ColdStoreTest {
 protected:
  ThreadStarvation() : ColdStoreTest("rocksdb") {}
};

TEST_F(ThreadStarvation, EndsWithAStatus) {
  int num_threads = 0;
  for (; !fs::exists(Path("enough")) && !HasFailure(); ++num_threads) {
    SCOPED_TRACE(std::to_string(num_threads) + " threads");
    EXPECT_EQ(StatusOfProcess(num_threads, Path("")), 0) << "aborted, or not a Status";
  }
  // Three of RocksDB's for the process, a writer, a reader for each of six stores.
  EXPECT_GE(num_threads, 10);
}

}  // namespace
}  // namespace fused_embedding
