#include "tf_ops/core/checkpoint/cold_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "tf_ops/core/base/files.h"
#include "tf_ops/core/base/secret.h"
#include "tf_ops/core/checkpoint/reader.h"
#include "tf_ops/core/storage/folder_lock.h"

namespace fused_embedding {
namespace {

// What TensorFlow removes with a checkpoint; `e`, which its own files do not have, marks ours
// (checkpoint/side_files.py).
constexpr char kSuffixForm[] = ".data-e****-of-*****";
constexpr size_t kSuffixSize = sizeof(kSuffixForm) - 1;
// Smaller files are part of the table's.
constexpr int64_t kMinLargeBytes = int64_t{64} << 10;
constexpr int64_t kMemoryBytes = int64_t{16} << 20;  // of a store that is scanned
constexpr char kDataFolder[] = "data/";              // of a cold store's checkpoint

bool IsSuffix(const std::string& text) {
  if (text.size() != kSuffixSize) return false;
  for (size_t i = 0; i < kSuffixSize; ++i) {
    const bool is_drawn = (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= '2' && text[i] <= '7');
    if (kSuffixForm[i] == '*' ? !is_drawn : text[i] != kSuffixForm[i]) return false;
  }
  return true;
}

// Letters of a suffix that a save's tables have in common (checkpoint/side_files.py, Drawn): its
// files are known by them. "****-of-*" behind ".data-e".
constexpr size_t kTagBegin = 7, kTagEnd = 16;
// What tables' files do not have behind them.
constexpr char kFirstOfCold[] = "qrstuvwxyz234567";

// With the tag of the table's file `path`, if its name has one; the rest is drawn at random.
std::string NewSuffix(const std::string& path) {
  constexpr char kDigits[] = "abcdefghijklmnopqrstuvwxyz234567";
  std::string suffix = kSuffixForm;
  uint64_t bits = Secret();
  const auto draw = [&](const char* from, uint64_t count) {
    const char letter = from[bits % count];
    bits /= count;
    return letter;
  };
  const bool has_tag = PrefixOf(path) != path;
  if (has_tag) suffix.replace(0, kTagEnd, path, path.size() - kSuffixSize, kTagEnd);
  for (size_t i = has_tag ? kTagEnd : kTagBegin; i < kSuffixSize; ++i) {
    if (suffix[i] == '*') suffix[i] = draw(kDigits, sizeof(kDigits) - 1);
  }
  if (has_tag) suffix[kTagEnd] = draw(kFirstOfCold, sizeof(kFirstOfCold) - 1);
  return suffix;
}

// A name in a cold store's checkpoint: of a file in it, or in its folder of data.
bool IsNameInFolder(const std::string& name) {
  const bool is_data = name.rfind(kDataFolder, 0) == 0;
  const std::string last = is_data ? name.substr(sizeof(kDataFolder) - 1) : name;
  return !last.empty() && last != "." && last != ".." && last.find('/') == std::string::npos &&
         last.find('\0') == std::string::npos;
}

// Not by stat(2), of which a C library as old as TensorFlow's has no symbol.
Status GetSize(const std::string& path, int64_t* size) {
  const File file(path, O_RDONLY);
  *size = file.get() < 0 ? -1 : static_cast<int64_t>(lseek(file.get(), 0, SEEK_END));
  return *size < 0 ? SystemError("read", path, errno) : Status();
}

Status MoveLarge(const std::string& from, const std::string& path, NewFiles* made,
                 std::string* suffix) {
  const std::string prefix = PrefixOf(path);
  // Other partitions draw at the same time: the name is taken before the file is moved to it.
  int reserved = -1;
  do {
    *suffix = NewSuffix(path);
    reserved = open((prefix + *suffix).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (reserved < 0 && errno == EEXIST);
  const std::string to = prefix + *suffix;
  if (reserved < 0) return SystemError("make", to, errno);
  close(reserved);
  made->Add(to);
  return rename(from.c_str(), to.c_str()) == 0 ? Status() : SystemError("make", to, errno);
}

std::string ReplaceAll(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

}  // namespace

std::string PrefixOf(const std::string& path) {
  if (path.size() <= kSuffixSize) return path;
  const size_t size = path.size() - kSuffixSize;
  return IsSuffix(path.substr(size)) ? path.substr(0, size) : path;
}

Status TakeApart(const std::string& folder, const std::string& path, NewFiles* made,
                 std::vector<ColdFile>* files) {
  for (const std::string in : {"", kDataFolder}) {
    std::vector<std::string> names;
    FE_RETURN_IF_ERROR(NamesIn(folder + "/" + in, &names));
    for (const std::string& name : names) {
      ColdFile file;
      file.name = in + name;
      const std::string from = folder + "/" + file.name;
      if (file.name + "/" == kDataFolder) continue;
      int64_t size = 0;
      FE_RETURN_IF_ERROR(GetSize(from, &size));
      FE_RETURN_IF_ERROR(size < kMinLargeBytes ? ReadFile(from, &file.bytes)
                                               : MoveLarge(from, path, made, &file.suffix));
      files->push_back(std::move(file));
    }
  }
  return Status();
}

std::vector<std::string> ColdPathsOf(const std::string& path) {
  std::vector<std::string> paths;
  BlockReader reader;
  if (!reader.Open(path).ok()) return paths;
  // They come before rows, and there may be many of those.
  Block block;
  for (bool may_follow = true; may_follow && reader.Next(&block).ok();) {
    ColdFile file;
    if (block.type == BlockType::kColdFile && DecodeColdFile(block.payload, &file).ok() &&
        IsSuffix(file.suffix)) {
      paths.push_back(PrefixOf(path) + file.suffix);
    }
    may_follow = block.type == BlockType::kTable || block.type == BlockType::kMatrix ||
                 block.type == BlockType::kSlots || block.type == BlockType::kColdFile;
  }
  return paths;
}

ColdFolder::~ColdFolder() {
  if (folder_.empty()) return;
  const Status is_removed = RemoveTree(folder_);  // it has but links and small files
  static_cast<void>(is_removed);
}

Status ColdFolder::Make(const std::string& path, Span<const ColdFile> files, HeldFiles* held) {
  table_path_ = path;
  const char* temporary = std::getenv("TMPDIR");
  std::string name = temporary == nullptr || *temporary == '\0' ? "/tmp" : temporary;
  name += "/fe_cold_checkpoint_XXXXXX";
  if (mkdtemp(name.data()) == nullptr) return SystemError("make the folder", name, errno);
  folder_ = name;
  FE_RETURN_IF_ERROR(MakeFolders(folder_ + "/" + kDataFolder));
  for (const ColdFile& file : files) FE_RETURN_IF_ERROR(Explain(Add(file, PrefixOf(path), held)));
  return Status();
}

Status ColdFolder::Add(const ColdFile& file, const std::string& prefix, HeldFiles* held) {
  if (!IsNameInFolder(file.name) || (!file.suffix.empty() && !IsSuffix(file.suffix))) {
    return DataLoss("checkpoint ", table_path_, " is damaged: a file of its rows has a name that ",
                    "makes no sense; restore another one");
  }
  const std::string here = folder_ + "/" + file.name;
  if (file.suffix.empty()) return WriteNewFile(here, AsSpan(file.bytes));
  const std::string there = prefix + file.suffix;
  names_.emplace_back(here, there);
  return AddLink(here, there, held);
}

Status ColdFolder::AddLink(const std::string& here, const std::string& there, HeldFiles* held) {
  const auto file = held == nullptr ? nullptr : held->Hold(there);
  if (file != nullptr) {
    // Another name of the open file, which it has even after it was removed.
    const std::string open_file = "/proc/self/fd/" + std::to_string(file->get());
    if (access(open_file.c_str(), R_OK) == 0) {
      held_files_.push_back(file);
      return symlink(open_file.c_str(), here.c_str()) == 0 ? Status()
                                                           : SystemError("link", here, errno);
    }
  }
  // A link's name is read from the folder that it is in.
  const std::unique_ptr<char, decltype(&std::free)> beside(
      realpath(FolderOf(there).c_str(), nullptr), &std::free);
  if (beside == nullptr) return SystemError("open", there, errno);
  const std::string target = std::string(beside.get()) + "/" + there.substr(there.rfind('/') + 1);
  return symlink(target.c_str(), here.c_str()) == 0 ? Status() : SystemError("link", here, errno);
}

Status ColdFolder::Explain(const Status& status) const {
  if (status.ok()) return status;
  std::string message = status.message();
  for (const auto& [here, there] : names_) message = ReplaceAll(message, here, there);
  return MakeStatus(status.code(), ReplaceAll(message, folder_, table_path_));
}

Status ReadColdRows(const ColdFolder& folder, const RowLayout& layout,
                    const StorageConfig::Open& open, const VisitRowBytes& visit) {
  ColdStoreOptions options;
  options.path = options.checkpoint = folder.path();
  options.is_read_only = true;
  options.value_bytes = StoredBytes(layout);
  options.memory_bytes = kMemoryBytes;
  options.num_readers = 1;  // a scan has none
  std::unique_ptr<ColdStore> store;
  FE_RETURN_IF_ERROR(folder.Explain(open(options, &store)));
  return folder.Explain(ScanRows(store.get(), layout, visit));
}

}  // namespace fused_embedding
