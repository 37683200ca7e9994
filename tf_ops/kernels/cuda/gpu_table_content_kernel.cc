#include "tf_ops/kernels/checkpoint_kernel.h"
#include "tf_ops/kernels/columns_kernel.h"
#include "tf_ops/kernels/cuda/gpu_table_resource.h"

namespace fused_embedding {
namespace {

REGISTER_KERNEL_BUILDER(
    FE_ON_GPU("EmbeddingVariableSave").HostMemory("resource").HostMemory("path"),
    SaveTableOp<GpuTableResource>);
REGISTER_KERNEL_BUILDER(
    FE_ON_GPU("EmbeddingVariableRestore").HostMemory("resource").HostMemory("paths"),
    RestoreTableOp<GpuTableResource>);

// The content is on the host: it is read and made there.
#define FE_HOST_CONTENT(name)               \
  FE_ON_GPU(name)                           \
      .HostMemory("resource")               \
      .HostMemory("keys")                   \
      .HostMemory("values")                 \
      .HostMemory("slots")                  \
      .HostMemory("frequencies")            \
      .HostMemory("versions")               \
      .HostMemory("filtered_keys")          \
      .HostMemory("filtered_frequencies")   \
      .HostMemory("filtered_versions")      \
      .HostMemory("bloom")                  \
      .HostMemory("slot_names")             \
      .HostMemory("slot_widths")            \
      .HostMemory("slot_initials")          \
      .HostMemory("step")                   \
      .HostMemory("initializer")            \
      .HostMemory("initializer_parameters") \
      .HostMemory("seed")                   \
      .HostMemory("initializer_matrix")
REGISTER_KERNEL_BUILDER(FE_HOST_CONTENT("EmbeddingVariableExport"),
                        ExportTableOp<GpuTableResource>);
REGISTER_KERNEL_BUILDER(FE_HOST_CONTENT("EmbeddingVariableImport"),
                        ImportTableOp<GpuTableResource>);
#undef FE_HOST_CONTENT

}  // namespace
}  // namespace fused_embedding
