#include "tf_ops/core/optimizer/array_rows.cu.h"

namespace fused_embedding {

template <typename T>
Status UpdateArrayRows(const GpuExec& exec, const RuleInfo& rule,
                       Span<const double> hyperparameters,
                       const std::vector<ArrayRows<T>>& tables) {
  return UpdateRows(exec, rule, hyperparameters, tables);
}

#define FE_INSTANTIATE(T)                                                              \
  template Status UpdateArrayRows(const GpuExec&, const RuleInfo&, Span<const double>, \
                                  const std::vector<ArrayRows<T>>&);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
