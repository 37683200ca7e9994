#include "tf_ops/core/base/threads.h"

#include <new>
#include <system_error>
#include <utility>

namespace fused_embedding {

Status CannotStartThread(const std::string& purpose, const std::exception& reason) {
  return ResourceExhausted("cannot start a thread ", purpose, ": ", reason.what(),
                           "; raise the limit of threads or of memory (ulimit -u and -v, or the "
                           "pids and memory limits of the container), or run fewer processes");
}

Status StartThread(const std::string& purpose, std::function<void()> run, std::thread* thread) {
  try {
    *thread = std::thread(std::move(run));
    return Status();
  } catch (const std::system_error& error) {
    return CannotStartThread(purpose, error);
  } catch (const std::bad_alloc& error) {
    return CannotStartThread(purpose, error);
  }
}

}  // namespace fused_embedding
