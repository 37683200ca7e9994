#ifndef FUSED_EMBEDDING_CORE_TABLE_SHARD_LOOPS_H_
#define FUSED_EMBEDDING_CORE_TABLE_SHARD_LOOPS_H_

#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/table/table_shard.h"

namespace fused_embedding {

inline Status OutOfMemory() {
  return ResourceExhausted("no memory is left for an embedding table; expire or bound its rows");
}

// The standard library's containers report a lack of memory by an exception.
template <typename Body>
Status WithoutExceptions(const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

using Shards = std::vector<std::unique_ptr<TableShard>>;

// Calls body(shard) for each, under its lock.
template <typename Body>
Status ForEachShard(const Shards& shards, const Body& body) {
  return WithoutExceptions([&] {
    for (const std::unique_ptr<TableShard>& shard : shards) {
      const std::lock_guard<std::mutex> lock(shard->mutex());
      FE_RETURN_IF_ERROR(body(shard.get()));
    }
    return Status();
  });
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_SHARD_LOOPS_H_
