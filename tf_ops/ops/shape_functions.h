// Shape arithmetic that several ops share.

#ifndef FUSED_EMBEDDING_OPS_SHAPE_FUNCTIONS_H_
#define FUSED_EMBEDDING_OPS_SHAPE_FUNCTIONS_H_

#include "tensorflow/core/framework/shape_inference.h"

namespace fused_embedding {

// The number of rows of a sparse tensor: its dense shape without the last dimension, multiplied.
// Unknown where the value of input `dense_shape_index` is.
absl::Status NumRowsDim(tensorflow::shape_inference::InferenceContext* c, int dense_shape_index,
                        tensorflow::shape_inference::DimensionHandle* num_rows);

// Input range [start, start + count) as matrices of one width, e.g. the shards of an embedding.
absl::Status MatricesOfOneWidth(tensorflow::shape_inference::InferenceContext* c, int start,
                                int count, tensorflow::shape_inference::DimensionHandle* width);

// Checks sp_values [nnz], sp_indices [nnz, 2] and sp_dense_shape [k] at inputs start, start + 1 and
// start + 2.
absl::Status CheckSparseInputs(tensorflow::shape_inference::InferenceContext* c, int start);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_OPS_SHAPE_FUNCTIONS_H_
