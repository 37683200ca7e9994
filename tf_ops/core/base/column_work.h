#ifndef FUSED_EMBEDDING_CORE_BASE_COLUMN_WORK_H_
#define FUSED_EMBEDDING_CORE_BASE_COLUMN_WORK_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace fused_embedding {

// The work of several columns in one sequence of positions, which can be split anywhere.
//
//   sizes 3, 0, 4: position 5 is number 2 of column 2
class ColumnWork {
 public:
  // Returns false if the total overflows.
  bool Add(int64_t size) {
    int64_t end = 0;
    if (__builtin_add_overflow(total(), size, &end)) return false;
    ends_.push_back(end);
    return true;
  }
  int64_t total() const { return ends_.empty() ? 0 : ends_.back(); }

  // Calls body(column, first, last) for each column's part of positions [begin, end).
  template <typename Body>
  void ForEach(int64_t begin, int64_t end, const Body& body) const {
    size_t column =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    for (; begin < end; ++column) {
      const int64_t start = column == 0 ? 0 : ends_[column - 1];
      const int64_t last = std::min(end, ends_[column]);
      if (last > begin) body(static_cast<int64_t>(column), begin - start, last - start);
      begin = std::max(begin, last);
    }
  }

 private:
  std::vector<int64_t> ends_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_COLUMN_WORK_H_
