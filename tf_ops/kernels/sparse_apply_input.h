// The inputs of the ops that step on rows of variables: where they are, their locks and checks.

#ifndef FUSED_EMBEDDING_KERNELS_SPARSE_APPLY_INPUT_H_
#define FUSED_EMBEDDING_KERNELS_SPARSE_APPLY_INPUT_H_

#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/mutex.h"
#include "tf_ops/core/optimizer/sparse_apply.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

// Deprecated in newer TensorFlow, but what its variables have.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
using Mutex = tensorflow::mutex;
#pragma GCC diagnostic pop

// Where the inputs of one name are.
struct InputRange {
  int start = 0;
  int stop = 0;
  int size() const { return stop - start; }
};

struct SparseApplyInputs {
  InputRange variables, slots, grads, indices, hyperparameters;
};

absl::Status FindInputs(tensorflow::OpKernelContext* ctx, SparseApplyInputs* in);

// Whether there is as much of each as the rule needs.
Status CheckNumInputs(const SparseApplyInputs& in, const RuleInfo& rule);

// Holds mutexes in the order of their addresses, as TensorFlow's own updates take them.
class Locks {
 public:
  Locks() = default;
  Locks(const Locks&) = delete;
  Locks& operator=(const Locks&) = delete;
  ~Locks();

  // InvalidArgument if one is there twice: rows that are updated beside each other must not be the
  // same.
  Status Take(std::vector<Mutex*> mutexes, bool do_lock);

 private:
  std::vector<Mutex*> held_;
};

// Checks shapes and types and says what core shall do; `tensors` are the variables, then the slots.
// Reads hyperparameters, which are on the host, and no other values.
Status ReadUpdates(tensorflow::OpKernelContext* ctx, const SparseApplyInputs& in,
                   const std::vector<tensorflow::Tensor*>& tensors, SparseApplyInput* apply);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_SPARSE_APPLY_INPUT_H_
