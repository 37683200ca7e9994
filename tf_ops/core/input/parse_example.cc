#include "tf_ops/core/input/parse_example.h"

#include "tf_ops/core/input/odd_example.h"

namespace fused_embedding {
namespace {

// The first of the examples that stock's parser hands to a thread together with this one. It
// counts the values of a padded feature from there.
int64_t FirstBesideInStock(Span<const std::string_view> examples, int64_t example) {
  constexpr int64_t kPartBytes = 50'000, kMinParts = 8, kMaxParts = 64;
  int64_t num_parts = 0, bytes = 0;
  for (const std::string_view text : examples) {
    if (bytes == 0) ++num_parts;
    bytes += static_cast<int64_t>(text.size()) + 1;
    if (bytes > kPartBytes) bytes = 0;
  }
  num_parts = std::max(std::min(kMinParts, examples.size), std::min(kMaxParts, num_parts));
  int64_t first = 0;
  for (int64_t part = 0; part < num_parts; ++part) {
    const int64_t next = examples.size * part / num_parts;
    if (next > example) break;
    first = next;
  }
  return first;
}

Status CheckFeatures(Span<const ExampleFeature> features) {
  for (const ExampleFeature& feature : features) {
    if (feature.layout != FeatureLayout::kPadded || feature.num_values > 0) continue;
    return InvalidArgument("feature \"", feature.name, "\" has the shape ", feature.shape,
                           ", of which no number of values is a multiple; use inner dimensions "
                           "of 1 or more");
  }
  return Status();
}

}  // namespace

ListsOfExample ParsedExamples::ListsOf(int64_t example) {
  ExampleList* block = lists_.data() + example / block_ * features_.size * block_;
  return {block + example % block_, block_};
}

ParsedExamples::ListsOfFeature ParsedExamples::ListsOf(int64_t block, int64_t feature) const {
  const int64_t index = block * features_.size + feature;
  const int64_t first = block * block_;
  return {lists_.span().data + index * block_, std::min(block_, num_examples() - first), first,
          counts_.span()[index].num_values};
}

Status ParsedExamples::Plan(const CpuExec& exec, Span<const ExampleFeature> features,
                            const ExampleBatch& batch) {
  features_ = features;
  batch_ = batch;
  block_ = std::clamp<int64_t>(batch.examples.size, 1, kMaxBlock);
  FE_RETURN_IF_ERROR(CheckFeatures(features));
  FE_RETURN_IF_ERROR(names_.Set(features));
  FE_RETURN_IF_ERROR(lists_.Allocate(num_blocks() * features.size * block_));
  FE_RETURN_IF_ERROR(counts_.Allocate(num_blocks() * features.size));
  const PlainExample plain(features, names_, batch.is_single);
  std::atomic<int64_t> first_error{num_examples()};
  exec.ParallelFor(num_blocks(), BlockNs(), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      if (block * block_ > first_error.load(std::memory_order_relaxed)) return;
      const int64_t error = PlanBlock(plain, block);
      int64_t before = first_error.load(std::memory_order_relaxed);
      while (error < before && !first_error.compare_exchange_weak(before, error)) {
      }
    }
  });
  if (first_error.load() < num_examples()) return ErrorOf(first_error.load());
  CountAll();
  return Status();
}

int64_t ParsedExamples::PlanBlock(const PlainExample& plain, int64_t block) {
  const int64_t first = block * block_;
  const int64_t end = std::min(first + block_, num_examples());
  ExampleList* lists = lists_.data() + block * features_.size * block_;
  std::fill_n(lists, features_.size * block_, ExampleList());
  for (int64_t i = first; i < end; ++i) {
    if (plain.Read(batch_.examples[i], ListsOf(i))) continue;
    const OddExample odd(features_, names_, batch_.is_single);
    if (!odd.Read(batch_.examples[i], ListsOf(i)).ok()) return i;
  }
  CountBlock(block);
  return num_examples();
}

void ParsedExamples::CountBlock(int64_t block) {
  for (int64_t f = 0; f < features_.size; ++f) {
    const int64_t index = block * features_.size + f;
    const ExampleList* lists = lists_.data() + index * block_;
    uint32_t most = 0;
    int64_t sum = 0;
    for (int64_t i = 0; i < block_; ++i) {  // behind the last example lists are empty
      sum += lists[i].num_values;
      most = std::max<uint32_t>(most, lists[i].num_values);
    }
    counts_[index] = {sum, int64_t{most}};
  }
}

// From the counts of blocks to those of all blocks before, and to totals.
void ParsedExamples::CountAll() {
  totals_.assign(static_cast<size_t>(features_.size), Count());
  for (int64_t block = 0; block < num_blocks(); ++block) {
    for (int64_t f = 0; f < features_.size; ++f) {
      Count& count = counts_[block * features_.size + f];
      Count& total = totals_[static_cast<size_t>(f)];
      const int64_t num_before = total.num_values;
      total = {num_before + count.num_values, std::max(total.max_values, count.max_values)};
      count.num_values = num_before;
    }
  }
}

// Reads the example again, for the text of its error. The ones before were read without one.
Status ParsedExamples::ErrorOf(int64_t example) {
  std::vector<int64_t> num_before(static_cast<size_t>(features_.size));
  for (int64_t i = FirstBesideInStock(batch_.examples, example); i < example; ++i) {
    const ListsOfExample lists = ListsOf(i);
    for (int64_t f = 0; f < features_.size; ++f) {
      num_before[static_cast<size_t>(f)] += lists[f].num_values;
    }
  }
  OddExample odd(features_, names_, batch_.is_single);
  odd.SetPlace(batch_.names.empty() ? "<unknown>" : batch_.names[example], example);
  odd.SetNumBefore({num_before.data(), features_.size});
  return odd.Read(batch_.examples[example], ListsOf(example));
}

void ParsedExamples::WriteIndices(const ListsOfFeature& lists, int64_t* indices) const {
  if (batch_.is_single) {
    for (int64_t i = 0; i < lists.begin()->num_values; ++i) indices[i] = i;
    return;
  }
  indices += 2 * lists.first_value;
  int64_t example = lists.first_example;
  for (const ExampleList& list : lists) {
    for (int64_t i = 0; i < list.num_values; ++i) {
      *indices++ = example;
      *indices++ = i;
    }
    ++example;
  }
}

void ParsedExamples::WriteKeys(int64_t block, const ExampleKeys& keys) const {
  const ListsOfFeature lists = ListsOf(block, keys.feature);
  WriteKeysOfLists({lists.lists, lists.size}, features_[keys.feature].kind, keys.rule,
                   lists.first_example, keys.keys + lists.first_value,
                   keys.rows + lists.first_value);
}

}  // namespace fused_embedding
