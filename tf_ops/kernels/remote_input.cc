#include "tf_ops/kernels/remote_input.h"

#include <string>

#include "tf_ops/kernels/sparse_inputs.h"

namespace fused_embedding {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

Status ReadRemoteTables(OpKernelConstruction* ctx, RemoteTables* tables) {
  for (const auto& name : GetAttr<std::vector<std::string>>(ctx, "partition_strategies")) {
    tables->strategies.emplace_back();
    FE_RETURN_IF_ERROR(ParsePartitionStrategy(name, &tables->strategies.back()));
  }
  tables->num_parts = GetAttr<std::vector<int64_t>>(ctx, "num_parts");
  tables->part_rows = GetAttr<std::vector<int64_t>>(ctx, "part_rows");
  tables->part_servers = GetAttr<std::vector<int64_t>>(ctx, "part_servers");
  tables->num_servers = GetAttr<int64_t>(ctx, "num_servers");
  FE_RETURN_IF_ERROR(CheckRemoteTables(*tables));
  const auto num_tables = GetAttr<int64_t>(ctx, "num_tables");
  if (tables->num_tables() == num_tables) return Status();
  return InvalidArgument("num_parts must have one entry for each of the ", num_tables,
                         " tables, got ", tables->num_tables());
}

Status ReadPackedLayout(OpKernelConstruction* ctx, PackedLayout* layout) {
  layout->dims = GetAttr<std::vector<int64_t>>(ctx, "dims");
  layout->num_parts = GetAttr<std::vector<int64_t>>(ctx, "num_parts");
  layout->part_servers = GetAttr<std::vector<int64_t>>(ctx, "part_servers");
  layout->num_servers = GetAttr<int64_t>(ctx, "num_servers");
  FE_RETURN_IF_ERROR(CheckPackedLayout(*layout));
  const auto num_tables = GetAttr<int64_t>(ctx, "num_tables");
  if (layout->num_tables() == num_tables) return Status();
  return InvalidArgument("dims must have one entry for each of the ", num_tables, " tables, got ",
                         layout->num_tables());
}

template <typename T>
Status ReadPackedRows(OpKernelContext* ctx, const PackedLayout& layout, PackedInput<T>* in) {
  const Tensor* part_sizes = nullptr;
  FE_RETURN_IF_ERROR(ToStatus(ctx->input("part_sizes", &part_sizes)));
  FE_RETURN_IF_ERROR(CheckVector("part_sizes", *part_sizes));
  FE_RETURN_IF_ERROR(PlacePackedRows(layout, InputSpan<int64_t>(*part_sizes), &in->places));
  tensorflow::OpInputList rows;
  FE_RETURN_IF_ERROR(InputList(ctx, "rows", &rows));
  std::vector<int64_t> sizes;
  for (const Tensor& of_server : rows) {
    FE_RETURN_IF_ERROR(CheckVector("rows", of_server));
    sizes.push_back(of_server.NumElements());
    in->servers.push_back(InputSpan<T>(of_server).data);
  }
  return CheckPackedSizes(in->places, AsSpan(sizes));
}

#define FE_INSTANTIATE(T) \
  template Status ReadPackedRows(OpKernelContext*, const PackedLayout&, PackedInput<T>*);
FE_FOR_EACH_TF_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
