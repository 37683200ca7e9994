#include "tf_ops/core/table/change_log.h"

#include <algorithm>
#include <new>

namespace fused_embedding {

void ChangeLog::Remove(int64_t row, int64_t key) {
  if (!is_on_) return;
  const size_t word = Word(row);
  const uint64_t bit = Bit(row);
  const bool is_new = (new_[word] & bit) != 0;
  for (std::vector<uint64_t>* bits : {&changed_, &new_, &collected_}) (*bits)[word] &= ~bit;
  if (is_new) return;
  try {
    removed_.push_back(key);
  } catch (const std::bad_alloc&) {
    Stop();
  }
}

void ChangeLog::Reserve(int64_t num_rows) {
  if (!is_on_ || Word(num_rows) < changed_.size()) return;
  try {
    const size_t num_words = std::max(Word(num_rows) + 1, changed_.size() + changed_.size() / 2);
    for (std::vector<uint64_t>* bits : {&changed_, &new_, &collected_}) bits->resize(num_words);
  } catch (const std::bad_alloc&) {
    Stop();
  }
}

void ChangeLog::Start(int64_t num_rows) {
  Stop();
  is_on_ = true;
  Reserve(num_rows);
}

void ChangeLog::Stop() { *this = ChangeLog(); }

void ChangeLog::Collect() {
  if (!is_on_) return;
  for (size_t word = 0; word < changed_.size(); ++word) collected_[word] |= changed_[word];
  std::fill(changed_.begin(), changed_.end(), 0);
  std::fill(new_.begin(), new_.end(), 0);
  try {
    std::vector<int64_t>& all = collected_removed_;
    all.insert(all.end(), removed_.begin(), removed_.end());
    removed_.clear();
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
  } catch (const std::bad_alloc&) {
    Stop();
  }
}

void ChangeLog::Forget() {
  std::fill(collected_.begin(), collected_.end(), 0);
  collected_removed_ = {};
}

int64_t ChangeLog::memory_bytes() const {
  const size_t num_words = changed_.capacity() + new_.capacity() + collected_.capacity();
  return static_cast<int64_t>(sizeof(int64_t) *
                              (num_words + removed_.capacity() + collected_removed_.capacity()));
}

int64_t ChangeLog::num_changed() const {
  int64_t num_changed = 0;
  for (const uint64_t bits : collected_) num_changed += __builtin_popcountll(bits);
  return num_changed;
}

}  // namespace fused_embedding
