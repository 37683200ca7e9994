// Features of serialized examples as arrays. For two examples
//
//   {"c": ["x", "y"], "d": [0.5]}, {"d": [1.5]}
//
// and "c" wanted as sparse texts, "d" as one float: c has values [x, y] with indices
// [[0, 0], [0, 1]], d is [[0.5], [1.5]]. Sparse features may be wanted as keys (example_keys.h).
//
// Plan finds the lists of all examples, checks them and counts their values; Run copies the values
// out. What is accepted, and each error, is what tf.io.parse_example accepts and says; two of its
// inputs end the process there, and are errors here: a text or a packed list of floats with a
// length of 2^31 and more, and more floats than a fixed feature has that are not packed.

#ifndef FUSED_EMBEDDING_CORE_INPUT_PARSE_EXAMPLE_H_
#define FUSED_EMBEDDING_CORE_INPUT_PARSE_EXAMPLE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/input/example_features.h"
#include "tf_ops/core/input/example_keys.h"
#include "tf_ops/core/input/example_lists.h"
#include "tf_ops/core/input/plain_example.h"

namespace fused_embedding {

struct ExampleBatch {
  Span<const std::string_view> examples;
  Span<const std::string_view> names;  // as many, or none: what errors call an example
  // One example that is no batch: an empty feature is one that is not there, and errors are others.
  bool is_single = false;
};

// Where the values of a feature go. Text is as CopyValues wants it.
template <typename Text>
struct FeatureOutput {
  bool is_wanted = true;  // false: of a feature that is wanted as keys alone
  // sparse, ragged: [NumValues]; fixed: [num_examples, num_values]; padded: [num_examples, width].
  std::variant<Text*, float*, int64_t*> values;
  // fixed: [num_values], or null; padded: [1]. Of the type of `values`.
  const void* default_values = nullptr;
  int64_t* indices = nullptr;  // sparse: [NumValues, 2]; of a single example [NumValues, 1]
  // ragged: [num_examples + 1], the first one is not written.
  std::variant<int64_t*, int32_t*> splits = static_cast<int64_t*>(nullptr);
  int64_t width = 0;  // padded: MaxValues
};

class ParsedExamples {
 public:
  // The features and the bytes of the examples must live until Run has ended.
  Status Plan(const CpuExec& exec, Span<const ExampleFeature> features, const ExampleBatch& batch);

  // Of a feature: values of all examples, and of the one with most.
  int64_t NumValues(int64_t feature) const { return totals_[feature].num_values; }
  int64_t MaxValues(int64_t feature) const { return totals_[feature].max_values; }

  // An output for each feature, and the keys of some sparse ones.
  template <typename Text>
  void Run(const CpuExec& exec, Span<const FeatureOutput<Text>> outputs,
           Span<const ExampleKeys> keys = {}) const {
    exec.ParallelFor(num_blocks(), BlockNs(), [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        for (int64_t f = 0; f < features_.size; ++f) WriteFeature(block, f, outputs[f]);
        for (const ExampleKeys& of_rule : keys) WriteKeys(block, of_rule);
      }
    });
  }

 private:
  // Examples whose lists lie together, feature by feature: some 40 KB, for which one writes its
  // outputs one after the other.
  static constexpr int64_t kMaxBlock = 64;
  static constexpr int64_t kListNs = 12;

  struct Count {
    int64_t num_values = 0;
    int64_t max_values = 0;
  };
  struct ListsOfFeature {
    const ExampleList* lists = nullptr;
    int64_t size = 0;
    int64_t first_example = 0;
    int64_t first_value = 0;  // sparse, ragged

    const ExampleList* begin() const { return lists; }
    const ExampleList* end() const { return lists + size; }
  };

  int64_t num_examples() const { return batch_.examples.size; }
  int64_t num_blocks() const { return (num_examples() + block_ - 1) / block_; }
  int64_t BlockNs() const { return block_ * kListNs * std::max<int64_t>(features_.size, 1); }

  ListsOfExample ListsOf(int64_t example);
  ListsOfFeature ListsOf(int64_t block, int64_t feature) const;
  // The first example of the block that stock's parser would not accept, or num_examples().
  int64_t PlanBlock(const PlainExample& plain, int64_t block);
  void CountBlock(int64_t block);
  void CountAll();
  Status ErrorOf(int64_t example);

  template <typename Text>
  void WriteFeature(int64_t block, int64_t f, const FeatureOutput<Text>& output) const {
    if (!output.is_wanted) return;
    const ListsOfFeature lists = ListsOf(block, f);
    const ExampleFeature& feature = features_[f];
    std::visit([&](auto* values) { WriteValues(lists, feature, output, values); }, output.values);
    if (feature.layout == FeatureLayout::kSparse) WriteIndices(lists, output.indices);
    if (feature.layout == FeatureLayout::kRagged) {
      std::visit([&](auto* splits) { WriteSplits(lists, splits); }, output.splits);
    }
  }

  template <typename Text, typename Value>
  static void WriteValues(const ListsOfFeature& lists, const ExampleFeature& feature,
                          const FeatureOutput<Text>& output, Value* values) {
    const auto* defaults = static_cast<const Value*>(output.default_values);
    switch (feature.layout) {
      case FeatureLayout::kFixed:
        return WriteFixed(lists, feature.num_values, defaults, values);
      case FeatureLayout::kPadded:
        return WritePadded(lists, output.width, defaults, values);
      case FeatureLayout::kSparse:
      case FeatureLayout::kRagged:
        values += lists.first_value;
        for (const ExampleList& list : lists) {
          if (list.num_values == 0) continue;
          CopyValues(list, values);
          values += list.num_values;
        }
    }
  }

  template <typename Value>
  static void WriteFixed(const ListsOfFeature& lists, int64_t num_values, const Value* defaults,
                         Value* values) {
    values += lists.first_example * num_values;
    for (const ExampleList& list : lists) {
      if (list.IsPresent()) {
        CopyValues(list, values);
      } else {
        std::copy_n(defaults, num_values, values);
      }
      values += num_values;
    }
  }

  template <typename Value>
  static void WritePadded(const ListsOfFeature& lists, int64_t width, const Value* padding,
                          Value* values) {
    values += lists.first_example * width;
    for (const ExampleList& list : lists) {
      if (list.num_values > 0) CopyValues(list, values);
      std::fill(values + list.num_values, values + width, *padding);
      values += width;
    }
  }

  void WriteIndices(const ListsOfFeature& lists, int64_t* indices) const;
  void WriteKeys(int64_t block, const ExampleKeys& keys) const;
  template <typename Split>
  static void WriteSplits(const ListsOfFeature& lists, Split* splits) {
    if (splits == nullptr) return;  // of a single example
    splits += lists.first_example + 1;
    auto end = static_cast<Split>(lists.first_value);
    for (const ExampleList& list : lists) {
      end += static_cast<Split>(list.num_values);
      *splits++ = end;
    }
  }

  Span<const ExampleFeature> features_;
  ExampleBatch batch_;
  int64_t block_ = 1;  // examples of a block: kMaxBlock, or all of fewer
  FeatureNames names_;
  Buffer<ExampleList> lists_;  // [num_blocks, num_features, block_]
  Buffer<Count> counts_;       // [num_blocks, num_features]; then num_values is of blocks before
  std::vector<Count> totals_;  // [num_features]
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_INPUT_PARSE_EXAMPLE_H_
