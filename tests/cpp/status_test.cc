#include "tf_ops/core/base/status.h"

#include "tests/cpp/core_testing.h"
#include "tf_ops/core/lookup/rows/combiner.h"

namespace fused_embedding {
namespace {

TEST(Status, IsOkByDefault) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().code(), StatusCode::kOk);
  EXPECT_EQ(Status().message(), "");
}

TEST(Status, SaysWhatWasGiven) {
  const Status status = InvalidArgument("row ", 7, " is outside [0, ", int64_t{5}, ")");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "row 7 is outside [0, 5)");
  EXPECT_EQ(ResourceExhausted("x").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(MakeStatus(StatusCode::kUnimplemented, 1.5, 'c').message(), "1.5c");
}

Status SecondFails(int* num_calls) {
  FE_RETURN_IF_ERROR(Status());
  ++*num_calls;
  FE_RETURN_IF_ERROR(InvalidArgument("second"));
  ++*num_calls;
  return Status();
}

TEST(Status, ReturnIfErrorReturnsTheFirstError) {
  int num_calls = 0;
  EXPECT_EQ(SecondFails(&num_calls).message(), "second");
  EXPECT_EQ(num_calls, 1);
}

TEST(ParseCombiner, KnowsItsNames) {
  Combiner combiner;
  ASSERT_TRUE(IsOk(ParseCombiner("sum", &combiner)));
  EXPECT_EQ(combiner, Combiner::kSum);
  ASSERT_TRUE(IsOk(ParseCombiner("mean", &combiner)));
  EXPECT_EQ(combiner, Combiner::kMean);
  ASSERT_TRUE(IsOk(ParseCombiner("sqrtn", &combiner)));
  EXPECT_EQ(combiner, Combiner::kSqrtn);
  EXPECT_TRUE(IsInvalid(ParseCombiner("Mean", &combiner), {"sum, mean or sqrtn", "Mean"}));
}

}  // namespace
}  // namespace fused_embedding
