// Arrays of the C functions as spans of core. What only pointers and sizes tell is checked here;
// core checks what they hold.

#ifndef FUSED_EMBEDDING_C_API_ARRAYS_H_
#define FUSED_EMBEDDING_C_API_ARRAYS_H_

#include <cstdint>

#include "tf_ops/c_api/core_api.h"
#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/rows/combiner.h"
#include "tf_ops/core/lookup/rows/pairs.h"

namespace fused_embedding {

template <typename T>
Status ToSpan(const char* name, const FeArray& array, Span<T>* span) {
  if (array.size < 0 || (array.data == nullptr && array.size > 0)) {
    return InvalidArgument(name, " must have memory for its elements, got a ",
                           array.data ? "pointer" : "null pointer", " and the size ", array.size);
  }
  if (reinterpret_cast<uintptr_t>(array.data) % alignof(T) != 0) {
    return InvalidArgument(name, " must begin at a multiple of ", alignof(T), " bytes");
  }
  *span = {static_cast<T*>(array.data), array.size};
  return Status();
}

// Of `rows` times `columns` elements.
template <typename T>
Status ToSpan(const char* name, const FeArray& array, int64_t rows, int64_t columns,
              Span<T>* span) {
  FE_RETURN_IF_ERROR(ToSpan(name, array, span));
  int64_t size = 0;
  const bool fits = rows >= 0 && columns >= 0 && !__builtin_mul_overflow(rows, columns, &size);
  if (fits && size == array.size) return Status();
  return InvalidArgument(name, " must have ", rows, " x ", columns, " elements, got ", array.size);
}

// The same, or of none.
template <typename T>
Status ToOptionalSpan(const char* name, const FeArray& array, int64_t size, Span<T>* span) {
  return array.size == 0 ? Status() : ToSpan(name, array, size, 1, span);
}

inline Status ToRowIds(const FeArray& array, RowIds* row_ids) {
  Span<const int64_t> span;
  FE_RETURN_IF_ERROR(ToSpan("row_ids", array, &span));
  *row_ids = {span.data, span.size, 1, "row_ids"};
  return Status();
}

// How many elements an output has.
inline Status ToSize(const char* name, int64_t rows, int64_t columns, int64_t* size) {
  if (rows >= 0 && !__builtin_mul_overflow(rows, columns, size)) return Status();
  return InvalidArgument(name, " cannot have ", rows, " x ", columns, " elements");
}

template <typename T>
Span<T> OutputSpan(const FeArray& output, int64_t size) {
  return {static_cast<T*>(output.data), size};
}

// Calls body(T{}) for the value type of this number.
template <typename Body>
Status VisitType(int32_t dtype, const Body& body) {
  switch (dtype) {
    case 0:
      return body(float{});
    case 1:
      return body(double{});
    case 2:
      return body(Half{});
    case 3:
      return body(BFloat16{});
    default:
      return InvalidArgument("dtype must be 0 to 3, got ", dtype);
  }
}

inline Status ToCombiner(int32_t number, Combiner* combiner) {
  if (number < 0 || number > static_cast<int32_t>(Combiner::kSqrtn)) {
    return InvalidArgument("combiner must be 0 to 2, got ", number);
  }
  *combiner = static_cast<Combiner>(number);
  return Status();
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_C_API_ARRAYS_H_
