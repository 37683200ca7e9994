#ifndef FUSED_EMBEDDING_CORE_BASE_SECRET_H_
#define FUSED_EMBEDDING_CORE_BASE_SECRET_H_

#include <cstdint>

namespace fused_embedding {

// Eight bytes that nobody outside of this process can know, other ones at each call.
uint64_t Secret();

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_SECRET_H_
