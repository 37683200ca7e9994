// What code that writes files shares.

#ifndef FUSED_EMBEDDING_CORE_BASE_FILES_H_
#define FUSED_EMBEDDING_CORE_BASE_FILES_H_

#include <string>

#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// "cannot ACTION PATH: ..." with the text of `error`, an errno. Full disks are ResourceExhausted,
// other errors FailedPrecondition.
Status SystemError(const std::string& action, const std::string& path, int error);

// "a/b" of "a/b/c", "." of "c".
std::string FolderOf(const std::string& path);

// Files made or renamed in a folder are on disk once the folder is. False: see errno.
bool SyncFolder(const std::string& folder);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_FILES_H_
