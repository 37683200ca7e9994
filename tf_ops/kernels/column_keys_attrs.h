// What FusedEmbeddingColumnKeys does to each feature and column: its attrs, read and checked.

#ifndef FUSED_EMBEDDING_KERNELS_COLUMN_KEYS_ATTRS_H_
#define FUSED_EMBEDDING_KERNELS_COLUMN_KEYS_ATTRS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/input/column_keys.h"
#include "tf_ops/core/input/cross.h"

namespace fused_embedding {

enum class Layout {
  kDense,  // a matrix in which "" and -1 are places without a value
  kFull,   // a matrix with a value in each place
  kSparse,
  kRagged,
};

inline bool IsMatrix(Layout layout) { return layout == Layout::kDense || layout == Layout::kFull; }

struct FeatureAttrs {
  Layout layout = Layout::kDense;
  KeyRule rule;
  int column = 0;  // that the feature belongs to
  int ragged = 0;  // how many ragged features are in front of it
  int table = 0;   // how many features with a vocabulary are in front of it
  int sparse = 0;  // how many sparse features of crosses are in front of it

  // Whether values that mean none are dropped: "" and -1 of a dense feature, except in a cross of
  // the raw feature.
  bool DropsNone() const {
    return layout == Layout::kDense && rule.kind != KeyKind::kCrossPart &&
           rule.kind != KeyKind::kBucketized;
  }
};

struct ColumnAttrs {
  int first_feature = 0;
  int num_features = 1;  // more than one: a cross
  CrossRule cross;

  bool IsCross() const { return num_features > 1; }
};

class ColumnKeysAttrs {
 public:
  Status Read(tensorflow::OpKernelConstruction* ctx);

  const std::vector<FeatureAttrs>& features() const { return features_; }
  const std::vector<ColumnAttrs>& columns() const { return columns_; }
  int num_features() const { return static_cast<int>(features_.size()); }
  int num_columns() const { return static_cast<int>(columns_.size()); }
  int num_ragged() const { return num_ragged_; }
  int num_tables() const { return num_tables_; }
  int num_sparse() const { return num_sparse_; }
  // Columns that have outputs of rows: all but those of one sparse feature.
  bool IsPlaced(const ColumnAttrs& column) const;
  int num_placed() const { return num_placed_; }

  // The error with the name of the column.
  Status Named(int column, const Status& status) const;
  absl::Status Named(int column, const absl::Status& status) const;

 private:
  Status ReadColumns(tensorflow::OpKernelConstruction* ctx, size_t num_features);
  Status ReadCrosses(tensorflow::OpKernelConstruction* ctx);
  Status ReadFeatures(tensorflow::OpKernelConstruction* ctx);
  Status CountInputs(tensorflow::OpKernelConstruction* ctx);

  std::vector<FeatureAttrs> features_;
  std::vector<ColumnAttrs> columns_;
  std::vector<std::string> names_;  // of columns, or empty
  std::vector<float> boundaries_;   // of all features
  int num_ragged_ = 0;
  int num_tables_ = 0;
  int num_sparse_ = 0;
  int num_placed_ = 0;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_COLUMN_KEYS_ATTRS_H_
