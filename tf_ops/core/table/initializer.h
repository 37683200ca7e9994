// The first value of a row: a pure function of (seed, key), so that it is the same whatever the
// order, the number of threads or shards, the device, or how often the program was restarted.

#ifndef FUSED_EMBEDDING_CORE_TABLE_INITIALIZER_H_
#define FUSED_EMBEDDING_CORE_TABLE_INITIALIZER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/table/row_layout.h"

namespace fused_embedding {

enum class InitializerKind {
  kConstant,         // a
  kUniform,          // [a, b), also after rounding to the table's type
  kNormal,           // mean a, standard deviation b
  kTruncatedNormal,  // the same, drawn again beyond two standard deviations
  kDebug,            // every value is the key mod 100000 (floor modulo): readable in tests
  kMatrix,  // row `key mod rows` (floor modulo) of a given matrix: DeepRec's default values
};

// InvalidArgument for a name that is not constant, uniform, normal, truncated_normal, debug,
// matrix.
Status ParseInitializerKind(const std::string& name, InitializerKind* kind);

const char* InitializerKindName(InitializerKind kind);

struct InitializerConfig {
  InitializerKind kind = InitializerKind::kConstant;
  double a = 0.0;
  double b = 0.0;
  uint64_t seed = 0;
  std::vector<char> matrix;  // kMatrix: [rows, dim] values of the table's type
};

// InvalidArgument for numbers that make no sense: not finite, b < a of kUniform, b < 0 of kNormal,
// a matrix that is not [rows, dim] with a row at least.
Status CheckInitializer(const InitializerConfig& config, const RowLayout& layout);

// InvalidArgument for numbers that make no sense: not finite, b < a of kUniform, b < 0 of kNormal,
// a matrix that is not [rows, dim] with at least one row.
Status CheckInitializer(const InitializerConfig& config, const RowLayout& layout);

// Writes the first value of row keys[i] to values[i] (each `layout.dim` values of its type).
void Initialize(const InitializerConfig& config, const RowLayout& layout, const int64_t* keys,
                char* const* values, int64_t n);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_INITIALIZER_H_
