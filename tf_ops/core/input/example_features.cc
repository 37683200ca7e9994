#include "tf_ops/core/input/example_features.h"

namespace fused_embedding {

Status FeatureNames::Set(Span<const ExampleFeature> features) {
  int bits = 4;
  while ((int64_t{1} << bits) < 4 * features.size) ++bits;
  slots_.assign(size_t{1} << bits, Slot());
  mask_ = slots_.size() - 1;
  shift_ = 64 - bits;
  for (int64_t f = 0; f < features.size; ++f) {
    const std::string_view name = features[f].name;
    const char* end = name.data() + name.size();
    if (Find(name, end) >= 0) {
      return InvalidArgument("feature \"", name, "\" is wanted twice; name each feature once");
    }
    const uint64_t word = WordOf(name, end);
    uint64_t i = HashOf(word, name.size()) >> shift_;
    while (slots_[i].feature >= 0) i = (i + 1) & mask_;
    slots_[i] = {word, name, static_cast<int>(f)};
  }
  return Status();
}

}  // namespace fused_embedding
