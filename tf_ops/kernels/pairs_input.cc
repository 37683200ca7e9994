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

// Each unique id has one row of one shard, and each row one unique id.
Status CheckPermutation(const Tensor& permutation, const std::vector<int64_t>& shard_sizes) {
  const int64_t num_unique = std::accumulate(shard_sizes.begin(), shard_sizes.end(), int64_t{0});
  if (permutation.dims() != 2 || permutation.dim_size(1) != 2 ||
      permutation.dim_size(0) != num_unique) {
    return InvalidArgument("partition_permutation must be a matrix [", num_unique,
                           ", 2], one row for each row of emb_shards, got shape ",
                           permutation.shape().DebugString());
  }
  std::vector<std::vector<bool>> is_taken;
  for (const int64_t size : shard_sizes) is_taken.emplace_back(static_cast<size_t>(size));
  const auto entries = permutation.matrix<int32_t>();
  for (int64_t u = 0; u < num_unique; ++u) {
    const int64_t shard = entries(u, 0);
    const int64_t position = entries(u, 1);
    const bool exists = shard >= 0 && shard < static_cast<int64_t>(shard_sizes.size()) &&
                        position >= 0 && position < shard_sizes[shard];
    if (!exists || is_taken[shard][position]) {
      return InvalidArgument("partition_permutation[", u, "] = (", shard, ", ", position,
                             exists ? ") occurs twice" : ") is no row of emb_shards",
                             "; pass the one that PartitionWithPermutation returned");
    }
    is_taken[shard][position] = true;
  }
  return Status();
}

// v1: the pairs of all shards, one shard after the other; pair k has embedding k.
template <typename T>
Status ConcatenateShards(OpKernelContext* ctx, PairsInput<T>* in) {
  OpInputList indices;
  FE_RETURN_IF_ERROR(InputList(ctx, "partitioned_indices", &indices));
  const int64_t num_pairs = in->pairs.rows.size;
  FE_RETURN_IF_ERROR(in->row_ids.Allocate(num_pairs));
  FE_RETURN_IF_ERROR(in->unique_idx.Allocate(num_pairs));
  std::iota(in->unique_idx.span().begin(), in->unique_idx.span().end(), 0);
  int64_t k = 0;
  for (int p = 0; p < indices.size(); ++p) {
    FE_RETURN_IF_ERROR(CheckIndices("partitioned_indices", indices[p]));
    if (indices[p].dim_size(0) != in->shard_sizes[p]) {
      return InvalidArgument("partitioned_indices[", p, "] must have one row for each of the ",
                             in->shard_sizes[p], " rows of emb_shards[", p, "], got shape ",
                             indices[p].shape().DebugString());
    }
    const auto rows = indices[p].matrix<int64_t>();
    for (int64_t i = 0; i < indices[p].dim_size(0); ++i) in->row_ids[k++] = rows(i, 0);
  }
  in->pairs.row_ids = {in->row_ids.data(), num_pairs, 1, "concat(partitioned_indices)"};
  in->pairs.unique_idx = in->unique_idx.span();
  return Status();
}

template <typename T>
Status ReadWeightsV1(OpKernelContext* ctx, PairsInput<T>* in) {
  OpInputList weights;
  FE_RETURN_IF_ERROR(InputList(ctx, "partitioned_weights", &weights));
  if (weights.size() == 0) return Status();
  if (weights.size() != static_cast<int>(in->shard_sizes.size())) {
    return InvalidArgument("partitioned_weights must be one vector for each of the ",
                           in->shard_sizes.size(), " shards, or none, got ", weights.size());
  }
  FE_RETURN_IF_ERROR(in->weights.Allocate(in->pairs.num_pairs()));
  auto* next = in->weights.data();
  for (int p = 0; p < weights.size(); ++p) {
    if (weights[p].dims() != 1 || weights[p].NumElements() != in->shard_sizes[p]) {
      return InvalidArgument("partitioned_weights[", p, "] must have one weight for each of the ",
                             in->shard_sizes[p], " pairs, got shape ",
                             weights[p].shape().DebugString());
    }
    LoadWeights(weights[p], next);
    next += weights[p].NumElements();
  }
  in->pairs.weights = in->weights.span();
  return Status();
}

template <typename T>
Status ReadWeightsV2(OpKernelContext* ctx, PairsInput<T>* in) {
  const Tensor& weights = Input(ctx, "sp_weights_values");
  FE_RETURN_IF_ERROR(CheckVector("sp_weights_values", weights));
  if (weights.NumElements() != in->pairs.num_pairs()) {
    return InvalidArgument("sp_weights_values must hold one weight for each of the ",
                           in->pairs.num_pairs(), " pairs, but has ", weights.NumElements());
  }
  return ReadWeights(weights, &in->weights, &in->pairs.weights);
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
Status ReadPairsV1(OpKernelContext* ctx, const PostLookupAttrs& attrs, int64_t num_rows,
                   PairsInput<T>* in) {
  FE_RETURN_IF_ERROR(ReadShards(ctx, attrs, num_rows, in));
  FE_RETURN_IF_ERROR(LocateEmbeddings(ctx, in));
  FE_RETURN_IF_ERROR(ConcatenateShards(ctx, in));
  FE_RETURN_IF_ERROR(ReadWeightsV1(ctx, in));
  if (attrs.default_id >= 0) return Status();

  const Tensor& flags = Input(ctx, "row_empty_and_invalid_flags");
  FE_RETURN_IF_ERROR(CheckVector("row_empty_and_invalid_flags", flags));
  if (flags.NumElements() < num_rows) {
    return InvalidArgument("row_empty_and_invalid_flags must start with a flag for each of the ",
                           num_rows, " rows, but has ", flags.NumElements(), " elements");
  }
  FE_RETURN_IF_ERROR(in->is_zero_row.Allocate(num_rows));
  const Span<const int32_t> values = InputSpan<int32_t>(flags);
  std::transform(values.begin(), values.begin() + num_rows, in->is_zero_row.data(),
                 [](int32_t flag) { return flag != 0; });
  in->pairs.is_zero_row = in->is_zero_row.span();
  return Status();
}

template <typename T>
Status ReadPairsV2(OpKernelContext* ctx, const PostLookupAttrs& attrs, int64_t num_rows,
                   PairsInput<T>* in) {
  FE_RETURN_IF_ERROR(ReadShards(ctx, attrs, num_rows, in));
  if (in->shard_sizes.size() > 1) {
    const Tensor& permutation = Input(ctx, "partition_permutation");
    FE_RETURN_IF_ERROR(CheckPermutation(permutation, in->shard_sizes));
    in->permutation = InputSpan<int32_t>(permutation);
  }
  FE_RETURN_IF_ERROR(LocateEmbeddings(ctx, in));

  const Tensor& indices = Input(ctx, "indices_before_unique");
  FE_RETURN_IF_ERROR(CheckIndices("indices_before_unique", indices));
  const Tensor& unique_idxs = Input(ctx, "unique_idxs");
  FE_RETURN_IF_ERROR(CheckVector("unique_idxs", unique_idxs));
  in->pairs.row_ids = {InputSpan<int64_t>(indices).data, indices.dim_size(0), indices.dim_size(1),
                       "indices_before_unique"};
  in->pairs.unique_idx = InputSpan<int32_t>(unique_idxs);
  if (attrs.use_sparse_weights) FE_RETURN_IF_ERROR(ReadWeightsV2(ctx, in));
  if (attrs.fill_empty_row && attrs.default_id < 0) {
    const Tensor& is_row_empty = Input(ctx, "is_row_empty");
    if (is_row_empty.dims() != 1 || is_row_empty.NumElements() != num_rows) {
      return InvalidArgument("is_row_empty must be a vector of ", num_rows,
                             " elements, one a row, got shape ",
                             is_row_empty.shape().DebugString());
    }
    in->pairs.is_zero_row = InputSpan<bool>(is_row_empty);
  }
  return Status();
}

template <typename T>
Status AllocateGradShards(OpKernelContext* ctx, const PairsInput<T>& in,
                          Buffer<CoreType<T>*>* rows) {
  std::vector<CoreType<T>*> shards;
  for (size_t p = 0; p < in.shard_sizes.size(); ++p) {
    Tensor* shard = nullptr;
    FE_RETURN_IF_ERROR(ToStatus(
        AllocateOutput(ctx, static_cast<int>(p), {in.shard_sizes[p], in.pairs.dim}, &shard)));
    shards.push_back(OutputSpan<T>(shard).data);
  }
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
  template Status ReadPairsV1(OpKernelContext*, const PostLookupAttrs&, int64_t, PairsInput<T>*); \
  template Status ReadPairsV2(OpKernelContext*, const PostLookupAttrs&, int64_t, PairsInput<T>*); \
  template Status AllocateGradShards(OpKernelContext*, const PairsInput<T>&, Buffer<CoreType<T>*>*);
FE_FOR_EACH_TF_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
