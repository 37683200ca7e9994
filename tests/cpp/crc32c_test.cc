#include "tf_ops/core/base/crc32c.h"

#include "tests/cpp/core_testing.h"

namespace fused_embedding {
namespace {

TEST(Crc32c, IsThatOfRfc3720) {
  std::string ascending, descending;
  for (int i = 0; i < 32; ++i) {
    ascending += static_cast<char>(i);
    descending += static_cast<char>(31 - i);
  }
  const std::pair<std::string, uint32_t> cases[] = {
      {"", 0u},
      {"123456789", 0xe3069283u},
      {std::string(32, '\0'), 0x8a9136aau},
      {std::string(32, '\xff'), 0x62a8ab43u},
      {ascending, 0x46dd794eu},
      {descending, 0x113fdb5cu},
  };
  for (const auto& [bytes, want] : cases) {
    EXPECT_EQ(Crc32c(AsSpan(bytes)), want);
    EXPECT_EQ(PortableCrc32c(AsSpan(bytes)), want);
  }
}

TEST(Crc32c, ContinuesAnywhereInEitherWay) {
  Random random(1);
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes += static_cast<char>(random());
  const uint32_t want = Crc32c(AsSpan(bytes));
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    const std::string head = bytes.substr(0, cut), tail = bytes.substr(cut);
    EXPECT_EQ(Crc32c(AsSpan(tail), Crc32c(AsSpan(head))), want) << cut;
    EXPECT_EQ(PortableCrc32c(AsSpan(tail), PortableCrc32c(AsSpan(head))), want) << cut;
  }
}

}  // namespace
}  // namespace fused_embedding
