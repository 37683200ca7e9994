// The files of a cold store's checkpoint, as part of a table's checkpoint.
//
// A checkpoint of a cold store is a folder. TensorFlow removes and copies checkpoints as files with
// one prefix, so the folder is taken apart: its large files lie beside the table's file, under
// names of their own,
//
//   ckpt-3.data-ek2cd-of-aaaaa    the table's file, with the small ones
//   ckpt-3.data-ek2cd-of-aq3f7    a large one
//
// and to be read, it is put together again, of symbolic links.

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

// What the files of a checkpoint begin with: "ckpt-3" of the names above. Other names, which do not
// end so, are prefixes themselves.
std::string PrefixOf(const std::string& path);

// Takes the folder apart for the table's file `path`, which lies in the same file system: moves its
// large files, and adds each to `made`.
Status TakeApart(const std::string& folder, const std::string& path, NewFiles* made,
                 std::vector<ColdFile>* files);

// The paths of the files beside the table's file `path`; none where there is no such file, or
// another's.
std::vector<std::string> ColdPathsOf(const std::string& path);

// A folder for temporary files with a checkpoint of a cold store, as long as this lives.
class ColdFolder {
 public:
  ColdFolder() = default;
  ~ColdFolder();
  ColdFolder(const ColdFolder&) = delete;
  ColdFolder& operator=(const ColdFolder&) = delete;

  // Of the table's file `path`. DataLoss where `files` make no sense. With `held`, the large files
  // can be read as long as this lives, even if they are removed.
  Status Make(const std::string& path, Span<const ColdFile> files, HeldFiles* held = nullptr);
  const std::string& path() const { return folder_; }
  // An error with the names that the files have in the checkpoint.
  Status Explain(const Status& status) const;

 private:
  Status Add(const ColdFile& file, const std::string& prefix, HeldFiles* held);
  Status AddLink(const std::string& here, const std::string& there, HeldFiles* held);

  std::string table_path_;
  std::string folder_;
  std::vector<std::pair<std::string, std::string>> names_;  // here, and in the checkpoint
  std::vector<std::shared_ptr<const File>> held_files_;
};

// All rows of a checkpoint of a cold store.
Status ReadColdRows(const ColdFolder& folder, const RowLayout& layout,
                    const StorageConfig::Open& open, const VisitRowBytes& visit);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_CHECKPOINT_COLD_FILES_H_
