#ifndef FUSED_EMBEDDING_CORE_BASE_EXEC_H_
#define FUSED_EMBEDDING_CORE_BASE_EXEC_H_

#include <cstdint>
#include <functional>

namespace fused_embedding {

// Where core gets its threads from. A body must be safe to run on disjoint ranges at once, and its
// result must not depend on how the range was cut: that is what keeps results the same for any
// number of threads.
class CpuExec {
 public:
  using Body = std::function<void(int64_t begin, int64_t end)>;

  virtual ~CpuExec() = default;
  virtual int num_threads() const = 0;
  // Runs `body` over disjoint ranges that cover [0, total); returns when all have ended. `unit_ns`
  // is the rough cost of one unit; cheap totals run on the calling thread.
  virtual void ParallelFor(int64_t total, int64_t unit_ns, const Body& body) const = 0;
};

// Everything on the calling thread.
class SerialExec final : public CpuExec {
 public:
  int num_threads() const override { return 1; }
  void ParallelFor(int64_t total, int64_t /*unit_ns*/, const Body& body) const override {
    if (total > 0) body(0, total);
  }
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_EXEC_H_
