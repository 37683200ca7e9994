#ifndef FUSED_EMBEDDING_CORE_BASE_THREAD_BLOCKS_H_
#define FUSED_EMBEDDING_CORE_BASE_THREAD_BLOCKS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// [0, size) cut into blocks, one for each thread of `exec`, for work in which a block must know of
// those before it.
class ThreadBlocks {
 public:
  // `block_ns` is the rough cost of a block.
  ThreadBlocks(const CpuExec& exec, int64_t size, int64_t block_ns)
      : exec_(exec), size_(size), num_(exec.num_threads()), block_ns_(block_ns) {}

  int64_t num() const { return num_; }
  int64_t begin(int64_t block) const { return size_ * block / num_; }
  int64_t end(int64_t block) const { return begin(block + 1); }

  // Calls body(block) for each block, each in a thread.
  template <typename Body>
  void ForEach(const Body& body) const {
    exec_.ParallelFor(num_, block_ns_, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) body(block);
    });
  }

 private:
  const CpuExec& exec_;
  const int64_t size_, num_, block_ns_;
};

// The positions of the items of blocks, put in order by the part that each belongs to, and in a
// part by their position. There are as many parts as blocks.
template <typename Index>
class PositionsByPart {
 public:
  // part_of(i) is the part of item i, and is called twice for each.
  template <typename PartOf>
  Status Deal(const ThreadBlocks& blocks, const PartOf& part_of) {
    const int64_t num_parts = blocks.num();
    FE_RETURN_IF_ERROR(positions_.Allocate(blocks.end(num_parts - 1)));
    std::vector<int64_t> next(static_cast<size_t>(num_parts * num_parts));  // [blocks, parts]
    blocks.ForEach([&](int64_t block) {
      int64_t* counts = next.data() + block * num_parts;
      for (int64_t i = blocks.begin(block); i < blocks.end(block); ++i) ++counts[part_of(i)];
    });
    int64_t sum = 0;
    for (int64_t part = 0; part < num_parts; ++part) {
      starts_.push_back(sum);
      for (int64_t block = 0; block < num_parts; ++block) {
        int64_t& of_block = next[static_cast<size_t>(block * num_parts + part)];
        sum += std::exchange(of_block, sum);
      }
    }
    starts_.push_back(sum);
    blocks.ForEach([&](int64_t block) {
      int64_t* to = next.data() + block * num_parts;
      for (int64_t i = blocks.begin(block); i < blocks.end(block); ++i) {
        positions_[to[part_of(i)]++] = static_cast<Index>(i);
      }
    });
    return Status();
  }

  // Where a part's positions are among those of all.
  int64_t begin(int64_t part) const { return starts_[static_cast<size_t>(part)]; }
  int64_t end(int64_t part) const { return starts_[static_cast<size_t>(part) + 1]; }
  // Of all parts; free for other use once they have been read.
  Span<Index> all() { return positions_.span(); }

 private:
  Buffer<Index> positions_;
  std::vector<int64_t> starts_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_THREAD_BLOCKS_H_
