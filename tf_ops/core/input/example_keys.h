// Keys of the lists of examples: what a feature column makes of a VarLen feature, without its
// values in between.
//
//   lists of "c": ["x", "y"], [], ["x"]   ->   keys [h(x), h(y), h(x)], rows [0, 0, 2]

#ifndef FUSED_EMBEDDING_CORE_INPUT_EXAMPLE_KEYS_H_
#define FUSED_EMBEDDING_CORE_INPUT_EXAMPLE_KEYS_H_

#include <cstdint>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/input/column_keys.h"
#include "tf_ops/core/input/example_features.h"
#include "tf_ops/core/input/example_lists.h"

namespace fused_embedding {

// A rule by which the values of a feature become keys, and where those go.
struct ExampleKeys {
  int64_t feature = 0;
  KeyRule rule;             // identity of integers, or hash
  int64_t* keys = nullptr;  // [NumValues of the feature]
  int64_t* rows = nullptr;  // as many: the example of each
};

// Writes the keys and rows of consecutive examples, the first of which is `first_example`.
void WriteKeysOfLists(Span<const ExampleList> lists, ListKind kind, const KeyRule& rule,
                      int64_t first_example, int64_t* keys, int64_t* rows);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_INPUT_EXAMPLE_KEYS_H_
