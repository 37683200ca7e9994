#include "tf_ops/core/storage/table_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/cpp/core_testing.h"
#include "tests/cpp/temporary_folder.h"

namespace fused_embedding {
namespace {

namespace fs = std::filesystem;

TEST(TableFolderTest, NamesThatAreFileNamesStay) {
  EXPECT_EQ(FolderOfName("/ssd", "users"), "/ssd/users");
  EXPECT_EQ(FolderOfName("ssd", "Users_2-b"), "ssd/Users_2-b");
}

TEST(TableFolderTest, OtherBytesAreHexDigits) {
  EXPECT_EQ(FolderOfName("/ssd", "ads/users/part_0"), "/ssd/ads%2Fusers%2Fpart_0");
  EXPECT_EQ(FolderOfName("/ssd", ".."), "/ssd/%2E%2E");
  EXPECT_EQ(FolderOfName("/ssd", "a%2Fb"), "/ssd/a%252Fb");
  EXPECT_EQ(FolderOfName("/ssd", "\xc3\xa4 \x01"), "/ssd/%C3%A4%20%01");
  EXPECT_EQ(FolderOfName("/ssd", std::string("a\0b", 3)), "/ssd/a%00b");
}

TEST(TableFolderTest, LongNamesAreFoldersInEachOther) {
  EXPECT_EQ(FolderOfName("/ssd", std::string(200, 'x')), "/ssd/" + std::string(200, 'x'));
  EXPECT_EQ(FolderOfName("/ssd", std::string(201, 'x')), "/ssd/" + std::string(200, 'x') + "%/x");
  EXPECT_EQ(
      FolderOfName("/ssd", std::string(450, 'x')),
      "/ssd/" + std::string(200, 'x') + "%/" + std::string(200, 'x') + "%/" + std::string(50, 'x'));
}

// Of what could be mistaken, at lengths around the limit: no folder of one name is another's, or
// contains it.
TEST(TableFolderTest, NoTwoNamesShareAFolder) {
  std::mt19937 random(7);
  const std::string letters("a/%.2F\0x", 8);
  std::set<std::string> names{"data", "fe_cold_store", "a", "a/b", "a%2Fb", "a%", ".", ".."};
  for (int i = 0; i < 20000; ++i) {
    std::string name(i % 2 == 0 ? 198 : 1, 'a');
    for (size_t more = random() % 5; more > 0; --more) name += letters[random() % letters.size()];
    names.insert(name);
  }
  std::map<std::string, std::string> name_of;
  for (const std::string& name : names) {
    const std::string folder = FolderOfName("/ssd", name);
    EXPECT_TRUE(name_of.emplace(folder, name).second) << name << " and " << name_of[folder];
    EXPECT_EQ(fs::path(folder).lexically_normal(), folder);
  }
  for (const auto& [folder, name] : name_of) {
    for (fs::path above = fs::path(folder).parent_path(); above != "/ssd";
         above = above.parent_path()) {
      EXPECT_EQ(name_of.count(above), 0u) << name << " is inside " << name_of[above];
      EXPECT_LE(above.filename().string().size(), 255u);
    }
  }
  EXPECT_GT(names.size(), 1000u);
}

using FolderPtr = std::unique_ptr<TableFolder>;

class TableFolderFilesTest : public testing::Test {
 protected:
  FolderPtr Made(const std::string& name) {
    FolderPtr folder;
    EXPECT_TRUE(IsOk(TableFolder::Make(Root(), name, &folder)));
    return folder;
  }
  std::string Root() const { return temporary_.path() + "/made/too"; }
  std::string NameOf(const FolderPtr& folder) const {
    return fs::path(folder->path()).lexically_relative(Root()).string();
  }
  void Write(const std::string& name) const {
    fs::create_directories(fs::path(Root() + "/" + name).parent_path());
    std::ofstream(Root() + "/" + name) << "a row";
  }
  bool Exists(const std::string& name) const { return fs::exists(Root() + "/" + name); }

 private:
  const TemporaryFolder temporary_;
};

TEST_F(TableFolderFilesTest, TablesOfOneNameAreNumbered) {
  FolderPtr first = Made("a/b"), second = Made("a/b");
  const FolderPtr third = Made("a/b"), other = Made("a");
  EXPECT_EQ(NameOf(first), "a%2Fb");
  EXPECT_EQ(NameOf(second), "a%2Fb~2");
  EXPECT_EQ(NameOf(third), "a%2Fb~3");
  EXPECT_EQ(NameOf(other), "a");
  second.reset();
  EXPECT_EQ(NameOf(Made("a/b")), "a%2Fb~2");
  first.reset();
  EXPECT_EQ(NameOf(Made("a/b")), "a%2Fb");
  EXPECT_EQ(NameOf(Made("a/b~3")), "a%2Fb%7E3");
}

TEST_F(TableFolderFilesTest, FilesLastAsLongAsTheTable) {
  FolderPtr folder = Made("a");
  Write("a/0/data/rows");
  Write("a/1/data/rows");
  folder.reset();
  EXPECT_TRUE(Exists("a/fe_table"));
  EXPECT_FALSE(Exists("a/0"));
  EXPECT_FALSE(Exists("a/1"));
}

TEST_F(TableFolderFilesTest, WhatAKilledProcessLeftIsRemoved) {
  Write("a/fe_table");
  Write("a/7/data/rows");
  Write("a/7/fe_cold_store");
  Write("b/fe_table");
  Write("b/0/data/rows");
  const FolderPtr folder = Made("a");
  EXPECT_FALSE(Exists("a/7"));
  EXPECT_TRUE(Exists("b/0/data/rows"));
}

TEST_F(TableFolderFilesTest, OtherFilesAreLeftAlone) {
  Write("a/thesis.txt");
  FolderPtr folder;
  EXPECT_TRUE(Fails(TableFolder::Make(Root(), "a", &folder), StatusCode::kFailedPrecondition,
                    {(Root() + "/a").c_str(), "other files, such as thesis.txt"}));
  EXPECT_EQ(folder, nullptr);
  EXPECT_TRUE(Exists("a/thesis.txt"));
}

TEST_F(TableFolderFilesTest, AnotherProcessHasTheFolder) {
  Write("a/fe_table");
  Write("a/0/data/rows");
  FolderPtr folder;
  {
    FolderLock others;  // a lock on a file is a process's no more than a lock of its own
    ASSERT_TRUE(IsOk(others.Take(Root() + "/a", "fe_table")));
    EXPECT_TRUE(Fails(TableFolder::Make(Root(), "a", &folder), StatusCode::kFailedPrecondition,
                      {(Root() + "/a").c_str(), "in use, by this process or another one"}));
    EXPECT_TRUE(Exists("a/0/data/rows"));
  }
  EXPECT_EQ(NameOf(Made("a")), "a");
}

TEST_F(TableFolderFilesTest, AFileInTheWay) {
  Write("a");
  FolderPtr folder;
  EXPECT_TRUE(Fails(TableFolder::Make(Root(), "a", &folder), StatusCode::kFailedPrecondition,
                    {(Root() + "/a").c_str(), "Not a directory"}));
}

TEST_F(TableFolderFilesTest, ThreadsAreGivenFoldersOfTheirOwn) {
  constexpr size_t kThreads = 8;
  std::vector<FolderPtr> folders(kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([this, &folders, i] {
      for (int round = 0; round < 1000; ++round) {
        folders[i].reset();
        folders[i] = Made("a");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> paths;
  for (const FolderPtr& folder : folders) paths.insert(folder->path());
  EXPECT_EQ(paths.size(), folders.size());
}

}  // namespace
}  // namespace fused_embedding
