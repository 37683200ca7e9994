// The ops of a table that are the same wherever its rows are.

#ifndef FUSED_EMBEDDING_KERNELS_EMBEDDING_TABLE_KERNEL_H_
#define FUSED_EMBEDDING_KERNELS_EMBEDDING_TABLE_KERNEL_H_

#include <initializer_list>
#include <string>
#include <utility>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/table/admission.h"
#include "tf_ops/core/table/initializer.h"
#include "tf_ops/core/table/table_statistics.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/table_resource.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

// The value of an attr that has these names.
template <typename Enum>
Enum ParseName(const std::string& name, std::initializer_list<std::pair<const char*, Enum>> names) {
  for (const auto& [known, value] : names) {
    if (name == known) return value;
  }
  return names.begin()->second;  // not reached: the op's attr allows no other name
}

// Attrs dtype and dim.
RowLayout ReadLayout(tensorflow::OpKernelConstruction* ctx);
// Attrs seed, initializer, initializer_a, initializer_b and initializer_matrix.
Status ReadInitializer(tensorflow::OpKernelConstruction* ctx, const RowLayout& layout,
                       InitializerConfig* initializer);
// These attrs as text for the error about two handles of one table that differ.
std::string DescribeRows(tensorflow::OpKernelConstruction* ctx, const RowLayout& layout,
                         const InitializerConfig& initializer);

// The handle of a table, which Maker makes when this first runs. Maker reads the attrs of its own,
// and has: Resource, layout(), description(), is_frozen(), and
// absl::Status Create(ctx, name, is_initialized, Resource**).
template <typename Maker>
class TableHandleOp : public tensorflow::OpKernel {
 public:
  explicit TableHandleOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx), maker_(ctx) {
    container_ = GetAttr<std::string>(ctx, "container");
    name_ = GetAttr<std::string>(ctx, "shared_name");
    if (name_.empty()) name_ = name();
    dtype_ = GetAttr<tensorflow::DataType>(ctx, "dtype");
    // Not where a graph of a cluster was imported without its devices: there is one process.
    const bool is_on_server = ctx->device()->parsed_name().job != "localhost";
    needs_initializer_ =
        GetAttr<bool>(ctx, "needs_initializer") && is_on_server && !maker_.is_frozen();
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    using Resource = typename Maker::Resource;
    const tensorflow::TensorShape scalar;
    const tensorflow::PartialTensorShape rows({-1, maker_.layout().dim});
    const tensorflow::ResourceHandle handle = tensorflow::MakeResourceHandle<Resource>(
        ctx, container_, name_, {tensorflow::DtypeAndPartialTensorShape{dtype_, rows}});
    tensorflow::core::RefCountPtr<Resource> resource;
    OP_REQUIRES_OK(ctx, tensorflow::LookupOrCreateResource<Resource>(
                            ctx, handle, &resource, [&](Resource** created) {
                              return maker_.Create(ctx, name_, !needs_initializer_, created);
                            }));
    OP_REQUIRES(ctx, resource->description() == maker_.description(),
                ToTfStatus(InvalidArgument("EmbeddingVariable ", name_, " exists as ",
                                           resource->description(), ", and is asked for as ",
                                           maker_.description(),
                                           "; use another name, or the same options")));
    // Also of a table that another handle made: graphs with this one have no initializer.
    if (!needs_initializer_) resource->readiness()->set_initialized();
    tensorflow::Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, scalar, &output));
    output->scalar<tensorflow::ResourceHandle>()() = handle;
  }

 private:
  Maker maker_;
  std::string container_;
  std::string name_;
  tensorflow::DataType dtype_;
  bool needs_initializer_;
};

template <typename Resource>
class InitializeTableOp : public OpOnTable<Resource> {
 public:
  using OpOnTable<Resource>::OpOnTable;
  void ComputeOn(tensorflow::OpKernelContext* /*ctx*/, const Resource& resource) override {
    resource.readiness()->set_initialized();
  }
};

template <typename Resource>
class IsTableInitializedOp : public OpOnTable<Resource> {
 public:
  using OpOnTable<Resource>::OpOnTable;
  void ComputeOn(tensorflow::OpKernelContext* ctx, const Resource& resource) override {
    tensorflow::Tensor* is_initialized = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {}, &is_initialized));
    is_initialized->scalar<bool>()() = resource.readiness()->is_ready();
  }
};

template <typename Resource>
class TableStatisticsOp : public OpOnTable<Resource> {
 public:
  using OpOnTable<Resource>::OpOnTable;
  void ComputeOn(tensorflow::OpKernelContext* ctx, const Resource& resource) override {
    TableStatistics counters;
    FE_REQUIRES_OK(ctx, resource.ReadStatistics(ctx, &counters));
    const auto statistics = NamedStatistics(counters);
    tensorflow::Tensor* names = nullptr;
    tensorflow::Tensor* values = nullptr;
    const int64_t n = static_cast<int64_t>(statistics.size());
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {n}, &names));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {n}, &values));
    for (int64_t i = 0; i < n; ++i) {
      names->vec<tensorflow::tstring>()(i) = statistics[static_cast<size_t>(i)].first;
      values->vec<int64_t>()(i) = statistics[static_cast<size_t>(i)].second;
    }
  }
};

template <typename Resource>
class TableSeedOp : public OpOnTable<Resource> {
 public:
  using OpOnTable<Resource>::OpOnTable;
  void ComputeOn(tensorflow::OpKernelContext* ctx, const Resource& resource) override {
    tensorflow::Tensor* seed = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {}, &seed));
    seed->scalar<int64_t>()() = static_cast<int64_t>(resource.initializer().seed);
  }
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_EMBEDDING_TABLE_KERNEL_H_
