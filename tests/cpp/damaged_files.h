// Files that are changed as a disk, a copy or a person does it.

#ifndef FUSED_EMBEDDING_TESTS_CPP_DAMAGED_FILES_H_
#define FUSED_EMBEDDING_TESTS_CPP_DAMAGED_FILES_H_

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/cpp/cold_store_testing.h"

namespace fused_embedding {

// All regular files below a folder, by name.
inline std::vector<fs::path> FilesIn(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Damage of one kind, drawn at random. The file may be as it was: zeros are what was there.
inline void Mutate(const fs::path& file, Random* random) {
  std::string bytes = ReadFile(file.string());
  const auto size = static_cast<int64_t>(bytes.size());
  // Half of the places are near the end, where files of RocksDB say what they are.
  const int64_t low = RandomBool(random) ? std::max<int64_t>(size - 600, 0) : 0;
  const int64_t at = size == 0 ? 0 : RandomInt(random, low, size - 1);
  const auto place = static_cast<size_t>(at);
  switch (RandomInt(random, 0, 5)) {
    case 0:
      fs::remove(file);
      return;
    case 1:
      bytes.resize(place);
      break;
    case 2:
      bytes.append("more");
      break;
    case 3:
      std::fill(bytes.begin() + at, bytes.begin() + std::min(size, at + 64), '\0');
      break;
    default:
      if (size > 0) bytes[place] = static_cast<char>(bytes[place] ^ (1 << RandomInt(random, 0, 7)));
  }
  WriteFile(file.string(), bytes);
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_DAMAGED_FILES_H_
