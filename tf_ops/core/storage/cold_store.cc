#include "tf_ops/core/storage/cold_store.h"

#include <algorithm>

namespace fused_embedding {

Status CheckOptions(const ColdStoreOptions& options) {
  for (const std::string* path : {&options.path, &options.checkpoint}) {
    const bool is_needed = path == &options.path;
    if (path->find('\0') == std::string::npos && !(is_needed && path->empty())) continue;
    return InvalidArgument("a cold store needs the name of a folder, got \"", *path, "\"");
  }
  constexpr int64_t kMaxValueBytes = int64_t{1} << 30;
  if (options.value_bytes < 1 || options.value_bytes > kMaxValueBytes) {
    return InvalidArgument("cold store ", options.path, ": value_bytes must be 1 to ",
                           kMaxValueBytes, ", got ", options.value_bytes);
  }
  constexpr int64_t kMinMemoryBytes = int64_t{4} << 20;
  if (options.memory_bytes < kMinMemoryBytes) {
    return InvalidArgument("cold store ", options.path, ": memory_bytes must be at least ",
                           kMinMemoryBytes, ", got ", options.memory_bytes);
  }
  constexpr int kMaxReaders = 1024;
  if (options.num_readers < 1 || options.num_readers > kMaxReaders) {
    return InvalidArgument("cold store ", options.path, ": num_readers must be 1 to ", kMaxReaders,
                           ", got ", options.num_readers);
  }
  return Status();
}

ColdStore::ColdStore(const ColdStoreOptions& options)
    : path_(options.path), value_bytes_(options.value_bytes) {}

Status ColdStore::CheckBatch(Span<const int64_t> keys, int64_t num_value_bytes) const {
  // By division: the product of a forged size could overflow.
  if (num_value_bytes % value_bytes_ != 0 || num_value_bytes / value_bytes_ != keys.size) {
    return InvalidArgument("cold store ", path_, " has rows of ", value_bytes_, " bytes, but got ",
                           num_value_bytes, " bytes for ", keys.size, " keys");
  }
  const auto is_not_above = [](int64_t key, int64_t next) { return next <= key; };
  const int64_t* key = std::adjacent_find(keys.begin(), keys.end(), is_not_above);
  if (key == keys.end()) return Status();
  return InvalidArgument("cold store ", path_, ": keys must ascend, each once, but keys[",
                         key + 1 - keys.begin(), "] = ", key[1], " follows ", key[0]);
}

Status ColdStore::MultiGet(Span<const int64_t> keys, Span<char> values, Span<bool> found) {
  FE_RETURN_IF_ERROR(CheckBatch(keys, values.size));
  if (found.size != keys.size) {
    return InvalidArgument("cold store ", path_, ": found has ", found.size, " elements for ",
                           keys.size, " keys");
  }
  if (keys.empty()) return Status();
  FE_RETURN_IF_ERROR(Get(keys, values.data, found.data));
  num_gets_ += keys.size;
  num_found_ += std::count(found.begin(), found.end(), true);
  return Status();
}

Status ColdStore::MultiPut(Span<const int64_t> keys, Span<const char> values) {
  FE_RETURN_IF_ERROR(CheckBatch(keys, values.size));
  if (keys.empty()) return Status();
  FE_RETURN_IF_ERROR(Put(keys, values.data));
  num_puts_ += keys.size;
  return Status();
}

Status ColdStore::Erase(Span<const int64_t> keys) {
  FE_RETURN_IF_ERROR(CheckBatch(keys, keys.size * value_bytes_));
  if (keys.empty()) return Status();
  FE_RETURN_IF_ERROR(Remove(keys));
  num_erases_ += keys.size;
  return Status();
}

ColdStoreStatistics ColdStore::Statistics() const {
  ColdStoreStatistics statistics;
  statistics.num_gets = num_gets_;
  statistics.num_found = num_found_;
  statistics.num_puts = num_puts_;
  statistics.put_bytes = num_puts_ * (value_bytes_ + static_cast<int64_t>(sizeof(int64_t)));
  statistics.num_erases = num_erases_;
  AddStatistics(&statistics);
  return statistics;
}

}  // namespace fused_embedding
