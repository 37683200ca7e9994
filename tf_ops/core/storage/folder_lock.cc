#include "tf_ops/core/storage/folder_lock.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "tf_ops/core/base/files.h"

namespace fused_embedding {

Status MakeFolders(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string folder = path.substr(0, end);
    if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
      return SystemError("make the folder", folder, errno);
    }
    if (end == std::string::npos) return Status();
  }
}

Status RemoveTree(const std::string& path) {
  const auto remove_one = [](const char* name, const struct stat*, int, struct FTW*) {
    return std::remove(name);
  };
  constexpr int kOpenFolders = 8;
  const bool is_gone = nftw(path.c_str(), remove_one, kOpenFolders, FTW_DEPTH | FTW_PHYS) == 0;
  return is_gone || errno == ENOENT ? Status() : SystemError("remove", path, errno);
}

Status NamesIn(const std::string& folder, std::vector<std::string>* names) {
  const auto close_folder = [](DIR* opened) { closedir(opened); };
  const std::unique_ptr<DIR, decltype(close_folder)> opened(opendir(folder.c_str()), close_folder);
  if (opened == nullptr) return SystemError("open the folder", folder, errno);
  errno = 0;
  while (const dirent* entry = readdir(opened.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names->push_back(name);
  }
  if (errno != 0) return SystemError("read the folder", folder, errno);
  std::sort(names->begin(), names->end());
  return Status();
}

void FolderLock::Release() {
  if (is_taken()) close(file_);
  file_ = -1;
}

Status FolderLock::Take(const std::string& path, const std::string& name) {
  std::vector<std::string> names;
  FE_RETURN_IF_ERROR(NamesIn(path, &names));
  const bool is_ours = std::find(names.begin(), names.end(), name) != names.end();
  if (!is_ours && !names.empty()) {
    return MakeStatus(StatusCode::kFailedPrecondition, "cannot keep a cold store in ", path,
                      ": it has other files, such as ", names[0],
                      "; name a folder that is new or empty");
  }
  const std::string lock = path + "/" + name;
  const int file = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return SystemError("create", lock, errno);
  if (flock(file, LOCK_EX | LOCK_NB) == 0) {
    file_ = file;
    return Status();
  }
  const int error = errno;
  close(file);
  if (error != EWOULDBLOCK) return SystemError("lock", lock, error);
  return MakeStatus(StatusCode::kFailedPrecondition, "cold store ", path,
                    " is in use, by this process or another one; give each table and process a ",
                    "folder of its own");
}

}  // namespace fused_embedding
