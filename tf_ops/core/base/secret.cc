#include "tf_ops/core/base/secret.h"

#include <cstdio>
#include <ctime>

#include "tf_ops/core/base/hash.h"

namespace fused_embedding {

// Not std::random_device, getrandom(2) or a stream: they need a newer C library than TensorFlow.
uint64_t Secret() {
  uint64_t secret = 0;
  if (std::FILE* file = std::fopen("/dev/urandom", "rb")) {
    std::setbuf(file, nullptr);  // eight bytes, not a buffer full of them
    if (std::fread(&secret, sizeof(secret), 1, file) != 1) secret = 0;
    std::fclose(file);
  }
  // Where there is no such file: when, and where in memory.
  return Mix64(secret ^ static_cast<uint64_t>(std::clock())) ^ reinterpret_cast<uintptr_t>(&secret);
}

}  // namespace fused_embedding
