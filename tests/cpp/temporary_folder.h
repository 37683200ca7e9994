#ifndef FUSED_EMBEDDING_TESTS_CPP_TEMPORARY_FOLDER_H_
#define FUSED_EMBEDDING_TESTS_CPP_TEMPORARY_FOLDER_H_

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/cpp/core_testing.h"

namespace fused_embedding {

// A folder that goes with its object.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(::testing::TempDir() + "/fe_XXXXXX") {
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_TEMPORARY_FOLDER_H_
