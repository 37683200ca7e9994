#include "tf_ops/kernels/columns_kernel.h"

namespace fused_embedding {
namespace {

REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableExport").Device(tensorflow::DEVICE_CPU),
                        ExportTableOp<TableResource>);
REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableImport").Device(tensorflow::DEVICE_CPU),
                        ImportTableOp<TableResource>);

}  // namespace
}  // namespace fused_embedding
