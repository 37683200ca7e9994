// Shape functions of the ops of a grouped lookup.

#ifndef FUSED_EMBEDDING_OPS_GROUP_SHAPES_H_
#define FUSED_EMBEDDING_OPS_GROUP_SHAPES_H_

#include "tensorflow/core/framework/shape_inference.h"

namespace fused_embedding {

absl::Status GroupLookupShape(tensorflow::shape_inference::InferenceContext* c);
absl::Status StoredRowsShape(tensorflow::shape_inference::InferenceContext* c);
absl::Status RemoteKeysShape(tensorflow::shape_inference::InferenceContext* c);
absl::Status RemoteRowsShape(tensorflow::shape_inference::InferenceContext* c);
absl::Status RemoteLookupShape(tensorflow::shape_inference::InferenceContext* c);
absl::Status RemoteLookupGradShape(tensorflow::shape_inference::InferenceContext* c);
absl::Status UnpackRowsShape(tensorflow::shape_inference::InferenceContext* c);
absl::Status TableGroupLookupShape(tensorflow::shape_inference::InferenceContext* c);
absl::Status TableGroupLookupGradShape(tensorflow::shape_inference::InferenceContext* c);
absl::Status GroupLookupGradShape(tensorflow::shape_inference::InferenceContext* c);
absl::Status GroupLookupWeightsGradShape(tensorflow::shape_inference::InferenceContext* c);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_OPS_GROUP_SHAPES_H_
