#include "tf_ops/kernels/embedding_table_kernel.h"

namespace fused_embedding {

RowLayout ReadLayout(tensorflow::OpKernelConstruction* ctx) {
  RowLayout layout;
  layout.dim = GetAttr<int64_t>(ctx, "dim");
  layout.value_type = ToValueType(GetAttr<tensorflow::DataType>(ctx, "dtype"));
  return layout;
}

Status ReadInitializer(tensorflow::OpKernelConstruction* ctx, const RowLayout& layout,
                       InitializerConfig* initializer) {
  FE_RETURN_IF_ERROR(
      ParseInitializerKind(GetAttr<std::string>(ctx, "initializer"), &initializer->kind));
  initializer->a = GetAttr<float>(ctx, "initializer_a");
  initializer->b = GetAttr<float>(ctx, "initializer_b");
  initializer->seed = static_cast<uint64_t>(GetAttr<int64_t>(ctx, "seed"));
  const auto matrix = GetAttr<std::string>(ctx, "initializer_matrix");
  initializer->matrix.assign(matrix.begin(), matrix.end());
  return CheckInitializer(*initializer, layout);
}

std::string DescribeRows(tensorflow::OpKernelConstruction* ctx, const RowLayout& layout,
                         const InitializerConfig& initializer) {
  return absl::StrCat(tensorflow::DataTypeString(GetAttr<tensorflow::DataType>(ctx, "dtype")),
                      "[?, ", layout.dim, "], initializer ",
                      GetAttr<std::string>(ctx, "initializer"), "(", initializer.a, ", ",
                      initializer.b, ") with ", initializer.matrix.size(),
                      " bytes of default values, seed ", initializer.seed);
}

}  // namespace fused_embedding
