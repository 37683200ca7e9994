#include "tf_ops/kernels/pairs_input.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <type_traits>

#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/weight_values.h"

namespace fused_embedding {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

const Tensor& Input(OpKernelContext* ctx, const char* name) {
  const Tensor* tensor = nullptr;
  ctx->input(name, &tensor).IgnoreError();  // the op's registration guarantees the name
  return *tensor;
}

Status CheckIndices(const char* name, const Tensor& indices) {
  if (indices.dims() == 2 && indices.dim_size(1) >= 1) return Status();
  return InvalidArgument(name, " must be a matrix [num_pairs, 2], got shape ",
                         indices.shape().DebugString());
}

// `shards[p]` is the memory of a matrix [in.shard_sizes[p], dim].
template <typename T, typename Value>
Status LocateRows(const PairsInput<T>& in, const std::vector<Value*>& shards,
                  Buffer<Value*>* rows) {
  const int64_t dim = in.pairs.dim;
  const int64_t num_unique =
      std::accumulate(in.shard_sizes.begin(), in.shard_sizes.end(), int64_t{0});
  FE_RETURN_IF_ERROR(rows->Allocate(num_unique));
  if (!in.permutation.empty()) {
    for (int64_t u = 0; u < num_unique; ++u) {
      (*rows)[u] = shards[in.permutation[2 * u]] + in.permutation[2 * u + 1] * dim;
    }
    return Status();
  }
  int64_t u = 0;
  for (size_t p = 0; p < shards.size(); ++p) {
    for (int64_t i = 0; i < in.shard_sizes[p]; ++i) (*rows)[u++] = shards[p] + i * dim;
  }
  return Status();
}

template <typename T>
Status LocateEmbeddings(OpKernelContext* ctx, PairsInput<T>* in) {
  OpInputList emb_shards;
  FE_RETURN_IF_ERROR(InputList(ctx, "emb_shards", &emb_shards));
  std::vector<const CoreType<T>*> shards;
  for (const Tensor& shard : emb_shards) shards.push_back(InputSpan<T>(shard).data);
  FE_RETURN_IF_ERROR(LocateRows(*in, shards, &in->rows));
  in->pairs.rows = {in->rows.data(), in->rows.size()};
  return Status();
}

Status CheckPermutationShape(const Tensor& permutation, const std::vector<int64_t>& shard_sizes) {
  const int64_t num_unique = std::accumulate(shard_sizes.begin(), shard_sizes.end(), int64_t{0});
  if (permutation.dims() == 2 && permutation.dim_size(1) == 2 &&
      permutation.dim_size(0) == num_unique) {
    return Status();
  }
  return InvalidArgument("partition_permutation must be a matrix [", num_unique,
                         ", 2], one row for each row of emb_shards, got shape ",
                         permutation.shape().DebugString());
}

// Each unique id has one row of one shard, and each row one unique id.
Status CheckPermutation(Span<const int32_t> permutation, const std::vector<int64_t>& shard_sizes) {
  std::vector<std::vector<bool>> is_taken;
  for (const int64_t size : shard_sizes) is_taken.emplace_back(static_cast<size_t>(size));
  for (int64_t u = 0; 2 * u < permutation.size; ++u) {
    const int64_t shard = permutation[2 * u];
    const int64_t position = permutation[2 * u + 1];
    const bool exists = shard >= 0 && shard < static_cast<int64_t>(shard_sizes.size()) &&
                        position >= 0 && position < shard_sizes[shard];
    if (!exists || is_taken[shard][position]) return BadPermutation(u, shard, position, exists);
    is_taken[shard][position] = true;
  }
  return Status();
}

// v1: the pairs of all shards, one shard after the other; pair k has embedding k.
template <typename T>
Status ConcatenateShards(const OpInputList& indices, PairsInput<T>* in) {
  const int64_t num_pairs = in->pairs.rows.size;
  FE_RETURN_IF_ERROR(in->row_ids.Allocate(num_pairs));
  FE_RETURN_IF_ERROR(in->unique_idx.Allocate(num_pairs));
  std::iota(in->unique_idx.span().begin(), in->unique_idx.span().end(), 0);
  int64_t k = 0;
  for (const Tensor& of_shard : indices) {
    const auto rows = of_shard.matrix<int64_t>();
    for (int64_t i = 0; i < of_shard.dim_size(0); ++i) in->row_ids[k++] = rows(i, 0);
  }
  in->pairs.row_ids = {in->row_ids.data(), num_pairs, 1, kConcatenatedIndices};
  in->pairs.unique_idx = in->unique_idx.span();
  return Status();
}

template <typename T>
Status ConcatenateWeights(const OpInputList& weights, PairsInput<T>* in) {
  if (weights.size() == 0) return Status();
  FE_RETURN_IF_ERROR(in->weights.Allocate(in->pairs.num_pairs()));
  auto* next = in->weights.data();
  for (const Tensor& of_shard : weights) {
    LoadWeights(of_shard, next);
    next += of_shard.NumElements();
  }
  in->pairs.weights = in->weights.span();
  return Status();
}

}  // namespace

Status ReadPostLookupAttrs(tensorflow::OpKernelConstruction* ctx, PostLookupAttrs* attrs) {
  attrs->max_norm = GetAttr<float>(ctx, "max_norm");
  attrs->default_id = GetAttr<int64_t>(ctx, "default_id");
  if (ctx->HasAttr("fill_empty_row")) {
    attrs->fill_empty_row = GetAttr<bool>(ctx, "fill_empty_row");
  }
  if (ctx->HasAttr("use_sparse_weights")) {
    attrs->use_sparse_weights = GetAttr<bool>(ctx, "use_sparse_weights");
  }
  if (ctx->HasAttr("partition_axis")) FE_RETURN_IF_ERROR(ReadPartitionAxis(ctx));
  return ParseCombiner(GetAttr<std::string>(ctx, "combiner"), &attrs->combiner);
}

template <typename T>
Status ReadShards(OpKernelContext* ctx, const PostLookupAttrs& attrs, int64_t num_rows,
                  PairsInput<T>* in) {
  OpInputList shards;
  FE_RETURN_IF_ERROR(InputList(ctx, "emb_shards", &shards));
  for (int p = 0; p < shards.size(); ++p) {
    if (shards[p].dims() != 2 || shards[p].dim_size(1) != shards[0].dim_size(1)) {
      return InvalidArgument("emb_shards must be matrices of one width, but emb_shards[", p,
                             "] has shape ", shards[p].shape().DebugString(), " and emb_shards[0] ",
                             shards[0].shape().DebugString());
    }
    in->shard_sizes.push_back(shards[p].dim_size(0));
  }
  in->pairs.dim = shards[0].dim_size(1);
  in->pairs.num_rows = num_rows;
  in->pairs.combiner = attrs.combiner;
  in->pairs.max_norm = attrs.max_norm;
  return Status();
}

Status ReadShardInputs(OpKernelContext* ctx, const PostLookupAttrs& attrs, int64_t num_rows,
                       const std::vector<int64_t>& shard_sizes, ShardInputs* inputs) {
  FE_RETURN_IF_ERROR(InputList(ctx, "partitioned_indices", &inputs->indices));
  FE_RETURN_IF_ERROR(InputList(ctx, "partitioned_weights", &inputs->weights));
  const OpInputList& indices = inputs->indices;
  const OpInputList& weights = inputs->weights;
  if (weights.size() != 0 && weights.size() != static_cast<int>(shard_sizes.size())) {
    return InvalidArgument("partitioned_weights must be one vector for each of the ",
                           shard_sizes.size(), " shards, or none, got ", weights.size());
  }
  for (int p = 0; p < indices.size(); ++p) {
    FE_RETURN_IF_ERROR(CheckIndices("partitioned_indices", indices[p]));
    if (indices[p].dim_size(0) != shard_sizes[p]) {
      return InvalidArgument("partitioned_indices[", p, "] must have one row for each of the ",
                             shard_sizes[p], " rows of emb_shards[", p, "], got shape ",
                             indices[p].shape().DebugString());
    }
  }
  for (int p = 0; p < weights.size(); ++p) {
    if (weights[p].dims() != 1 || weights[p].NumElements() != shard_sizes[p]) {
      return InvalidArgument("partitioned_weights[", p, "] must have one weight for each of the ",
                             shard_sizes[p], " pairs, got shape ",
                             weights[p].shape().DebugString());
    }
  }
  if (attrs.default_id >= 0) return Status();
  const Tensor& flags = Input(ctx, "row_empty_and_invalid_flags");
  FE_RETURN_IF_ERROR(CheckVector("row_empty_and_invalid_flags", flags));
  if (flags.NumElements() < num_rows) {
    return InvalidArgument("row_empty_and_invalid_flags must start with a flag for each of the ",
                           num_rows, " rows, but has ", flags.NumElements(), " elements");
  }
  inputs->flags = {InputSpan<int32_t>(flags).data, num_rows};
  return Status();
}

template <typename T>
Status ReadPairsV1(OpKernelContext* ctx, const PostLookupAttrs& attrs, int64_t num_rows,
                   PairsInput<T>* in) {
  ShardInputs inputs;
  FE_RETURN_IF_ERROR(ReadShards(ctx, attrs, num_rows, in));
  FE_RETURN_IF_ERROR(ReadShardInputs(ctx, attrs, num_rows, in->shard_sizes, &inputs));
  FE_RETURN_IF_ERROR(LocateEmbeddings(ctx, in));
  FE_RETURN_IF_ERROR(ConcatenateShards(inputs.indices, in));
  FE_RETURN_IF_ERROR(ConcatenateWeights(inputs.weights, in));
  FE_RETURN_IF_ERROR(in->is_zero_row.Allocate(inputs.flags.size));
  std::transform(inputs.flags.begin(), inputs.flags.end(), in->is_zero_row.data(),
                 [](int32_t flag) { return flag != 0; });
  in->pairs.is_zero_row = in->is_zero_row.span();
  return Status();
}

template <typename T>
Status ReadInputsV2(OpKernelContext* ctx, const PostLookupAttrs& attrs, PairsInput<T>* in,
                    const Tensor** weights) {
  if (in->shard_sizes.size() > 1) {
    const Tensor& permutation = Input(ctx, "partition_permutation");
    FE_RETURN_IF_ERROR(CheckPermutationShape(permutation, in->shard_sizes));
    in->permutation = InputSpan<int32_t>(permutation);
  }
  const Tensor& indices = Input(ctx, "indices_before_unique");
  FE_RETURN_IF_ERROR(CheckIndices("indices_before_unique", indices));
  const Tensor& unique_idxs = Input(ctx, "unique_idxs");
  FE_RETURN_IF_ERROR(CheckVector("unique_idxs", unique_idxs));
  in->pairs.row_ids = {InputSpan<int64_t>(indices).data, indices.dim_size(0), indices.dim_size(1),
                       "indices_before_unique"};
  in->pairs.unique_idx = InputSpan<int32_t>(unique_idxs);
  *weights = nullptr;
  if (attrs.use_sparse_weights) {
    *weights = &Input(ctx, "sp_weights_values");
    FE_RETURN_IF_ERROR(CheckVector("sp_weights_values", **weights));
    if ((*weights)->NumElements() != in->pairs.num_pairs()) {
      return InvalidArgument("sp_weights_values must hold one weight for each of the ",
                             in->pairs.num_pairs(), " pairs, but has ", (*weights)->NumElements());
    }
  }
  if (!attrs.fill_empty_row || attrs.default_id >= 0) return Status();
  const Tensor& is_row_empty = Input(ctx, "is_row_empty");
  if (is_row_empty.dims() != 1 || is_row_empty.NumElements() != in->pairs.num_rows) {
    return InvalidArgument("is_row_empty must be a vector of ", in->pairs.num_rows,
                           " elements, one a row, got shape ", is_row_empty.shape().DebugString());
  }
  in->pairs.is_zero_row = InputSpan<bool>(is_row_empty);
  return Status();
}

template <typename T>
Status ReadPairsV2(OpKernelContext* ctx, const PostLookupAttrs& attrs, int64_t num_rows,
                   PairsInput<T>* in) {
  const Tensor* weights = nullptr;
  FE_RETURN_IF_ERROR(ReadShards(ctx, attrs, num_rows, in));
  FE_RETURN_IF_ERROR(ReadInputsV2(ctx, attrs, in, &weights));
  FE_RETURN_IF_ERROR(CheckPermutation(in->permutation, in->shard_sizes));
  FE_RETURN_IF_ERROR(LocateEmbeddings(ctx, in));
  return weights ? ReadWeights(*weights, &in->weights, &in->pairs.weights) : Status();
}

template <typename T>
Status AllocateGradShards(OpKernelContext* ctx, const PairsInput<T>& in,
                          std::vector<CoreType<T>*>* shards) {
  for (size_t p = 0; p < in.shard_sizes.size(); ++p) {
    Tensor* shard = nullptr;
    FE_RETURN_IF_ERROR(ToStatus(
        AllocateOutput(ctx, static_cast<int>(p), {in.shard_sizes[p], in.pairs.dim}, &shard)));
    shards->push_back(OutputSpan<T>(shard).data);
  }
  return Status();
}

template <typename T>
Status LocateGradRows(const PairsInput<T>& in, const std::vector<CoreType<T>*>& shards,
                      Buffer<CoreType<T>*>* rows) {
  return LocateRows(in, shards, rows);
}

Status ReadTopGrad(OpKernelContext* ctx, int64_t* num_rows) {
  const Tensor& top_grad = Input(ctx, "top_grad");
  OpInputList shards;
  FE_RETURN_IF_ERROR(InputList(ctx, "emb_shards", &shards));
  if (top_grad.dims() != 2 || shards[0].dims() != 2 ||
      top_grad.dim_size(1) != shards[0].dim_size(1)) {
    return InvalidArgument("top_grad must be a matrix [num_rows, dim] as wide as emb_shards, got ",
                           top_grad.shape().DebugString(), " and ",
                           shards[0].shape().DebugString());
  }
  *num_rows = top_grad.dim_size(0);
  return Status();
}

#define FE_INSTANTIATE(T)                                                                         \
  template Status ReadShards(OpKernelContext*, const PostLookupAttrs&, int64_t, PairsInput<T>*);  \
  template Status ReadInputsV2(OpKernelContext*, const PostLookupAttrs&, PairsInput<T>*,          \
                               const Tensor**);                                                   \
  template Status ReadPairsV1(OpKernelContext*, const PostLookupAttrs&, int64_t, PairsInput<T>*); \
  template Status ReadPairsV2(OpKernelContext*, const PostLookupAttrs&, int64_t, PairsInput<T>*); \
  template Status AllocateGradShards(OpKernelContext*, const PairsInput<T>&,                      \
                                     std::vector<CoreType<T>*>*);                                 \
  template Status LocateGradRows(const PairsInput<T>&, const std::vector<CoreType<T>*>&,          \
                                 Buffer<CoreType<T>*>*);
FE_FOR_EACH_TF_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
