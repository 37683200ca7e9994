#ifndef FUSED_EMBEDDING_CORE_TABLE_CHANGE_LOG_H_
#define FUSED_EMBEDDING_CORE_TABLE_CHANGE_LOG_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tf_ops/core/base/simd.h"

namespace fused_embedding {

// What changed in a shard's rows since a save that may be continued: a bit a row, and the keys that
// have none any more. Three bits a row are all its memory; nothing while it is off. Not
// thread-safe.
//
// A save may fail after rows were copied, or its checkpoint may, so that nobody knows of it. What
// was handed out is therefore kept until the save is known to be whole:
//   Start     the save 1 is known; nothing changed since
//   Collect   hands out what changed since save 1, for save 2
//   Forget    save 2 is known to be whole: what was handed out for it need not be kept
// Without the Forget, the next Collect hands out all since save 1 again.
//
// It never fails a training step: where memory is short it goes off.
class ChangeLog {
 public:
  bool is_on() const { return is_on_; }
  int64_t memory_bytes() const;

  // Of a row whose bytes changed.
  FE_INLINE void Change(int64_t row) {
    if (is_on_) changed_[Word(row)] |= Bit(row);
  }
  // Of a new row.
  void Add(int64_t row) {
    if (!is_on_) return;
    changed_[Word(row)] |= Bit(row);
    new_[Word(row)] |= Bit(row);
  }
  // Of a row that dies.
  void Remove(int64_t row, int64_t key);

  // Rows are numbered below `num_rows` from then on.
  void Reserve(int64_t num_rows);
  void Start(int64_t num_rows);
  void Stop();
  void Collect();
  void Forget();

  // --- What Collect found ---
  // Ascending. Some of them have a row again.
  const std::vector<int64_t>& removed() const { return collected_removed_; }
  int64_t num_changed() const;
  // Calls body(row) in ascending order.
  template <typename Body>
  void ForEachChanged(const Body& body) const {
    for (size_t word = 0; word < collected_.size(); ++word) {
      for (uint64_t bits = collected_[word]; bits != 0; bits &= bits - 1) {
        body(static_cast<uint32_t>(word * kWordBits + __builtin_ctzll(bits)));
      }
    }
  }

 private:
  static constexpr size_t kWordBits = 64;
  static size_t Word(int64_t row) { return static_cast<size_t>(row) / kWordBits; }
  static uint64_t Bit(int64_t row) { return uint64_t{1} << (static_cast<size_t>(row) % kWordBits); }

  bool is_on_ = false;
  // Since the last Collect. A key that got its row since then was not in the save, or is in
  // removed_ already: it need not be listed when it goes, so that the list is at most as long as
  // the table.
  std::vector<uint64_t> changed_, new_;
  std::vector<int64_t> removed_;
  // Before it, as far as it is not forgotten.
  std::vector<uint64_t> collected_;
  std::vector<int64_t> collected_removed_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_CHANGE_LOG_H_
