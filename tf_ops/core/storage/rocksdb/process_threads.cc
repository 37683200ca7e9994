#include "tf_ops/core/storage/rocksdb/process_threads.h"

#include <rocksdb/c.h>

#include <memory>
#include <mutex>
#include <system_error>

#include "tf_ops/core/base/threads.h"

namespace fused_embedding {
namespace {

// A pool of RocksDB's that has no thread before a database is opened.
struct Pool {
  int (*get)(rocksdb_env_t* env);
  void (*set)(rocksdb_env_t* env, int num_threads);
};

Status StartPool(const Pool& pool, rocksdb_env_t* env) {
  if (pool.get(env) > 0) return Status();
  try {
    pool.set(env, 1);  // as max_background_jobs=2, the default, has RocksDB do it
    return Status();
  } catch (const std::system_error& error) {
    pool.set(env, 0);  // so that it is started the next time
    return CannotStartThread("of RocksDB", error);
  }
}

// The timer runs as long as any database is open. A thread that cannot be started when the timer is
// started for the second time makes RocksDB end the process once it stops, so it is started once:
// by an empty database in memory, which is never closed.
Status StartTimer() {
  static rocksdb_t* keeper = nullptr;
  if (keeper != nullptr) return Status();
  // Never freed, as the keeper uses it. A new one each time: a failed rocksdb_open keeps its lock.
  static rocksdb_env_t* memory = nullptr;
  memory = rocksdb_create_mem_env();
  const std::unique_ptr<rocksdb_options_t, decltype(&rocksdb_options_destroy)> options(
      rocksdb_options_create(), &rocksdb_options_destroy);
  rocksdb_options_set_env(options.get(), memory);
  rocksdb_options_set_create_if_missing(options.get(), 1);
  rocksdb_options_set_write_buffer_size(options.get(), size_t{64} << 10);
  rocksdb_options_set_max_file_opening_threads(options.get(), 1);
  rocksdb_options_set_stats_dump_period_sec(options.get(), 0);
  rocksdb_options_set_stats_persist_period_sec(options.get(), 0);
  char* text = nullptr;
  try {
    keeper = rocksdb_open(options.get(), "/fused_embedding_timer", &text);
  } catch (const std::system_error& error) {
    return CannotStartThread("of RocksDB", error);
  }
  const std::unique_ptr<char, decltype(&rocksdb_free)> error(
      text, [](void* bytes) { rocksdb_free(bytes); });
  if (text == nullptr) return Status();
  return MakeStatus(StatusCode::kInternal, "cannot start RocksDB's timer: ", text);
}

}  // namespace

Status StartProcessThreads() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const std::unique_ptr<rocksdb_env_t, decltype(&rocksdb_env_destroy)> env(
      rocksdb_create_default_env(), &rocksdb_env_destroy);
  constexpr Pool kCompactions = {rocksdb_env_get_background_threads,
                                 rocksdb_env_set_background_threads};
  constexpr Pool kFlushes = {rocksdb_env_get_high_priority_background_threads,
                             rocksdb_env_set_high_priority_background_threads};
  FE_RETURN_IF_ERROR(StartPool(kCompactions, env.get()));
  FE_RETURN_IF_ERROR(StartPool(kFlushes, env.get()));
  return StartTimer();
}

}  // namespace fused_embedding
