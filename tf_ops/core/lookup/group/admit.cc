#include "tf_ops/core/lookup/group/admit.h"

#include <algorithm>
#include <vector>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/base/tasks.h"
#include "tf_ops/core/lookup/stages/unique.h"

namespace fused_embedding {
namespace {

// The keys of one table.
class KeyAdmission {
 public:
  KeyAdmission(const AdmitInput& in, AdmitTable* table) : in_(in), table_(table) {}

  void AddColumn(const AdmitColumn& column) {
    columns_.push_back(&column);
    max_keys_ += column.keys.size;
    has_first_values_ |= column.first_values != nullptr;
  }
  int64_t max_keys() const { return max_keys_; }

  Status Run(const CpuExec& exec) {
    FE_RETURN_IF_ERROR(CollectKeys());
    FE_RETURN_IF_ERROR(unique_idx_.Allocate(num_keys_));
    FE_RETURN_IF_ERROR(PlanUnique(exec, Span<const int64_t>{keys_.data(), num_keys_},
                                  unique_idx_.span(), &unique_));
    FE_RETURN_IF_ERROR(frequencies_.Allocate(unique_.num_unique));
    FE_RETURN_IF_ERROR(rows_.Allocate(unique_.num_unique));
    FE_RETURN_IF_ERROR(table_->insert ? Insert(exec) : Find(exec));
    WriteOutputs();
    return Status();
  }

 private:
  bool IsKept(int64_t key) const { return !in_.prune || key >= 0; }
  Span<const int64_t> unique_keys() const {
    return {unique_.unique_ids.span().data, unique_.num_unique};
  }

  Status CollectKeys() {
    FE_RETURN_IF_ERROR(keys_.Allocate(max_keys_));
    for (const AdmitColumn* column : columns_) {
      for (const int64_t key : column->keys) {
        if (IsKept(key)) keys_[num_keys_++] = key;
      }
    }
    return Status();
  }

  Status Insert(const CpuExec& exec) {
    Buffer<int32_t> counts;
    Buffer<const char*> first_values;
    FE_RETURN_IF_ERROR(counts.Allocate(unique_.num_unique));
    std::fill(counts.span().begin(), counts.span().end(), 0);
    for (int64_t i = 0; i < num_keys_; ++i) ++counts[unique_idx_[i]];
    LookupInput in;
    in.keys = unique_keys();
    in.counts = counts.span();
    in.step = table_->step;
    in.min_frequency = table_->min_frequency;
    if (has_first_values_) {
      FE_RETURN_IF_ERROR(FindFirstValues(&first_values));
      in.first_values = {first_values.data(), unique_.num_unique};
    }
    LookupOutput out;
    out.handles = rows_.data();
    out.frequencies = frequencies_.data();
    const Status status = table_->table->FindOrInsert(exec, in, &out);
    table_->num_refused = out.num_refused;
    return status;
  }

  // The values of each distinct key where it first occurs.
  Status FindFirstValues(Buffer<const char*>* first_values) {
    FE_RETURN_IF_ERROR(first_values->Allocate(unique_.num_unique));
    const int64_t value_bytes = table_->table->config().layout.value_bytes();
    int64_t num_seen = 0;
    const int32_t* next = unique_idx_.data();
    for (const AdmitColumn* column : columns_) {
      for (int64_t i = 0; i < column->keys.size; ++i) {
        if (!IsKept(column->keys[i])) continue;
        if (*next++ < num_seen) continue;
        (*first_values)[num_seen++] = column->first_values + i * value_bytes;
      }
    }
    return Status();
  }

  // A key without a row has no version.
  Status Find(const CpuExec& exec) {
    return table_->table->Metadata(exec, unique_keys(), frequencies_.span(), rows_.span());
  }

  void WriteOutputs() {
    const int32_t* next = unique_idx_.data();
    for (const AdmitColumn* column : columns_) {
      for (int64_t i = 0; i < column->keys.size; ++i) {
        const bool is_kept = IsKept(column->keys[i]);
        const int64_t unique = is_kept ? *next++ : -1;
        column->is_admitted[i] = is_kept && rows_[unique] >= 0;
        column->frequencies[i] = is_kept ? frequencies_[unique] : 0;
      }
    }
  }

  const AdmitInput& in_;
  AdmitTable* table_;
  std::vector<const AdmitColumn*> columns_;
  int64_t max_keys_ = 0;
  bool has_first_values_ = false;  // in any column: one without keys may have none
  int64_t num_keys_ = 0;
  Buffer<int64_t> keys_;  // those that are kept, column after column
  Buffer<int32_t> unique_idx_;
  UniquePlan<int64_t> unique_;
  Buffer<int64_t> frequencies_;  // [num_unique]
  Buffer<int64_t> rows_;         // [num_unique] < 0: the key has no row
};

}  // namespace

Status AdmitKeys(const CpuExec& exec, const AdmitInput& in) {
  std::vector<KeyAdmission> admissions;
  for (AdmitTable& table : in.tables) admissions.emplace_back(in, &table);
  for (int64_t c = 0; c < in.columns.size; ++c) {
    admissions[static_cast<size_t>(in.table_of_column[c])].AddColumn(in.columns[c]);
  }
  std::vector<int64_t> sizes;
  for (const KeyAdmission& admission : admissions) sizes.push_back(admission.max_keys());
  return RunTasks(exec, AsSpan(sizes), EmbeddingTable::kManyKeys, EmbeddingTable::kKeyNs,
                  [&](const CpuExec& table_exec, int64_t t) {
                    return admissions[static_cast<size_t>(t)].Run(table_exec);
                  });
}

}  // namespace fused_embedding
