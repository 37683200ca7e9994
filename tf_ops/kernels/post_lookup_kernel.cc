#include "tf_ops/kernels/post_lookup_kernel.h"

#include <algorithm>

namespace fused_embedding {
namespace {

template <typename T>
class CpuPostLookup {
 public:
  explicit CpuPostLookup(tensorflow::OpKernelContext* ctx) : ctx_(ctx), exec_(ctx) {}
  const PairsInput<T>& in() const { return in_; }

  Status LastRow(const RowIds& rows, int64_t* last) const {
    for (int64_t i = 0; i < rows.size; ++i) {
      if (rows[i] < std::max<int64_t>(*last, 0)) return RowDecreases(rows.name, i, rows[i], *last);
      *last = rows[i];
    }
    return Status();
  }

  Status Plan(const PostLookupAttrs& attrs, bool is_v2, int64_t num_rows) {
    FE_RETURN_IF_ERROR(is_v2 ? ReadPairsV2(ctx_, attrs, num_rows, &in_)
                             : ReadPairsV1(ctx_, attrs, num_rows, &in_));
    return PlanPostLookup(exec_, in_.pairs, &plan_);
  }

  Status Run(Span<CoreType<T>> combined, Span<int32_t> num_ids) {
    RunPostLookup(exec_, in_.pairs, plan_, combined, num_ids);
    return Status();
  }

 private:
  tensorflow::OpKernelContext* ctx_;
  TfExec exec_;
  PairsInput<T> in_;
  PostLookupPlan<CoreType<T>> plan_;
};

#define FE_REGISTER(T) FE_REGISTER_POST_LOOKUP(tensorflow::DEVICE_CPU, CpuPostLookup, T)
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
