#include "tf_ops/core/storage/table_folder.h"

#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace fused_embedding {
namespace {

constexpr char kTableLockName[] = "fe_table";

// Not isalnum, which asks the locale.
bool StandsForItself(char c) {
  const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const bool is_digit = c >= '0' && c <= '9';
  return is_letter || is_digit || c == '_' || c == '-';
}

std::string FileName(const std::string& name) {
  constexpr char kHexDigits[] = "0123456789ABCDEF";
  std::string made;
  for (const char c : name) {
    if (StandsForItself(c)) {
      made += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      made += {'%', kHexDigits[byte / 16], kHexDigits[byte % 16]};
    }
  }
  return made;
}

struct FoldersInUse {
  std::mutex mutex;
  std::set<std::string> paths;
};

// Never destroyed: tables may outlive what a process destroys at its end.
FoldersInUse& InUse() {
  static FoldersInUse* const folders = std::make_unique<FoldersInUse>().release();
  return *folders;
}

}  // namespace

std::string FolderOfName(const std::string& root, const std::string& name) {
  constexpr size_t kMaxBytes = 200;  // of 255, which some file systems count in another way
  const std::string file_name = FileName(name);
  std::string folder = root + "/";
  for (size_t i = 0; i < file_name.size(); i += kMaxBytes) {
    folder += (i > 0 ? "%/" : "") + file_name.substr(i, kMaxBytes);
  }
  return folder;
}

// Takes the first number that is free in this process.
TableFolder::TableFolder(const std::string& first_path) : path_(first_path) {
  FoldersInUse& in_use = InUse();
  const std::lock_guard<std::mutex> lock(in_use.mutex);
  for (int number = 2; !in_use.paths.insert(path_).second; ++number) {
    path_ = first_path + "~" + std::to_string(number);
  }
}

TableFolder::~TableFolder() {
  if (lock_.is_taken()) {
    // What cannot be removed now, the next table here removes.
    const Status is_empty = Empty();
    static_cast<void>(is_empty);
  }
  lock_.Release();  // before another table of this process may have the folder
  FoldersInUse& in_use = InUse();
  const std::lock_guard<std::mutex> lock(in_use.mutex);
  in_use.paths.erase(path_);
}

Status TableFolder::Make(const std::string& root, const std::string& name,
                         std::unique_ptr<TableFolder>* folder) {
  std::unique_ptr<TableFolder> made(new TableFolder(FolderOfName(root, name)));
  FE_RETURN_IF_ERROR(MakeFolders(made->path_));
  FE_RETURN_IF_ERROR(made->lock_.Take(made->path_, kTableLockName));
  FE_RETURN_IF_ERROR(made->Empty());
  *folder = std::move(made);
  return Status();
}

Status TableFolder::Empty() const {
  std::vector<std::string> names;
  FE_RETURN_IF_ERROR(NamesIn(path_, &names));
  for (const std::string& name : names) {
    if (name != kTableLockName) FE_RETURN_IF_ERROR(RemoveTree(path_ + "/" + name));
  }
  return Status();
}

}  // namespace fused_embedding
