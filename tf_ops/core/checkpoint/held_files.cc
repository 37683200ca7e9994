#include "tf_ops/core/checkpoint/held_files.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <utility>

namespace fused_embedding {
namespace {

std::atomic<int64_t> num_held{0};  // of all restores

// The files that all restores may hold: a quarter of the process's descriptors. TensorFlow and
// RocksDB open files as well.
int64_t MaxHeld() {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  constexpr auto kMax = static_cast<rlim_t>(std::numeric_limits<int32_t>::max());
  return static_cast<int64_t>(std::min(limit.rlim_cur, kMax)) / 4;
}

}  // namespace

std::shared_ptr<const File> HeldFiles::Hold(const std::string& path) {
  const auto held = files_.find(path);
  if (held != files_.end()) return held->second;
  if (num_held >= MaxHeld()) return nullptr;
  // A pipe without a writer must not block.
  auto file = std::make_shared<const File>(path, O_RDONLY | O_NONBLOCK);
  if (file->get() < 0) {
    // Descriptors are needed elsewhere.
    if (errno == EMFILE || errno == ENFILE) Release();
    return nullptr;
  }
  files_.emplace(path, file);
  ++num_held;
  return file;
}

void HeldFiles::Release() {
  num_held -= static_cast<int64_t>(files_.size());
  files_.clear();
}

}  // namespace fused_embedding
