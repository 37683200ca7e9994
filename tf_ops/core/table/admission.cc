#include "tf_ops/core/table/admission.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace fused_embedding {
namespace {

constexpr int64_t kMaxHashes = 16;
constexpr int64_t kMaxBloomFrequency = 65535;

// How many times the counters of an unblocked filter a blocked one needs for the same 2^-k, by k.
// Computed: keys of a line are Poisson distributed, and a key that is not in a line of i keys finds
// its counters raised with E[(D / counters)^k], D the distinct ones among i k random counters.
constexpr double kBlockFactors8[kMaxHashes] = {1.0,  1.02, 1.04, 1.09, 1.15, 1.23, 1.33, 1.45,
                                               1.59, 1.77, 1.98, 2.23, 2.54, 2.91, 3.37, 3.92};
constexpr double kBlockFactors16[kMaxHashes] = {1.0,  1.03, 1.09, 1.18, 1.31, 1.48, 1.7,  2.0,
                                                2.38, 2.89, 3.56, 4.45, 5.68, 7.37, 9.75, 13.16};

// Calls body(counter) with the place of each counter of a key in its line. Places may repeat.
template <typename Body>
void ForEachPlace(uint64_t scrambled, int64_t num_hashes, uint64_t num_places, const Body& body) {
  constexpr int kPlaceBits = 6;
  constexpr int64_t kPlacesPerWord = 64 / kPlaceBits;
  uint64_t bits = 0;
  for (int64_t i = 0; i < num_hashes; ++i) {
    if (i % kPlacesPerWord == 0) bits = Mix64(scrambled + static_cast<uint64_t>(i) + 1);
    body(bits % num_places);
    bits >>= kPlaceBits;
  }
}

Status CheckBloom(int64_t num_counters, int64_t num_hashes, int64_t min_frequency) {
  if (num_counters < 1) {
    return InvalidArgument("a Bloom filter needs at least one counter, got ", num_counters);
  }
  if (num_hashes < 1 || num_hashes > kMaxHashes) {
    return InvalidArgument("a Bloom filter has 1 to ", kMaxHashes, " hashes, got ", num_hashes);
  }
  if (min_frequency > kMaxBloomFrequency) {
    return InvalidArgument("a Bloom filter counts up to ", kMaxBloomFrequency,
                           ", but min_frequency is ", min_frequency, "; use a counter filter");
  }
  return Status();
}

}  // namespace

const char* AdmissionKindName(AdmissionKind kind) {
  switch (kind) {
    case AdmissionKind::kAll:
      return "all";
    case AdmissionKind::kCounter:
      return "counter";
    case AdmissionKind::kBloom:
      return "bloom";
  }
  return "unknown";
}

Status CheckAdmission(const AdmissionConfig& config) {
  if (config.min_frequency < 0) {
    return InvalidArgument("min_frequency must be >= 0, got ", config.min_frequency);
  }
  switch (config.kind) {
    case AdmissionKind::kAll:
      return Status();
    case AdmissionKind::kCounter:
      if (config.min_frequency <= int64_t{std::numeric_limits<uint32_t>::max()}) return Status();
      return InvalidArgument("keys are counted up to ", std::numeric_limits<uint32_t>::max(),
                             ", but min_frequency is ", config.min_frequency);
    case AdmissionKind::kBloom:
      return CheckBloom(config.bloom_counters, config.bloom_hashes, config.min_frequency);
  }
  return Status();
}

Status CountingBloomFilter::Create(int64_t num_counters, int64_t num_hashes, int64_t min_frequency,
                                   CountingBloomFilter* filter) {
  FE_RETURN_IF_ERROR(CheckBloom(num_counters, num_hashes, min_frequency));
  CountingBloomFilter made;
  made.num_hashes_ = num_hashes;
  made.counter_bytes_ = CounterBytes(min_frequency);
  const auto& factors = made.counter_bytes_ == 1 ? kBlockFactors8 : kBlockFactors16;
  const double bytes = static_cast<double>(num_counters) * factors[num_hashes - 1] *
                       static_cast<double>(made.counter_bytes_);
  const double num_lines = std::floor(bytes / kLineBytes) + 1;
  if (num_lines > 0x1p56) {
    return ResourceExhausted("cannot allocate ", bytes, " bytes for a Bloom filter of ",
                             num_counters, " counters; count fewer keys, or accept more errors");
  }
  made.num_lines_ = static_cast<int64_t>(num_lines);
  const int64_t all = made.num_lines_ * kLineBytes;
  FE_RETURN_IF_ERROR(PageMemory::Allocate(all, 0, all, &made.memory_));
  *filter = std::move(made);
  return Status();
}

template <typename Counter>
int64_t CountingBloomFilter::EstimateOf(uint64_t hash) const {
  constexpr uint64_t kPlaces = kLineBytes / sizeof(Counter);
  const uint64_t scrambled = Scramble(hash);
  Counter counters[kPlaces];
  std::memcpy(counters, LineOf(scrambled), sizeof(counters));
  Counter smallest = std::numeric_limits<Counter>::max();
  ForEachPlace(scrambled, num_hashes_, kPlaces,
               [&](uint64_t place) { smallest = std::min(smallest, counters[place]); });
  return smallest;
}

template <typename Counter>
int64_t CountingBloomFilter::AddTo(uint64_t hash, int64_t count) {
  constexpr uint64_t kPlaces = kLineBytes / sizeof(Counter);
  constexpr int64_t kMax = std::numeric_limits<Counter>::max();
  const uint64_t scrambled = Scramble(hash);
  char* line = LineOf(scrambled);
  Counter counters[kPlaces];
  std::memcpy(counters, line, sizeof(counters));
  int64_t smallest = kMax;
  ForEachPlace(scrambled, num_hashes_, kPlaces,
               [&](uint64_t place) { smallest = std::min(smallest, int64_t{counters[place]}); });
  const int64_t raised = count < kMax - smallest ? smallest + std::max(count, int64_t{0}) : kMax;
  ForEachPlace(scrambled, num_hashes_, kPlaces, [&](uint64_t place) {
    counters[place] = std::max(counters[place], static_cast<Counter>(raised));
  });
  std::memcpy(line, counters, sizeof(counters));
  changes_.Change((line - memory_.data()) / kLineBytes);
  return raised;
}

int64_t CountingBloomFilter::Add(uint64_t hash, int64_t count) {
  return counter_bytes_ == 1 ? AddTo<uint8_t>(hash, count) : AddTo<uint16_t>(hash, count);
}

int64_t CountingBloomFilter::Estimate(uint64_t hash) const {
  return counter_bytes_ == 1 ? EstimateOf<uint8_t>(hash) : EstimateOf<uint16_t>(hash);
}

Status CountingBloomFilter::Restore(Span<const char> bytes) {
  if (bytes.size != this->bytes().size) {
    return InvalidArgument("a Bloom filter of ", this->bytes().size,
                           " bytes cannot take counters of ", bytes.size,
                           " bytes; restore into a filter of the same size and shards");
  }
  if (!bytes.empty()) std::memcpy(memory_.data(), bytes.data, static_cast<size_t>(bytes.size));
  return Status();
}

template <typename Counter>
void CountingBloomFilter::MergeAs(char* own, Span<const char> counters) {
  constexpr int64_t kBytes = sizeof(Counter);
  for (int64_t i = 0; i + kBytes <= counters.size; i += kBytes) {
    Counter a, b;
    std::memcpy(&a, own + i, sizeof(a));
    std::memcpy(&b, counters.data + i, sizeof(b));
    a = std::max(a, b);
    std::memcpy(own + i, &a, sizeof(a));
  }
}

Status CountingBloomFilter::Merge(int64_t begin, Span<const char> counters) {
  if (begin < 0 || begin % counter_bytes_ != 0 || begin > bytes().size - counters.size) {
    return InvalidArgument("a Bloom filter of ", bytes().size, " bytes cannot take ", counters.size,
                           " bytes of counters at byte ", begin,
                           "; restore into a filter of the same size and shards");
  }
  char* own = memory_.data() + begin;
  counter_bytes_ == 1 ? MergeAs<uint8_t>(own, counters) : MergeAs<uint16_t>(own, counters);
  return Status();
}

void CountingBloomFilter::Clear() {
  changes_.Stop();
  if (num_lines_ > 0) std::memset(memory_.data(), 0, static_cast<size_t>(bytes().size));
}

}  // namespace fused_embedding
