// The files of a cold store's checkpoint, as part of a table's checkpoint.
//
// A checkpoint of a cold store is a folder. TensorFlow removes and copies checkpoints as files with
// one prefix, so the folder is converted to such files. Its large files are moved beside the
// table's file:
//
//   ckpt-3.data-ek2cd-of-aaaaa    the table's file, which includes the small files
//   ckpt-3.data-ek2cd-of-aq3f7    a large file
//
// To read the checkpoint, the folder is made again from symbolic links.

#ifndef FUSED_EMBEDDING_CORE_CHECKPOINT_COLD_FILES_H_
#define FUSED_EMBEDDING_CORE_CHECKPOINT_COLD_FILES_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/files.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/checkpoint/format.h"
#include "tf_ops/core/checkpoint/held_files.h"
#include "tf_ops/core/checkpoint/new_files.h"
#include "tf_ops/core/table/table_config.h"
#include "tf_ops/core/table/tier/stored_rows.h"

namespace fused_embedding {

// The common prefix of a checkpoint's files: "ckpt-3" for the names above. A name without such an
// ending is its own prefix.
std::string PrefixOf(const std::string& path);

// Moves the large files of `folder` beside the table's file `path`, which must be in the same file
// system, and adds each to `made`.
Status TakeApart(const std::string& folder, const std::string& path, NewFiles* made,
                 std::vector<ColdFile>* files);

// The paths of the large files of the table's file `path`; none if `path` does not exist or is not
// a table's file.
std::vector<std::string> ColdPathsOf(const std::string& path);

// A temporary folder with a cold store's checkpoint. It exists as long as this object.
class ColdFolder {
 public:
  ColdFolder() = default;
  ~ColdFolder();
  ColdFolder(const ColdFolder&) = delete;
  ColdFolder& operator=(const ColdFolder&) = delete;

  // Makes the folder for the table's file `path`. DataLoss if `files` are invalid. With `held`, the
  // large files can be read as long as this object lives, even if they are removed.
  Status Make(const std::string& path, Span<const ColdFile> files, HeldFiles* held = nullptr);
  const std::string& path() const { return folder_; }
  // Replaces the paths in an error by the names of the files in the checkpoint.
  Status Explain(const Status& status) const;

 private:
  Status Add(const ColdFile& file, const std::string& prefix, HeldFiles* held);
  Status AddLink(const std::string& here, const std::string& there, HeldFiles* held);

  std::string table_path_;
  std::string folder_;
  std::vector<std::pair<std::string, std::string>> names_;  // in the folder, in the checkpoint
  std::vector<std::shared_ptr<const File>> held_files_;
};

// Visits all rows of a cold store's checkpoint.
Status ReadColdRows(const ColdFolder& folder, const RowLayout& layout,
                    const StorageConfig::Open& open, const VisitRowBytes& visit);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_CHECKPOINT_COLD_FILES_H_
