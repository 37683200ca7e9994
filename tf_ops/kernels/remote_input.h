// The attrs of the ops of a lookup in tables of other tasks.

#ifndef FUSED_EMBEDDING_KERNELS_REMOTE_INPUT_H_
#define FUSED_EMBEDDING_KERNELS_REMOTE_INPUT_H_

#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/remote/packed_rows.h"
#include "tf_ops/core/lookup/remote/remote_keys.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

Status ReadRemoteTables(tensorflow::OpKernelConstruction* ctx, RemoteTables* tables);
Status ReadPackedLayout(tensorflow::OpKernelConstruction* ctx, PackedLayout* layout);

// Input list "rows" and input "part_sizes": what servers sent, and where in it the parts are.
template <typename T>
struct PackedInput {
  std::vector<const CoreType<T>*> servers;
  PackedPlaces places;
};

template <typename T>
Status ReadPackedRows(tensorflow::OpKernelContext* ctx, const PackedLayout& layout,
                      PackedInput<T>* in);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_REMOTE_INPUT_H_
