#ifndef FUSED_EMBEDDING_CORE_CHECKPOINT_HELD_FILES_H_
#define FUSED_EMBEDDING_CORE_CHECKPOINT_HELD_FILES_H_

#include <map>
#include <memory>
#include <string>

#include "tf_ops/core/base/files.h"

namespace fused_embedding {

// The files of a restore, open from its check to its load: a file that is removed in between, for
// example by max_to_keep of a training elsewhere, can still be loaded.
//
// All restores of a process together hold at most a quarter of its file descriptors (ulimit -n).
// Files beyond that are opened again by name. Not for several threads.
class HeldFiles {
 public:
  HeldFiles() = default;
  ~HeldFiles() { Release(); }
  HeldFiles(const HeldFiles&) = delete;
  HeldFiles& operator=(const HeldFiles&) = delete;

  // The open file, at any position; null if it cannot be opened, or too many are held.
  std::shared_ptr<const File> Hold(const std::string& path);

 private:
  void Release();

  std::map<std::string, std::shared_ptr<const File>> files_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_CHECKPOINT_HELD_FILES_H_
