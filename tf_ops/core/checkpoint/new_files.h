#ifndef FUSED_EMBEDDING_CORE_CHECKPOINT_NEW_FILES_H_
#define FUSED_EMBEDDING_CORE_CHECKPOINT_NEW_FILES_H_

#include <unistd.h>

#include <string>
#include <vector>

namespace fused_embedding {

// Files that a save makes beside its own, which are removed again unless they are kept.
class NewFiles {
 public:
  NewFiles() = default;
  ~NewFiles() {
    for (const std::string& path : paths_) unlink(path.c_str());
  }
  NewFiles(const NewFiles&) = delete;
  NewFiles& operator=(const NewFiles&) = delete;

  void Add(const std::string& path) { paths_.push_back(path); }
  void Keep() { paths_.clear(); }

 private:
  std::vector<std::string> paths_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_CHECKPOINT_NEW_FILES_H_
