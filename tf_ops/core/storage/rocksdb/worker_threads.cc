#include "tf_ops/core/storage/rocksdb/worker_threads.h"

#include <algorithm>
#include <utility>

#include "tf_ops/core/base/threads.h"

namespace fused_embedding {

WorkerThreads::~WorkerThreads() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_ending_ = true;
  }
  has_job_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status WorkerThreads::Start(const std::string& purpose, int num_threads) {
  threads_.reserve(static_cast<size_t>(num_threads));
  for (int i = 0; i < num_threads; ++i) {
    std::thread thread;
    FE_RETURN_IF_ERROR(StartThread(purpose, [this] { Work(); }, &thread));
    threads_.push_back(std::move(thread));
  }
  return Status();
}

void WorkerThreads::DoTask(Job* job, std::unique_lock<std::mutex>* lock) {
  const int64_t i = job->num_begun++;
  if (job->num_begun == job->num_tasks) {
    jobs_.erase(std::find(jobs_.begin(), jobs_.end(), job));
  }
  lock->unlock();
  (*job->task)(i);
  lock->lock();
  // Run's wait ends once the lock is free: `job` is gone then.
  if (++job->num_done == job->num_tasks) is_done_.notify_all();
}

void WorkerThreads::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    has_job_.wait(lock, [this] { return is_ending_ || !jobs_.empty(); });
    if (is_ending_) return;
    DoTask(jobs_.front(), &lock);
  }
}

void WorkerThreads::Run(int64_t num_tasks, const Task& task) {
  if (num_tasks <= 0) return;
  Job job{&task, num_tasks};
  std::unique_lock<std::mutex> lock(mutex_);
  jobs_.push_back(&job);
  // The first task is for this thread.
  const int64_t num_helpers =
      std::min<int64_t>(num_tasks - 1, static_cast<int64_t>(threads_.size()));
  for (int64_t i = 0; i < num_helpers; ++i) has_job_.notify_one();
  while (job.num_begun < num_tasks) DoTask(&job, &lock);
  is_done_.wait(lock, [&] { return job.num_done == num_tasks; });
}

}  // namespace fused_embedding
