#ifndef FUSED_EMBEDDING_CORE_TABLE_CHANGE_LOG_H_
#define FUSED_EMBEDDING_CORE_TABLE_CHANGE_LOG_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tf_ops/core/base/simd.h"

namespace fused_embedding {

// What changed in a shard's rows since a save that may be continued: one bit per row, and the keys
// of removed rows. It takes three bits a row and the list of removed keys, and nothing while it is
// off. Not thread-safe.
//
// A save may fail after its rows were copied, and so may the checkpoint that it belongs to.
// Collected changes are therefore kept until the save is known to be complete:
//   Start     save 1 is complete; nothing has changed since
//   Collect   returns what changed since save 1, for save 2
//   Forget    save 2 is complete: drops what was collected for it
// Without the Forget, the next Collect returns all changes since save 1 again.
//
// It never fails a training step: if memory runs out, it turns itself off.
class ChangeLog {
 public:
  bool is_on() const { return is_on_; }
  int64_t memory_bytes() const;

  // Marks a row whose bytes changed.
  FE_INLINE void Change(int64_t row) {
    if (is_on_) changed_[Word(row)] |= Bit(row);
  }
  // Marks a new row.
  void Add(int64_t row) {
    if (!is_on_) return;
    changed_[Word(row)] |= Bit(row);
    new_[Word(row)] |= Bit(row);
  }
  // Records that a row is removed.
  void Remove(int64_t row, int64_t key);

  // Row numbers are below `num_rows` from now on.
  void Reserve(int64_t num_rows);
  void Start(int64_t num_rows);
  void Stop();
  void Collect();
  void Forget();

  // --- The result of Collect ---
  // Removed keys, ascending. Some of them have a row again.
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
  // Changes since the last Collect. A key whose row is new since then was not in the save, or is in
  // removed_ already. So its removal is not recorded, and the list is at most as long as the table.
  std::vector<uint64_t> changed_, new_;
  std::vector<int64_t> removed_;
  // Changes before the last Collect that are not forgotten.
  std::vector<uint64_t> collected_;
  std::vector<int64_t> collected_removed_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_CHANGE_LOG_H_
