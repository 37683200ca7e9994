// Columns of keys, and what a search for the keys of a group must find, by maps.

#ifndef FUSED_EMBEDDING_TESTS_CPP_GROUP_KEYS_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_GROUP_KEYS_TESTING_H_

#include <algorithm>
#include <map>
#include <vector>

#include "tests/cpp/core_testing.h"
#include "tf_ops/core/lookup/group/group_keys.h"

namespace fused_embedding {

using Ints = std::vector<int64_t>;

struct KeyColumnCase {
  Ints ids;
  Ints row_ids;
  int64_t num_rows = 0;
  int64_t default_id = -1;
  int64_t table = 0;
  std::vector<float> weights = {};
  bool prune = true;
  int64_t dim = 0;

  // Over the arrays here.
  GroupColumn<float> Column() const {
    GroupColumn<float> column;
    column.ids = AsSpan(ids);
    column.row_ids = {row_ids.data(), static_cast<int64_t>(row_ids.size()), 1, "row_ids"};
    column.weights = {weights.data(), static_cast<int64_t>(weights.size())};
    column.num_rows = num_rows;
    column.dim = dim;
    column.default_id = default_id;
    column.prune = prune;
    column.ids_are_keys = true;
    return column;
  }
};

// What FindGroupKeys finds, as vectors.
struct FoundKeys {
  Status status;
  std::vector<Ints> keys;
  std::vector<std::vector<int32_t>> counts;
  std::vector<std::vector<int32_t>> positions;
  std::vector<int32_t> default_positions;

  bool operator==(const FoundKeys& other) const {
    return keys == other.keys && counts == other.counts && positions == other.positions &&
           default_positions == other.default_positions;
  }
};

// The same by maps, one pair after the other.
inline FoundKeys WantedKeys(const std::vector<KeyColumnCase>& cases, int64_t num_tables) {
  FoundKeys want;
  want.keys.resize(static_cast<size_t>(num_tables));
  want.counts.resize(static_cast<size_t>(num_tables));
  std::vector<std::map<int64_t, int32_t>> position(static_cast<size_t>(num_tables));
  const auto number = [&](size_t table, int64_t key) {
    const auto next = static_cast<int32_t>(want.keys[table].size());
    const auto [at, is_new] = position[table].emplace(key, next);
    if (is_new) {
      want.keys[table].push_back(key);
      want.counts[table].push_back(0);
    }
    return at->second;
  };
  for (const KeyColumnCase& column : cases) {
    const size_t table = static_cast<size_t>(column.table);
    std::vector<bool> is_used(static_cast<size_t>(column.num_rows));
    want.positions.emplace_back();
    for (size_t i = 0; i < column.ids.size(); ++i) {
      const bool is_dropped =
          column.prune &&
          (column.ids[i] < 0 || (!column.weights.empty() && !(column.weights[i] > 0)));
      want.positions.back().push_back(is_dropped ? -1 : number(table, column.ids[i]));
      if (is_dropped) continue;
      ++want.counts[table][static_cast<size_t>(want.positions.back().back())];
      is_used[static_cast<size_t>(column.row_ids[i])] = true;
    }
    const bool fills =
        column.default_id >= 0 && std::find(is_used.begin(), is_used.end(), false) != is_used.end();
    want.default_positions.push_back(fills ? number(table, column.default_id) : -1);
  }
  return want;
}

inline KeyColumnCase RandomKeyColumn(Random* random, int64_t num_tables, int64_t max_ids) {
  KeyColumnCase column;
  column.table = RandomInt(random, 0, num_tables - 1);
  column.num_rows = RandomInt(random, 1, 2 * max_ids);
  column.default_id = RandomInt(random, -1, 3);
  column.prune = RandomBool(random);
  const int64_t num_ids = RandomInt(random, 0, max_ids);
  const bool has_weights = RandomBool(random, 0.3);
  for (int64_t i = 0; i < num_ids; ++i) {
    column.ids.push_back(RandomInt(random, -2, max_ids));
    column.row_ids.push_back(RandomInt(random, 0, column.num_rows - 1));
    if (has_weights) column.weights.push_back(static_cast<float>(RandomInt(random, -1, 2)));
  }
  return column;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_GROUP_KEYS_TESTING_H_
