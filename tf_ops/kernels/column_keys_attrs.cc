#include "tf_ops/kernels/column_keys_attrs.h"

#include "tf_ops/core/lookup/group/group_column.h"
#include "tf_ops/kernels/sparse_inputs.h"

namespace fused_embedding {
namespace {

using tensorflow::DataType;
using tensorflow::OpKernelConstruction;

Status ParseLayout(const std::string& name, Layout* layout) {
  if (name == "dense") {
    *layout = Layout::kDense;
  } else if (name == "full") {
    *layout = Layout::kFull;
  } else if (name == "sparse") {
    *layout = Layout::kSparse;
  } else if (name == "ragged") {
    *layout = Layout::kRagged;
  } else {
    return InvalidArgument("layout must be dense, full, sparse or ragged, got '", name, "'");
  }
  return Status();
}

FeatureType TypeOf(DataType dtype) {
  if (dtype == tensorflow::DT_STRING) return FeatureType::kText;
  return dtype == tensorflow::DT_FLOAT ? FeatureType::kFloat : FeatureType::kInteger;
}

// Moves the boundaries of a feature from the front of those that are left.
Status TakeBoundaries(KeyRule* rule, Span<const float>* left) {
  if (rule->kind != KeyKind::kBucketized) return Status();
  const int64_t size = rule->num_buckets - 1;
  if (size < 0 || size > left->size) {
    return InvalidArgument("boundaries must be num_buckets - 1 for each bucketized feature, but ",
                           left->size, " are left for num_buckets = ", rule->num_buckets);
  }
  rule->boundaries = {left->data, size};
  *left = {left->data + size, left->size - size};
  return Status();
}

Status CheckFeature(const FeatureAttrs& feature, const ColumnAttrs& column, FeatureType type) {
  const KeyKind kind = feature.rule.kind;
  if (kind == KeyKind::kBucketized && !IsMatrix(feature.layout)) {
    return InvalidArgument("bucketized values must be dense");
  }
  if (kind == KeyKind::kCrossPart && !column.IsCross()) {
    return InvalidArgument("the kind cross_part is for features of a cross");
  }
  return CheckKeyRule(feature.rule, type);
}

}  // namespace

Status ColumnKeysAttrs::Named(int column, const Status& status) const {
  const auto c = static_cast<size_t>(column);
  return InColumn(column, status, names_.empty() ? nullptr : names_[c].c_str());
}

absl::Status ColumnKeysAttrs::Named(int column, const absl::Status& status) const {
  if (status.ok()) return status;
  const Status named = Named(column, InvalidArgument(status.message()));
  return absl::Status(status.code(), named.message());
}

bool ColumnKeysAttrs::IsPlaced(const ColumnAttrs& column) const {
  const auto first = static_cast<size_t>(column.first_feature);
  return column.IsCross() || features_[first].layout != Layout::kSparse;
}

Status ColumnKeysAttrs::Read(OpKernelConstruction* ctx) {
  const size_t num_features = GetAttr<std::vector<DataType>>(ctx, "Tvalues").size();
  FE_RETURN_IF_ERROR(ReadColumns(ctx, num_features));
  FE_RETURN_IF_ERROR(ReadFeatures(ctx));
  return CountInputs(ctx);
}

Status ColumnKeysAttrs::ReadColumns(OpKernelConstruction* ctx, size_t num_features) {
  const size_t num_columns = GetAttr<std::vector<DataType>>(ctx, "Tkeys").size();
  auto num_parts = GetAttr<std::vector<int64_t>>(ctx, "num_parts");
  if (num_parts.empty()) num_parts.assign(num_columns, 1);
  names_ = GetAttr<std::vector<std::string>>(ctx, "column_names");
  if (num_parts.size() != num_columns || (!names_.empty() && names_.size() != num_columns)) {
    return InvalidArgument("num_parts and column_names must be of as many columns as Tkeys, ",
                           num_columns);
  }
  auto num_left = static_cast<int64_t>(num_features);
  for (const int64_t of_column : num_parts) {
    if (of_column < 1 || of_column > num_left) break;
    ColumnAttrs column;
    column.first_feature = static_cast<int>(static_cast<int64_t>(num_features) - num_left);
    column.num_features = static_cast<int>(of_column);
    columns_.push_back(column);
    num_left -= of_column;
  }
  if (columns_.size() != num_columns || num_left != 0) {
    return InvalidArgument("num_parts must be positive, and their sum must be the number of ",
                           "values, ", num_features);
  }
  return ReadCrosses(ctx);
}

Status ColumnKeysAttrs::ReadCrosses(OpKernelConstruction* ctx) {
  const auto num_buckets = GetAttr<std::vector<int64_t>>(ctx, "cross_num_buckets");
  const auto hash_keys = GetAttr<std::vector<int64_t>>(ctx, "hash_keys");
  size_t num_crosses = 0;
  for (ColumnAttrs& column : columns_) {
    if (!column.IsCross()) continue;
    const size_t i = num_crosses++;
    if (i >= num_buckets.size() || i >= hash_keys.size()) continue;
    column.cross = {num_buckets[i], static_cast<uint64_t>(hash_keys[i])};
    const auto c = static_cast<int>(&column - columns_.data());
    FE_RETURN_IF_ERROR(Named(c, CheckCrossRule(column.cross)));
  }
  if (num_buckets.size() != num_crosses || hash_keys.size() != num_crosses) {
    return InvalidArgument("cross_num_buckets and hash_keys must be of as many columns as have ",
                           "several num_parts, ", num_crosses);
  }
  return Status();
}

Status ColumnKeysAttrs::ReadFeatures(OpKernelConstruction* ctx) {
  const auto types = GetAttr<std::vector<DataType>>(ctx, "Tvalues");
  const auto layouts = GetAttr<std::vector<std::string>>(ctx, "layouts");
  const auto kinds = GetAttr<std::vector<std::string>>(ctx, "kinds");
  const auto num_buckets = GetAttr<std::vector<int64_t>>(ctx, "num_buckets");
  const auto default_keys = GetAttr<std::vector<int64_t>>(ctx, "default_keys");
  boundaries_ = GetAttr<std::vector<float>>(ctx, "boundaries");
  const size_t size = types.size();
  if (layouts.size() != size || kinds.size() != size || num_buckets.size() != size ||
      default_keys.size() != size) {
    return InvalidArgument(
        "layouts, kinds, num_buckets and default_keys must be of as many features as values, ",
        size);
  }
  Span<const float> boundaries = AsSpan(boundaries_);
  for (const ColumnAttrs& column : columns_) {
    for (int i = 0; i < column.num_features; ++i) {
      const size_t f = features_.size();
      FeatureAttrs feature;
      feature.column = static_cast<int>(&column - columns_.data());
      feature.rule.num_buckets = num_buckets[f];
      feature.rule.default_key = default_keys[f];
      FE_RETURN_IF_ERROR(ParseLayout(layouts[f], &feature.layout));
      FE_RETURN_IF_ERROR(ParseKeyKind(kinds[f], &feature.rule.kind));
      FE_RETURN_IF_ERROR(TakeBoundaries(&feature.rule, &boundaries));
      FE_RETURN_IF_ERROR(Named(feature.column, CheckFeature(feature, column, TypeOf(types[f]))));
      features_.push_back(feature);
    }
  }
  return boundaries.empty()
             ? Status()
             : InvalidArgument("boundaries must be num_buckets - 1 for each ",
                               "bucketized feature, got ", boundaries.size, " too many");
}

// The number of inputs of each list, and where each feature's are.
Status ColumnKeysAttrs::CountInputs(OpKernelConstruction* ctx) {
  for (FeatureAttrs& feature : features_) {
    const ColumnAttrs& column = columns_[static_cast<size_t>(feature.column)];
    feature.ragged = num_ragged_;
    feature.table = num_tables_;
    feature.sparse = num_sparse_;
    num_ragged_ += feature.layout == Layout::kRagged;
    num_tables_ += feature.rule.kind == KeyKind::kVocabulary;
    num_sparse_ += feature.layout == Layout::kSparse && column.IsCross();
  }
  for (const ColumnAttrs& column : columns_) num_placed_ += IsPlaced(column);
  const auto has = [&](const char* name, int wanted) {
    return GetAttr<std::vector<DataType>>(ctx, name).size() == static_cast<size_t>(wanted);
  };
  if (GetAttr<int64_t>(ctx, "num_ragged") != num_ragged_ || !has("Trows", num_placed_)) {
    return InvalidArgument("num_ragged must be the number of ragged layouts, ", num_ragged_,
                           ", and Trows have one for each dense, full, ragged or crossed column, ",
                           num_placed_);
  }
  if (!has("Ttables", num_tables_) || !has("Tsparse", num_sparse_)) {
    return InvalidArgument("tables must be of as many features as are of kind vocabulary, ",
                           num_tables_, ", and sparse_indices and sparse_shapes of as many sparse ",
                           "features as are in crosses, ", num_sparse_);
  }
  return Status();
}

}  // namespace fused_embedding
