#ifndef FUSED_EMBEDDING_TESTS_CPP_PAGE_MEMORY_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_PAGE_MEMORY_TESTING_H_

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "tf_ops/core/base/page_memory.h"

namespace fused_embedding {

// The bytes on huge pages of the mapping that has this address.
inline int64_t HugeBytesAround(const char* address) {
  std::ifstream mappings("/proc/self/smaps");
  const auto sought = reinterpret_cast<uintptr_t>(address);
  bool is_here = false;
  for (std::string line; std::getline(mappings, line);) {
    unsigned long begin = 0, end = 0, kilobytes = 0;  // NOLINT(google-runtime-int): sscanf's
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      is_here = begin <= sought && sought < end;
    } else if (is_here && std::sscanf(line.c_str(), "AnonHugePages: %lu kB", &kilobytes) == 1) {
      return static_cast<int64_t>(kilobytes) * 1024;
    }
  }
  return 0;
}

// Whether this system moves pages when it is asked to.
inline bool MovesPages() {
  PageMemory memory;
  const int64_t bytes = 2 * PageMemory::kHugePage;
  if (!PageMemory::Allocate(bytes, 0, 0, &memory).ok()) return false;
  std::memset(memory.data(), 1, static_cast<size_t>(bytes));
  MoveToHugePages(memory.data(), memory.data() + PageMemory::kHugePage);
  return HugeBytesAround(memory.data()) >= PageMemory::kHugePage;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_PAGE_MEMORY_TESTING_H_
