// The inputs of the ops of a grouped lookup as core's columns.

#ifndef FUSED_EMBEDDING_KERNELS_GROUP_INPUT_H_
#define FUSED_EMBEDDING_KERNELS_GROUP_INPUT_H_

#include <functional>
#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tf_ops/core/lookup/group/group_column.h"
#include "tf_ops/core/lookup/group/group_lookup.h"
#include "tf_ops/kernels/tf_adapters.h"
#include "tf_ops/kernels/weight_values.h"

namespace fused_embedding {

// Attrs that all ops of a grouped lookup have; lists have an entry for each column.
struct GroupAttrs {
  std::vector<Combiner> combiners;
  std::vector<float> max_norms;
  std::vector<int64_t> default_ids;
  std::vector<int64_t> table_of_column;
  std::vector<int64_t> weighted_columns;  // one for each of sp_weights
  std::vector<std::string> column_names;  // for errors; or none
  bool prune = true;
  bool fill_empty_row = true;

  int64_t num_columns() const { return static_cast<int64_t>(table_of_column.size()); }
  // nullptr: it has none.
  const char* column_name(size_t c) const {
    const bool is_named = !column_names.empty() && !column_names[c].empty();
    return is_named ? column_names[c].c_str() : nullptr;
  }
};

Status ReadGroupAttrs(tensorflow::OpKernelConstruction* ctx, GroupAttrs* attrs);

// The tables: tensors of inputs, or variables. Variables are locked for reading, each once and in
// the order of their addresses, while this lives. The lock is held rather than references to the
// tensors: an update that finds a second reference copies the whole table.
class GroupTables {
 public:
  GroupTables() = default;
  GroupTables(const GroupTables&) = delete;
  ~GroupTables();

  // Input list "tables".
  absl::Status ReadTensors(tensorflow::OpKernelContext* ctx);
  // Input list "resources", variables of these dtypes: of each one, or one for all.
  absl::Status ReadVariables(tensorflow::OpKernelContext* ctx,
                             Span<const tensorflow::DataType> dtypes);

  int64_t size() const { return static_cast<int64_t>(tables_.size()); }
  const tensorflow::Tensor& operator[](int64_t t) const { return *tables_[static_cast<size_t>(t)]; }
  // Values of a row of table t, flattened.
  int64_t dim(int64_t t) const;

 private:
  absl::Status CheckRanks() const;

  std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables_;
  std::vector<tensorflow::Var*> locked_;
  std::vector<const tensorflow::Tensor*> tables_;
};

template <typename T>
struct GroupInput {
  std::vector<GroupColumn<CoreType<T>>> columns;

  Span<const GroupColumn<CoreType<T>>> span() const { return AsSpan(columns); }
};

// Weights as values that core computes with: themselves, or a copy in memory of the device.
template <typename T>
using WeightReader = std::function<Status(const tensorflow::Tensor& weights,
                                          Span<const ComputeType<CoreType<T>>>* values)>;

// Reads sp_values, sp_indices, sp_dense_shapes and sp_weights: columns without their tables.
template <typename T>
Status ReadGroup(tensorflow::OpKernelContext* ctx, const GroupAttrs& attrs,
                 const WeightReader<T>& read_weights, GroupInput<T>* in);

// What an op of a group has on the CPU: threads, and weights that were of another type.
template <typename T>
class CpuGroup {
 public:
  explicit CpuGroup(tensorflow::OpKernelContext* ctx) : exec_(ctx) {}
  const TfExec& exec() const { return exec_; }
  WeightReader<T> weight_reader() {
    return [this](const tensorflow::Tensor& weights, auto* values) {
      converted_.emplace_back();
      return ReadWeights(weights, &converted_.back(), values);
    };
  }

 private:
  TfExec exec_;
  std::vector<Buffer<ComputeType<CoreType<T>>>> converted_;
};

template <typename T>
void SetTables(const GroupAttrs& attrs, const GroupTables& tables, GroupInput<T>* in);

// Reads combined_grads, which must have the shapes of the forward op's outputs.
template <typename T>
Status ReadCombinedGrads(tensorflow::OpKernelContext* ctx, const GroupInput<T>& in,
                         std::vector<CombinedGrad<CoreType<T>>>* grads);

// Allocates the outputs from 0 on for the columns' results, one for all or one for each, and says
// where each column's is.
template <typename T>
absl::Status AllocateCombined(tensorflow::OpKernelContext* ctx, const GroupInput<T>& in,
                              int num_outputs, std::vector<CombinedOut<CoreType<T>>>* combined);

// Attr num_outputs.
Status ReadNumOutputs(tensorflow::OpKernelConstruction* ctx, const GroupAttrs& attrs,
                      int* num_outputs);

// An op of a grouped lookup, whose tables and columns are read before `ComputeOn`. The tables are
// variables, or tensors. Core is what the op has on its device, as CpuGroup.
template <typename Core, typename T, bool kAreVariables>
class GroupOp : public tensorflow::OpKernel {
 public:
  explicit GroupOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadGroupAttrs(ctx, &attrs_));
  }

  void Compute(tensorflow::OpKernelContext* ctx) final {
    GroupTables tables;
    if constexpr (kAreVariables) {
      const tensorflow::DataType dtype = tensorflow::DataTypeToEnum<T>::value;
      OP_REQUIRES_OK(ctx, tables.ReadVariables(ctx, {&dtype, 1}));
    } else {
      OP_REQUIRES_OK(ctx, tables.ReadTensors(ctx));
    }
    Core core(ctx);
    GroupInput<T> in;
    FE_REQUIRES_OK(ctx, ReadGroup<T>(ctx, attrs_, core.weight_reader(), &in));
    SetTables(attrs_, tables, &in);
    ComputeOn(ctx, &core, tables, in);
  }

 protected:
  const GroupAttrs& attrs() const { return attrs_; }

 private:
  virtual void ComputeOn(tensorflow::OpKernelContext* ctx, Core* core, const GroupTables& tables,
                         const GroupInput<T>& in) = 0;

  GroupAttrs attrs_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_GROUP_INPUT_H_
