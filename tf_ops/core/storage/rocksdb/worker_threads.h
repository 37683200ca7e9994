#ifndef FUSED_EMBEDDING_CORE_STORAGE_ROCKSDB_WORKER_THREADS_H_
#define FUSED_EMBEDDING_CORE_STORAGE_ROCKSDB_WORKER_THREADS_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// Threads that wait for a disk most of the time, many more than there are cores. TensorFlow's are
// one for each core: two reads at once, where a disk wants tens.
//
// Run may be called from any thread, by several at once: their tasks share the threads.
class WorkerThreads {
 public:
  WorkerThreads() = default;
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  // ResourceExhausted: the system has no more threads.
  Status Start(const std::string& purpose, int num_threads);

  // Calls task(0) to task(num_tasks - 1), on the calling thread too; returns when all have ended.
  using Task = std::function<void(int64_t i)>;
  void Run(int64_t num_tasks, const Task& task);

 private:
  struct Job {
    const Task* task;
    int64_t num_tasks;
    int64_t num_begun = 0;
    int64_t num_done = 0;
  };

  void Work();
  // Does one task of `job` without the lock.
  void DoTask(Job* job, std::unique_lock<std::mutex>* lock);

  std::mutex mutex_;
  std::condition_variable has_job_, is_done_;
  std::deque<Job*> jobs_;  // with tasks that have not begun
  bool is_ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_STORAGE_ROCKSDB_WORKER_THREADS_H_
