// Keys of a batch's features: what a feature column does to its values before the lookup. A value
// becomes a key by the column's rule; a dense feature also says by its place which row it is in.

#ifndef FUSED_EMBEDDING_CORE_INPUT_COLUMN_KEYS_H_
#define FUSED_EMBEDDING_CORE_INPUT_COLUMN_KEYS_H_

#include <atomic>
#include <cstdint>
#include <string_view>
#include <variant>

#include "tf_ops/core/base/column_work.h"
#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/input/fingerprint.h"

namespace fused_embedding {

enum class KeyKind {
  kIdentity,  // the value itself
  kHash,      // Fingerprint64 of a text, or of a number's decimal text, modulo num_buckets
};
Status ParseKeyKind(std::string_view name, KeyKind* kind);

struct KeyRule {
  KeyKind kind = KeyKind::kIdentity;
  int64_t num_buckets = 1;  // keys are below it
  // identity: the key of values outside [0, num_buckets); negative: they are their own keys.
  int64_t default_key = -1;
};

// Whether num_buckets is positive, default_key below it, and the kind one for such values.
Status CheckKeyRule(const KeyRule& rule, bool is_text);

// Values that mean none in a dense feature.
inline bool IsNone(std::string_view text) { return text.empty(); }
inline bool IsNone(int64_t number) { return number == -1; }

// Writes keys[begin] to keys[end - 1].
template <typename Integer>
void WriteKeys(const KeyRule& rule, Span<const Integer> values, int64_t begin, int64_t end,
               int64_t* keys);

// The same for texts: `texts[i]` is a std::string_view.
template <typename Texts>
void WriteKeys(const KeyRule& rule, const Texts& texts, int64_t begin, int64_t end, int64_t* keys) {
  const auto num_buckets = static_cast<uint64_t>(rule.num_buckets);
  for (int64_t i = begin; i < end; ++i) {
    keys[i] = static_cast<int64_t>(Fingerprint64(texts[i]) % num_buckets);
  }
}

// A feature of a batch. Texts is a view of texts, with `size` and operator[].
template <typename Texts>
struct KeyColumn {
  std::variant<Span<const int32_t>, Span<const int64_t>, Texts> values;
  KeyRule rule;
  bool is_dense = false;    // some of the values may mean none
  int64_t* keys = nullptr;  // [size], written

  int64_t size() const {
    return std::visit([](const auto& of_type) { return of_type.size; }, values);
  }
};

// Writes the keys of all columns, also of values that mean none, and sets has_none[c] where a dense
// column has some.
template <typename Texts>
void WriteColumnKeys(const CpuExec& exec, Span<const KeyColumn<Texts>> columns,
                     Span<std::atomic<bool>> has_none) {
  constexpr int64_t kValueNs = 10;
  ColumnWork work;
  for (const auto& column : columns) {
    if (!work.Add(column.size())) return;  // more values than memory has bytes
  }
  exec.ParallelFor(work.total(), kValueNs, [&](int64_t begin, int64_t end) {
    work.ForEach(begin, end, [&](int64_t c, int64_t first, int64_t last) {
      const KeyColumn<Texts>& column = columns[c];
      std::visit(
          [&](const auto& values) {
            WriteKeys(column.rule, values, first, last, column.keys);
            if (!column.is_dense) return;
            bool found = false;
            for (int64_t i = first; i < last; ++i) found |= IsNone(values[i]);
            if (found) has_none[c].store(true, std::memory_order_relaxed);
          },
          column.values);
    });
  });
}

// Moves the keys and rows of values other than none to the front. Returns their number.
template <typename Texts>
int64_t DropNone(const KeyColumn<Texts>& column, int64_t* rows) {
  return std::visit(
      [&](const auto& values) {
        int64_t num_kept = 0;
        for (int64_t i = 0; i < values.size; ++i) {
          if (IsNone(values[i])) continue;
          column.keys[num_kept] = column.keys[i];
          rows[num_kept++] = rows[i];
        }
        return num_kept;
      },
      column.values);
}

// The row of each value of a matrix [size / width, width].
void WriteRowsOfMatrix(int64_t width, Span<int64_t> rows);

// The row of each value of a ragged feature: row r has the values from row_splits[r] up to
// row_splits[r + 1]. InvalidArgument if the splits are not of that many values.
Status WriteRowsOfRagged(Span<const int64_t> row_splits, Span<int64_t> rows);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_INPUT_COLUMN_KEYS_H_
