#include "tf_ops/core/lookup/group/table_group_lookup.h"

#include <algorithm>

#include "tf_ops/core/base/tasks.h"

namespace fused_embedding {
namespace {

// From so many ids on, the keys of a table are worth all threads.
constexpr int64_t kManyIds = 32768;
constexpr int64_t kIdNs = 10;

// The keys of one table.
template <typename T>
class KeyFinder {
 public:
  KeyFinder(const GroupKeysInput<T>& in, GroupKeys* keys) : in_(in), keys_(keys) {}

  void AddColumn(int64_t column) {
    columns_.push_back(column);
    max_ids_ += in_.columns[column].num_pairs() + 1;  // one to fill rows with
  }
  int64_t max_ids() const { return max_ids_; }

  Status Find(const CpuExec& exec, TableKeys* table) {
    FE_RETURN_IF_ERROR(ids_.Allocate(max_ids_));
    for (const int64_t c : columns_) {
      AppendIds(c);
      bool is_filled = false;
      FE_RETURN_IF_ERROR(FillsRows(c, &is_filled));
      default_position(c) = DefaultPosition().code;
      if (!is_filled) continue;
      ids_[num_ids_++] = in_.columns[c].filled_id();
      default_position(c) = 0;  // there is one
    }
    FE_RETURN_IF_ERROR(unique_idx_.Allocate(num_ids_));
    const Span<const int64_t> ids = {ids_.data(), num_ids_};
    FE_RETURN_IF_ERROR(PlanUnique(exec, ids, unique_idx_.span(), &table->unique));
    FE_RETURN_IF_ERROR(table->counts.Allocate(table->unique.num_unique));
    WritePositions(table->counts.span());
    // The next table may have the memory, which is still in the cache.
    ids_ = {};
    unique_idx_ = {};
    return Status();
  }

 private:
  int32_t& default_position(int64_t c) const {
    return keys_->default_positions[static_cast<size_t>(c)];
  }
  const PairOrder& order(int64_t c) const { return keys_->orders[static_cast<size_t>(c)]; }

  void AppendIds(int64_t c) {
    const GroupColumn<T>& column = in_.columns[c];
    const bool keeps_all = order(c).keeps_all;
    int64_t* end = ids_.data() + num_ids_;
    column.ids.Visit([&](auto ids) {
      for (int64_t i = 0; i < ids.size; ++i) {
        *end = ids[i];  // the next one overwrites it if it is dropped
        end += keeps_all || column.IsKept(i);
      }
    });
    num_ids_ = end - ids_.data();
  }

  Status FillsRows(int64_t c, bool* is_filled) const {
    const GroupColumn<T>& column = in_.columns[c];
    const bool reads_default = column.ids_are_keys ? column.fills_default() : column.fill;
    if (!reads_default || order(c).is_full()) return Status();
    Buffer<bool> is_row_empty;
    FE_RETURN_IF_ERROR(is_row_empty.Allocate(column.num_rows));
    FindEmptyRows(column, is_row_empty.span());
    const Span<bool> flags = is_row_empty.span();
    *is_filled = std::find(flags.begin(), flags.end(), true) != flags.end();
    return Status();
  }

  void WritePositions(Span<int32_t> counts) {
    std::fill(counts.begin(), counts.end(), 0);
    const int32_t* next = unique_idx_.data();
    for (const int64_t c : columns_) {
      const GroupColumn<T>& column = in_.columns[c];
      const bool keeps_all = order(c).keeps_all;
      const Span<int32_t> positions = in_.positions[c];
      for (int64_t i = 0; i < positions.size; ++i) {
        const bool is_kept = keeps_all || column.IsKept(i);
        positions[i] = is_kept ? *next++ : -1;
        if (is_kept) ++counts[positions[i]];
      }
      if (default_position(c) < 0) continue;
      default_position(c) = DefaultPosition::Of(*next++, !column.fills_default()).code;
    }
  }

  const GroupKeysInput<T>& in_;
  GroupKeys* keys_;
  std::vector<int64_t> columns_;
  int64_t max_ids_ = 0;
  Buffer<int64_t> ids_;  // those that are left, column after column, each with its default id
  Buffer<int32_t> unique_idx_;
  int64_t num_ids_ = 0;
};

}  // namespace

template <typename T>
Status FindGroupKeys(const CpuExec& exec, const GroupKeysInput<T>& in, GroupKeys* keys) {
  FE_RETURN_IF_ERROR(CheckColumns(exec, in.columns, &keys->orders));
  keys->default_positions.resize(static_cast<size_t>(in.columns.size));
  keys->tables.resize(static_cast<size_t>(in.num_tables));
  std::vector<KeyFinder<T>> finders;
  for (int64_t t = 0; t < in.num_tables; ++t) finders.emplace_back(in, keys);
  for (int64_t c = 0; c < in.columns.size; ++c) {
    finders[static_cast<size_t>(in.table_of_column[c])].AddColumn(c);
  }
  std::vector<int64_t> sizes;
  for (const KeyFinder<T>& finder : finders) sizes.push_back(finder.max_ids());
  return RunTasks(exec, AsSpan(sizes), kManyIds, kIdNs, [&](const CpuExec& table_exec, int64_t t) {
    const size_t table = static_cast<size_t>(t);
    return finders[table].Find(table_exec, &keys->tables[table]);
  });
}

Status LookUpTables(const CpuExec& exec, Span<TableLookup> lookups,
                    const std::function<Status(const CpuExec& exec, int64_t table)>& use) {
  std::vector<int64_t> sizes;
  for (const TableLookup& lookup : lookups) sizes.push_back(lookup.in.keys.size);
  return RunTasks(
      exec, AsSpan(sizes), EmbeddingTable::kManyKeys, EmbeddingTable::kKeyNs,
      [&](const CpuExec& table_exec, int64_t t) {
        TableLookup& lookup = lookups[t];
        FE_RETURN_IF_ERROR(lookup.insert
                               ? lookup.table->FindOrInsert(table_exec, lookup.in, &lookup.out)
                               : lookup.table->Find(table_exec, lookup.in, &lookup.out));
        return use(table_exec, t);
      });
}

#define FE_INSTANTIATE(T) \
  template Status FindGroupKeys(const CpuExec&, const GroupKeysInput<T>&, GroupKeys*);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
