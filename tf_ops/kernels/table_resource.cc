#include "tf_ops/kernels/table_resource.h"

#include <utility>

#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/platform/logging.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

tensorflow::DataType ToDataType(ValueType type) {
  switch (type) {
    case ValueType::kFloat:
      return tensorflow::DT_FLOAT;
    case ValueType::kDouble:
      return tensorflow::DT_DOUBLE;
    case ValueType::kHalf:
      return tensorflow::DT_HALF;
    case ValueType::kBFloat16:
      return tensorflow::DT_BFLOAT16;
  }
  return tensorflow::DT_INVALID;
}

}  // namespace

absl::Status CheckTableHandle(const tensorflow::Tensor& input) {
  if (input.dtype() == tensorflow::DT_RESOURCE && input.NumElements() == 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "resource must be one handle of an EmbeddingVariable, got ", input.DebugString()));
}

absl::Status CheckTableState(const std::string& name, const absl::Status& found,
                             TableState required, const AnyTableResource* resource) {
  if (absl::IsNotFound(found)) {
    return absl::NotFoundError(absl::StrCat(
        "EmbeddingVariable ", name,
        " does not exist: it was deleted, or its session was closed; make it again with "
        "fe.get_embedding_variable and restore it from a checkpoint"));
  }
  if (!found.ok() || required == TableState::kAny || resource->readiness()->is_initialized()) {
    return found;
  }
  // A session manager of TensorFlow waits where the error has this word.
  return absl::FailedPreconditionError(absl::StrCat(
      "EmbeddingVariable ", name,
      " is uninitialized: since its server started, it was neither "
      "initialized nor restored. A chief runs its initializer, which "
      "tf.compat.v1.global_variables_initializer() includes when it is called after the table was "
      "made, or restores a checkpoint; a worker waits until "
      "tf.compat.v1.report_uninitialized_variables() returns no name, as MonitoredTrainingSession "
      "does"));
}

void WaitForServingLock(tensorflow::OpKernelContext* ctx, std::shared_ptr<ServingLock> lock,
                        LockMode mode, std::function<void(absl::Status)> then) {
  tensorflow::CancellationManager* const manager = ctx->cancellation_manager();
  const tensorflow::CancellationToken token =
      manager == nullptr ? 0 : manager->get_cancellation_token();
  const absl::Status cancelled = absl::CancelledError(
      "the step was cancelled while it waited for the tables of an export to be free");
  const auto wait = std::make_shared<LockWait>(mode, [=](bool is_held) {
    // Not DeregisterCallback, which waits for a callback that runs: that may be who calls this.
    if (manager != nullptr) manager->TryDeregisterCallback(token);
    then(is_held ? absl::OkStatus() : cancelled);
  });
  // A step that is cancelled from here on cancels the wait, also before Acquire.
  const bool is_registered =
      manager == nullptr || manager->RegisterCallback(token, [lock, wait] { lock->Cancel(wait); });
  if (!is_registered) return then(cancelled);
  lock->Acquire(wait);
}

void WarnOfRefused(const std::string& name, const EmbeddingTable& table, int64_t num_refused) {
  if (num_refused == 0 || table.config().check_mode != CheckMode::kWarning) return;
  LOG(WARNING) << name << ": the full table refused " << num_refused
               << " keys, which read zeros; raise max_capacity or allow eviction";
}

Status CheckValueType(const char* name, tensorflow::DataType dtype, ValueType value_type) {
  if (dtype == ToDataType(value_type)) return Status();
  return InvalidArgument(name, " is ", tensorflow::DataTypeString(dtype), ", but the table holds ",
                         tensorflow::DataTypeString(ToDataType(value_type)));
}

Status ReadPartition(tensorflow::OpKernelConstruction* ctx, PartitionFilter* partition) {
  partition->index = GetAttr<int64_t>(ctx, "partition_index");
  partition->count = GetAttr<int64_t>(ctx, "num_partitions");
  FE_RETURN_IF_ERROR(ReadPartitionStrategy(ctx, &partition->strategy));
  return CheckPartition(*partition);
}

Status CheckCounts(const tensorflow::Tensor& counts, int64_t n) {
  FE_RETURN_IF_ERROR(CheckVector("counts", counts));
  if (counts.NumElements() == 0 || counts.NumElements() == n) return Status();
  return InvalidArgument("counts must be empty or have one element for each of the ", n,
                         " keys, got ", counts.NumElements());
}

Status CheckValues(const char* name, const tensorflow::Tensor& tensor, int64_t n,
                   const RowLayout& layout) {
  FE_RETURN_IF_ERROR(CheckValueType(name, tensor.dtype(), layout.value_type));
  if (tensor.dims() != 2 || tensor.dim_size(0) != n || tensor.dim_size(1) != layout.dim) {
    return InvalidArgument(name, " must have shape [", n, ", ", layout.dim,
                           "]: a row of the table for each key, got shape ",
                           tensor.shape().DebugString());
  }
  return Status();
}

Status ReadInserts(tensorflow::OpKernelConstruction* ctx, std::vector<bool>* inserts) {
  const auto num_tables = static_cast<size_t>(GetAttr<int64_t>(ctx, "num_tables"));
  *inserts = GetAttr<std::vector<bool>>(ctx, "are_inserted");
  if (inserts->empty()) inserts->assign(num_tables, GetAttr<bool>(ctx, "insert"));
  if (inserts->size() == num_tables) return Status();
  return InvalidArgument("are_inserted must be empty or have an entry for each of the ", num_tables,
                         " tables, got ", inserts->size());
}

}  // namespace fused_embedding
