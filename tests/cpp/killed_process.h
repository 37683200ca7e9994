// A test of this program that runs in a process of its own, until it is killed.

#ifndef FUSED_EMBEDDING_TESTS_CPP_KILLED_PROCESS_H_
#define FUSED_EMBEDDING_TESTS_CPP_KILLED_PROCESS_H_

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string>

#include "tests/cpp/core_testing.h"

namespace fused_embedding {

// What such a test writes to its standard output, by Sign(), once it is as far as its parent waits
// for.
constexpr char kSign = '#';
constexpr char kFolderVariable[] = "FE_FOLDER_TO_KILL_IN";

inline void Sign() { EXPECT_EQ(write(STDOUT_FILENO, &kSign, 1), 1); }

// What the process was given; null in a test that was run by hand.
inline const char* FolderToKillIn() { return std::getenv(kFolderVariable); }

// How often a test kills: a few times, or what FE_KILLS says, for a test of hours.
inline int NumKills() {
  const char* given = std::getenv("FE_KILLS");
  return given == nullptr ? 10 : std::stoi(given);
}

// Not a fork: threads do not come along with one.
class KilledProcess {
 public:
  // Starts the disabled test of this name in `folder`.
  KilledProcess(const std::string& test, const std::string& folder) {
    setenv(kFolderVariable, folder.c_str(), 1);
    int output[2];
    EXPECT_EQ(pipe2(output, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    std::string program = "core_tests", tests = "--gtest_filter=" + test,
                disabled = "--gtest_also_run_disabled_tests", brief = "--gtest_brief=1";
    char* const arguments[] = {program.data(), tests.data(), disabled.data(), brief.data(),
                               nullptr};
    EXPECT_EQ(posix_spawn(&id_, "/proc/self/exe", &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(output[1]);
    output_ = output[0];
  }
  ~KilledProcess() {
    if (id_ > 0) Kill();
    close(output_);
  }
  KilledProcess(const KilledProcess&) = delete;
  KilledProcess& operator=(const KilledProcess&) = delete;

  pid_t id() const { return id_; }

  // Until it has written so many signs in all.
  void WaitForSigns(int64_t num_signs) {
    char byte = 0;
    while (CountSigns() < num_signs && read(output_, &byte, 1) == 1) text_ += byte;
    EXPECT_EQ(CountSigns(), num_signs) << text_;
  }

  void Kill() {
    EXPECT_EQ(kill(id_, SIGKILL), 0);
    int status = 0;
    waitpid(id_, &status, 0);
    id_ = 0;
    char byte = 0;
    while (!WIFSIGNALED(status) && read(output_, &byte, 1) == 1) text_ += byte;
    EXPECT_TRUE(WIFSIGNALED(status)) << "it ended by itself: " << text_;
  }

 private:
  int64_t CountSigns() const { return std::count(text_.begin(), text_.end(), kSign); }

  pid_t id_ = 0;
  int output_ = -1;
  std::string text_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_KILLED_PROCESS_H_
