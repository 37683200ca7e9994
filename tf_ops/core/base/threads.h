#ifndef FUSED_EMBEDDING_CORE_BASE_THREADS_H_
#define FUSED_EMBEDDING_CORE_BASE_THREADS_H_

#include <exception>
#include <functional>
#include <string>
#include <thread>

#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// Starts a thread that calls `run`, for example `purpose` = "to read cold store /ssd/users".
// ResourceExhausted if the system has none left; `*thread` is unchanged then. All threads of core
// are started here: the exception that std::thread throws would end the process in a TensorFlow
// kernel.
Status StartThread(const std::string& purpose, std::function<void()> run, std::thread* thread);

// The error of a thread that could not be started.
Status CannotStartThread(const std::string& purpose, const std::exception& reason);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_THREADS_H_
