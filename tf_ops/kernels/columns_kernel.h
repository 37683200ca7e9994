// A table's content as tensors, wherever its rows are.

#ifndef FUSED_EMBEDDING_KERNELS_COLUMNS_KERNEL_H_
#define FUSED_EMBEDDING_KERNELS_COLUMNS_KERNEL_H_

#include <algorithm>
#include <limits>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/checkpoint/columns.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/table_resource.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

template <typename Resource>
class ExportTableOp : public OpThatReadsTable<Resource> {
 public:
  explicit ExportTableOp(tensorflow::OpKernelConstruction* ctx) : OpThatReadsTable<Resource>(ctx) {
    dtype_ = GetAttr<tensorflow::DataType>(ctx, "dtype");
    slot_dtype_ = GetAttr<tensorflow::DataType>(ctx, "slot_dtype");
  }

  void ComputeOn(tensorflow::OpKernelContext* ctx, const Resource& resource) override {
    const RowLayout& layout = resource.layout();
    FE_REQUIRES_OK(ctx, CheckValueType("dtype", dtype_, layout.value_type));
    OP_REQUIRES(ctx, tensorflow::DataTypeSize(slot_dtype_) == layout.slot_number_bytes(),
                ToTfStatus(InvalidArgument("slot_dtype must have ", layout.slot_number_bytes(),
                                           " bytes for this table, got ",
                                           tensorflow::DataTypeString(slot_dtype_))));
    TableCopy copy;
    FE_REQUIRES_OK(ctx, resource.ReadContent(ctx, [&](const EmbeddingTable& table) {
      return CopyTable(table, &copy);
    }));
    OP_REQUIRES_OK(ctx, WriteRows(ctx, copy));
    OP_REQUIRES_OK(ctx, WriteFiltered(ctx, copy));
    OP_REQUIRES_OK(ctx, WriteSlots(ctx, copy.layout.slots));
    OP_REQUIRES_OK(ctx, WriteStepAndInitializer(ctx, copy));
  }

 private:
  static absl::Status WriteRows(tensorflow::OpKernelContext* ctx, const TableCopy& copy) {
    const int64_t n = copy.num_rows();
    tensorflow::Tensor *keys, *values, *slots, *frequencies, *versions;
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 0, {n}, &keys));
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 1, {n, copy.layout.dim}, &values));
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 2, {n, copy.layout.slot_width()}, &slots));
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 3, {n}, &frequencies));
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 4, {n}, &versions));
    SplitColumns(copy, {OutputSpan<int64_t>(keys), static_cast<char*>(values->data()),
                        static_cast<char*>(slots->data()), OutputSpan<int64_t>(frequencies),
                        OutputSpan<int64_t>(versions)});
    return absl::OkStatus();
  }

  static absl::Status WriteFiltered(tensorflow::OpKernelContext* ctx, const TableCopy& copy) {
    const FilteredKeys& filtered = copy.filtered;
    const auto m = static_cast<int64_t>(filtered.keys.size());
    tensorflow::Tensor *keys, *frequencies, *versions, *bloom;
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 5, {m}, &keys));
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 6, {m}, &frequencies));
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 7, {m}, &versions));
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 8, {static_cast<int64_t>(copy.bloom.size())}, &bloom));
    std::copy(filtered.keys.begin(), filtered.keys.end(), OutputSpan<int64_t>(keys).begin());
    std::copy(filtered.frequencies.begin(), filtered.frequencies.end(),
              OutputSpan<int64_t>(frequencies).begin());
    std::copy(filtered.versions.begin(), filtered.versions.end(),
              OutputSpan<int64_t>(versions).begin());
    std::copy(copy.bloom.begin(), copy.bloom.end(), bloom->flat<uint8_t>().data());
    return absl::OkStatus();
  }

  static absl::Status WriteSlots(tensorflow::OpKernelContext* ctx, const std::vector<Slot>& slots) {
    tensorflow::Tensor *names, *widths, *initials;
    const auto k = static_cast<int64_t>(slots.size());
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 9, {k}, &names));
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 10, {k}, &widths));
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 11, {k}, &initials));
    for (int64_t i = 0; i < k; ++i) {
      const Slot& slot = slots[static_cast<size_t>(i)];
      names->flat<tensorflow::tstring>()(i) = slot.name;
      widths->flat<int64_t>()(i) = slot.width;
      initials->flat<double>()(i) = slot.initial;
    }
    return absl::OkStatus();
  }

  static absl::Status WriteStepAndInitializer(tensorflow::OpKernelContext* ctx,
                                              const TableCopy& copy) {
    const InitializerConfig& initializer = copy.initializer;
    tensorflow::Tensor *step, *kind, *parameters, *seed, *matrix;
    TF_RETURN_IF_ERROR(ctx->allocate_output(12, {}, &step));
    TF_RETURN_IF_ERROR(ctx->allocate_output(13, {}, &kind));
    TF_RETURN_IF_ERROR(ctx->allocate_output(14, {2}, &parameters));
    TF_RETURN_IF_ERROR(ctx->allocate_output(15, {}, &seed));
    const auto matrix_bytes = static_cast<int64_t>(initializer.matrix.size());
    const int64_t rows = matrix_bytes / copy.layout.value_bytes();
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 16, {rows, copy.layout.dim}, &matrix));
    step->scalar<int64_t>()() = copy.step;
    kind->scalar<tensorflow::tstring>()() = InitializerKindName(initializer.kind);
    parameters->flat<double>()(0) = initializer.a;
    parameters->flat<double>()(1) = initializer.b;
    seed->scalar<int64_t>()() = static_cast<int64_t>(initializer.seed);
    std::copy(initializer.matrix.begin(), initializer.matrix.end(),
              static_cast<char*>(matrix->data()));
    return absl::OkStatus();
  }

  tensorflow::DataType dtype_;
  tensorflow::DataType slot_dtype_;
};

// A vector input of `size` elements.
template <typename T>
Status ReadVector(tensorflow::OpKernelContext* ctx, int index, const char* name, int64_t size,
                  Span<const T>* out) {
  FE_RETURN_IF_ERROR(CheckVector(name, ctx->input(index)));
  *out = InputSpan<T>(ctx->input(index));
  if (out->size == size) return Status();
  return InvalidArgument(name, " must have ", size, " elements, got ", out->size);
}

inline Status CheckCounter(const char* name, int64_t value) {
  if (value >= 0 && value <= std::numeric_limits<uint32_t>::max()) return Status();
  return InvalidArgument(name, " must be in [0, 2^32), got ", value);
}

template <typename Resource>
class ImportTableOp : public OpOnTable<Resource> {
 public:
  explicit ImportTableOp(tensorflow::OpKernelConstruction* ctx) : OpOnTable<Resource>(ctx) {
    FE_REQUIRES_OK(ctx, ReadPartition(ctx, &partition_));
  }

  void ComputeOn(tensorflow::OpKernelContext* ctx, const Resource& resource) override {
    TableReadiness::Restore restore(resource.readiness());
    TableContent content;
    FE_REQUIRES_OK(ctx, ReadRows(ctx, resource.layout(), &content));
    FE_REQUIRES_OK(ctx, ReadSlots(ctx, &content));
    FE_REQUIRES_OK(ctx, ReadFiltered(ctx, &content));
    FE_REQUIRES_OK(ctx, ReadStepAndInitializer(ctx, &content));
    FE_REQUIRES_OK(ctx, resource.ReplaceContent(ctx, [&](EmbeddingTable* table) {
      return ReplaceContent(TfExec(ctx), content, partition_, table);
    }));
    restore.Succeed();
  }

 private:
  static Status ReadRows(tensorflow::OpKernelContext* ctx, const RowLayout& layout,
                         TableContent* content) {
    EmbeddingTable::Content& rows = content->rows;
    FE_RETURN_IF_ERROR(CheckVector("keys", ctx->input(1)));
    rows.keys = InputSpan<int64_t>(ctx->input(1));
    const int64_t n = rows.keys.size;
    FE_RETURN_IF_ERROR(CheckValues("values", ctx->input(2), n, layout));
    rows.values = static_cast<const char*>(ctx->input(2).data());
    FE_RETURN_IF_ERROR(ReadVector(ctx, 4, "frequencies", n, &rows.frequencies));
    FE_RETURN_IF_ERROR(ReadVector(ctx, 5, "versions", n, &rows.versions));
    const tensorflow::Tensor& slots = ctx->input(3);
    if (slots.dims() != 2 || slots.dim_size(0) != n ||
        tensorflow::DataTypeSize(slots.dtype()) != layout.slot_number_bytes()) {
      return InvalidArgument("slots must be [", n, ", w] numbers of ", layout.slot_number_bytes(),
                             " bytes, got ", tensorflow::DataTypeString(slots.dtype()),
                             slots.shape().DebugString());
    }
    rows.slots = static_cast<const char*>(slots.data());
    return Status();
  }

  static Status ReadSlots(tensorflow::OpKernelContext* ctx, TableContent* content) {
    FE_RETURN_IF_ERROR(CheckVector("slot_names", ctx->input(10)));
    const auto names = ctx->input(10).flat<tensorflow::tstring>();
    Span<const int64_t> widths;
    Span<const double> initials;
    FE_RETURN_IF_ERROR(ReadVector(ctx, 11, "slot_widths", names.size(), &widths));
    FE_RETURN_IF_ERROR(ReadVector(ctx, 12, "slot_initials", names.size(), &initials));
    int64_t left = ctx->input(3).dim_size(1);
    for (int64_t i = 0; i < names.size(); ++i) {
      if (widths[i] < 0 || widths[i] > left) break;
      left -= widths[i];
      content->slots.push_back({names(i), widths[i], initials[i]});
    }
    if (left == 0 && static_cast<int64_t>(content->slots.size()) == names.size()) return Status();
    return InvalidArgument("slot_widths must add up to the ", ctx->input(3).dim_size(1),
                           " numbers of a row of slots");
  }

  static Status ReadFiltered(tensorflow::OpKernelContext* ctx, TableContent* content) {
    FE_RETURN_IF_ERROR(CheckVector("filtered_keys", ctx->input(6)));
    const auto keys = InputSpan<int64_t>(ctx->input(6));
    Span<const int64_t> frequencies, versions;
    FE_RETURN_IF_ERROR(ReadVector(ctx, 7, "filtered_frequencies", keys.size, &frequencies));
    FE_RETURN_IF_ERROR(ReadVector(ctx, 8, "filtered_versions", keys.size, &versions));
    for (int64_t i = 0; i < keys.size; ++i) {
      FE_RETURN_IF_ERROR(CheckCounter("filtered_frequencies", frequencies[i]));
      FE_RETURN_IF_ERROR(CheckCounter("filtered_versions", versions[i]));
      content->filtered.keys.push_back(keys[i]);
      content->filtered.frequencies.push_back(static_cast<uint32_t>(frequencies[i]));
      content->filtered.versions.push_back(static_cast<uint32_t>(versions[i]));
    }
    FE_RETURN_IF_ERROR(CheckVector("bloom", ctx->input(9)));
    const tensorflow::Tensor& bloom = ctx->input(9);
    content->bloom = {static_cast<const char*>(bloom.data()), bloom.NumElements()};
    return Status();
  }

  static Status ReadStepAndInitializer(tensorflow::OpKernelContext* ctx, TableContent* content) {
    FE_RETURN_IF_ERROR(ReadScalar(ctx, 13, "step", &content->step));
    tensorflow::tstring kind;
    FE_RETURN_IF_ERROR(ReadScalar(ctx, 14, "initializer", &kind));
    InitializerConfig& initializer = content->initializer;
    FE_RETURN_IF_ERROR(ParseInitializerKind(kind, &initializer.kind));
    Span<const double> parameters;
    FE_RETURN_IF_ERROR(ReadVector(ctx, 15, "initializer_parameters", 2, &parameters));
    initializer.a = parameters[0];
    initializer.b = parameters[1];
    int64_t seed = 0;
    FE_RETURN_IF_ERROR(ReadScalar(ctx, 16, "seed", &seed));
    initializer.seed = static_cast<uint64_t>(seed);
    const auto matrix = ctx->input(17).tensor_data();
    initializer.matrix.assign(matrix.begin(), matrix.end());
    return Status();
  }

  PartitionFilter partition_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_COLUMNS_KERNEL_H_
