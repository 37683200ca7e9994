#include "tf_ops/core/table/hash_index.h"

#include <cstring>
#include <utility>

namespace fused_embedding {

Status HashIndex::Create(int64_t num_entries, double max_load, HashIndex* index) {
  HashIndex created;
  int64_t num_buckets = 1;
  const auto capacity = [&] {
    return static_cast<int64_t>(static_cast<double>(num_buckets * kSlots) * max_load);
  };
  while (capacity() < num_entries) num_buckets *= 2;
  const int64_t bytes = num_buckets * int64_t{sizeof(Bucket)};
  FE_RETURN_IF_ERROR(PageMemory::Allocate(bytes, 0, bytes, &created.memory_));
  created.mask_ = static_cast<uint64_t>(num_buckets - 1);
  created.capacity_ = capacity();
  *index = std::move(created);
  return Status();
}

void HashIndex::Erase(uint64_t hash, uint32_t row) {
  for (uint64_t home = hash;; ++home) {
    Bucket& bucket = buckets()[home & mask_];
    for (uint32_t matches = Matches(bucket, Tag(hash)); matches != 0; matches &= matches - 1) {
      const int slot = __builtin_ctz(matches);
      if (bucket.rows[slot] != row) continue;
      bucket.tags[slot] = kEmpty;
      --size_;
      return;
    }
    // It passed by this full bucket.
    bucket.overflow = static_cast<uint8_t>(bucket.overflow - (bucket.overflow != kSaturated));
  }
}

void HashIndex::Clear() {
  std::memset(memory_.data(), 0, static_cast<size_t>(memory_.bytes()));
  size_ = 0;
}

}  // namespace fused_embedding
