#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/group_registration.h"
#include "tf_ops/ops/group_shapes.h"

namespace fused_embedding {

REGISTER_OP("FusedEmbeddingGroupLookupWeightsGrad")
    .Input("combined_grads: num_outputs * T")
    .Input("tables: num_tables * T")
    .FE_GROUP_INPUTS()
    .Output("weights_grad: Tweights")
    .FE_GROUP_ATTRS("T", "1")
    .SetShapeFn(GroupLookupWeightsGradShape)
    .Doc(R"doc(
Gradient of FusedEmbeddingGroupLookup with respect to its weights.

Attrs as in the forward op. The tables are read again.

combined_grads: gradients of combined.
tables: tables `[num_rows_of_table, ...]`; a row is used as if it were flat, of `dim` values.
sp_values: `[nnz]` ids of each column.
weights_grad: `[nnz]` gradient of each of `sp_weights`, 0 for ids that were dropped.
)doc" FE_GROUP_INPUTS_DOC);

REGISTER_OP("FusedEmbeddingResourceGroupLookupWeightsGrad")
    .Input("combined_grads: num_outputs * dtype")
    .Input("resources: num_tables * resource")
    .FE_GROUP_INPUTS()
    .Output("weights_grad: Tweights")
    .FE_GROUP_ATTRS("dtype", "1")
    .SetShapeFn(GroupLookupWeightsGradShape)
    .Doc(R"doc(
Gradient of FusedEmbeddingResourceGroupLookup with respect to its weights.

Attrs as in the forward op. The variables are read again.

combined_grads: gradients of combined.
resources: handles of variables `[num_rows_of_table, ...]`, whose rows are used as if flat, of `dim`
  values.
sp_values: `[nnz]` ids of each column.
weights_grad: `[nnz]` gradient of each of `sp_weights`, 0 for ids that were dropped.
)doc" FE_GROUP_INPUTS_DOC);

}  // namespace fused_embedding
