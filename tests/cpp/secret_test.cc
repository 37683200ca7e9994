#include "tf_ops/core/base/secret.h"

#include <gtest/gtest.h>

#include <set>

namespace fused_embedding {
namespace {

TEST(SecretTest, IsAnotherOneAtEachCall) {
  std::set<uint64_t> secrets;
  for (int i = 0; i < 100; ++i) secrets.insert(Secret());
  EXPECT_EQ(secrets.size(), 100u);
}

}  // namespace
}  // namespace fused_embedding
