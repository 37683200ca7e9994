// Core for a program without TensorFlow, as C functions: Python loads them by ctypes
// (benchmarks/gpu/core.py), to test and to measure. One library has a GPU, built by nvcc, another
// the emulation of tests/cuda_emulation; both have the CPU.
//
//   FeOpenGpu -> FeAllocate, FeCopy -> FePlan -> FeRun -> FeCopy
//
// Each function returns null, or the text of an error that lasts until the next call of the thread.
// Arrays are in the memory of the machine, the GPU's or the CPU's, unless it says otherwise. One
// thread may use a machine at a time.

#ifndef FUSED_EMBEDDING_C_API_CORE_API_H_
#define FUSED_EMBEDDING_C_API_CORE_API_H_

#include <cstdint>

#define FE_API extern "C" __attribute__((visibility("default")))

struct FeMachine;
struct FePlanned;

// `size` elements; null where there are none. An optional array is left empty.
struct FeArray {
  void* data;
  int64_t size;
};

// FePlan takes one of these by its name. What is written by the plan itself, not by its run, is
// said to be planned. Then come the outputs of the run, one array each.

// Bytes, to measure the bandwidth. Output: to [size] bytes.
struct FeCopied {
  FeArray from;
};

// Output: rows [n, row_bytes] bytes.
struct FeGather {
  FeArray table;  // [num_rows, row_bytes] bytes
  int64_t num_rows, row_bytes;
  FeArray ids;  // [n] int64
};

// Outputs: ids [nnz_out] int64, indices [nnz_out, 2] int64, weights [nnz_out] float32 or empty.
struct FePruneAndFill {
  FeArray ids, indices;  // [nnz] int64, [nnz, 2] int64
  FeArray weights;       // [nnz] float32, optional
  FeArray is_row_empty;  // [num_rows] bool, planned
  int64_t default_id;
  double default_weight;
  int32_t prune, prune_weights, fill;
};

// Outputs: unique_ids [num_unique] int64, counts [num_unique] int32.
struct FeUnique {
  FeArray ids;         // [n] int64
  FeArray unique_idx;  // [n] int32, valid after the run
};

// Outputs: the local ids of each shard, int64.
struct FePartition {
  FeArray ids;          // [n] int64
  FeArray shard_rows;   // [P] int64, in host memory
  FeArray permutation;  // [n, 2] int32, planned
  int32_t strategy;     // div, mod, mod_ev, hash
};

// post_lookup has the outputs combined [num_rows, dim] and num_ids [num_rows] int32;
// post_lookup_grad has rows_grad [num_unique, dim].
struct FePairs {
  FeArray rows;           // [num_unique, dim]
  FeArray unique_idx;     // [num_pairs] int32
  FeArray row_ids;        // [num_pairs] int64
  FeArray weights;        // [num_pairs], optional; float64 for float64 rows, else float32
  FeArray is_zero_row;    // [num_rows] bool, optional
  FeArray num_ids;        // [num_rows] int32, of the gradient, optional
  FeArray combined_grad;  // [num_rows, dim], of the gradient
  int64_t num_unique, num_rows, dim;
  double max_norm;   // negative: off
  int32_t dtype;     // float32, float64, float16, bfloat16
  int32_t combiner;  // sum, mean, sqrtn
};

struct FeColumn {
  FeArray ids;            // [nnz] int64, or int32
  FeArray row_ids;        // [nnz] int64
  FeArray weights;        // [nnz], optional, as those of FePairs
  FeArray table;          // [table_rows, dim]
  FeArray combined_grad;  // [num_rows, dim], of the gradient
  int64_t table_rows, dim, num_rows;
  int64_t table_number;  // of the gradient: columns of one number share a table
  int64_t default_id;
  double max_norm;
  int32_t ids_are_int32, combiner, prune, fill;
};

// group_lookup has an output for each column: combined [num_rows, dim]. group_lookup_grad has two
// for each table: unique_ids [num_unique] int64 and rows_grad [num_unique, dim].
// table_group_lookup is group_lookup in tables without a vocabulary: the plan makes one of each
// table number, and its keys are the rows of the columns' table.
struct FeGroup {
  const FeColumn* columns;  // in host memory
  int64_t num_columns, num_tables;
  int32_t dtype;
};

// The gradient and a step by it on the tables of the columns, in place, together with their slots;
// no output. Tables and slots must not overlap.
struct FeGroupApply {
  FeGroup group;
  const char* rule;         // a name of core/optimizer/rules.h
  FeArray hyperparameters;  // float64 in host memory, in the rule's order
  // In host memory: those of the first table in the rule's order, of the second, and so on. Like
  // the table each, or of a rule with a number a row: [table_rows] float64 for float64, else
  // float32.
  const FeArray* slots;
  int64_t num_slots;  // of all tables
  int32_t is_fused;   // 0, and on a CPU: the gradient is written to memory and read again
};

// One step of a rule on the rows that gradients name, in place; no output. A table and its slots
// must not overlap.
struct FeSparseApply {
  FeArray table;            // [num_rows, dim]
  FeArray slots;            // [num_slots, num_rows, dim], in the rule's order
  FeArray indices;          // [n] int64, any order, any repeats
  FeArray grads;            // [n, dim]
  FeArray hyperparameters;  // float64 in host memory, in the rule's order
  const char* rule;         // a name of core/optimizer/rules.h
  int64_t num_rows, dim;
  int32_t dtype;
};

// A table by key in the memory of a GPU: core/table/gpu/gpu_table.h.
struct FeGpuTable;
struct FeGpuTableConfig {
  int64_t dim;
  int64_t max_bytes, min_buckets;    // of 64 rows each, a power of two
  double initial_low, initial_high;  // between which first values are uniform
  int32_t dtype;
  int32_t eviction;         // none, LRU, LFU
  const char* rule;         // whose slots rows have, as table_apply asks for; or null
  FeArray hyperparameters;  // of the rule, as those of FeSparseApply
};
struct FeGpuTableSizes {
  int64_t num_buckets, memory_bytes;
};

// table_find has the output values [n, dim] bytes: the first value where a key has no row.
// table_find_or_insert has the same; its plan makes room, its run inserts, and a later plan for the
// same table makes it stale. table_erase has is_erased [n] bool.
struct FeTableKeys {
  FeGpuTable* table;
  FeArray keys;  // [n] int64, distinct
  int64_t step;  // the version of rows that are inserted or found by table_find_or_insert
};

// table_apply: one step of a rule on the rows of the keys, in place; a key without a row is left
// out. No output.
struct FeTableApply {
  FeGpuTable* table;
  FeArray keys;             // [n] int64, distinct
  FeArray grads;            // [n, dim]
  const char* rule;         // a name of core/optimizer/rules.h
  FeArray hyperparameters;  // float64 in host memory, in the rule's order
};

// Since the machine was opened. 0 on a CPU.
struct FeCounters {
  int64_t launches;     // of kernels, CUB's included, which the emulation does not launch
  int64_t waits;        // of the host for the stream
  int64_t allocations;  // from the pool, by core
};

FE_API const char* FeOpenGpu(FeMachine** machine);
FE_API const char* FeOpenCpu(int32_t num_threads, FeMachine** machine);
FE_API void FeClose(FeMachine* machine);
// 1 in a library that is built for the emulation.
FE_API int32_t FeIsEmulated();
// The emulation's order of threads and blocks from here on; nothing on a GPU.
FE_API void FeShuffleOrder(uint64_t seed);
FE_API void FeCount(const FeMachine* machine, FeCounters* counters);

FE_API const char* FeAllocate(FeMachine* machine, int64_t bytes, void** memory);
FE_API const char* FeFree(FeMachine* machine, void* memory);
// A table must be closed before its machine, and after plans of lookups in it were dropped.
FE_API const char* FeOpenGpuTable(FeMachine* machine, const FeGpuTableConfig* config,
                                  FeGpuTable** table);
FE_API void FeCloseGpuTable(FeGpuTable* table);
FE_API void FeMeasureGpuTable(const FeGpuTable* table, FeGpuTableSizes* sizes);

// Between host memory and the machine's, in either direction. Waits.
FE_API const char* FeCopy(FeMachine* machine, void* to, const void* from, int64_t bytes);

// `lookup` is copied, gather, prune_and_fill, unique, partition, post_lookup, post_lookup_grad,
// group_lookup, group_lookup_grad, table_group_lookup, group_lookup_apply, sparse_apply,
// table_find, table_find_or_insert, table_erase or table_apply. A plan must be dropped before its
// machine is closed.
FE_API const char* FePlan(FeMachine* machine, const char* lookup, const void* in,
                          FePlanned** planned);
FE_API void FeDrop(FePlanned* planned);
// Elements of each output. Returns how many outputs there are; writes at most `num_sizes`.
FE_API int64_t FeOutputSizes(const FePlanned* planned, int64_t* sizes, int64_t num_sizes);
// Outputs may be larger than they need to be. Does not wait.
FE_API const char* FeRun(const FePlanned* planned, const FeArray* outputs, int64_t num_outputs);
FE_API const char* FeWait(FeMachine* machine);

// What is measured, again and again in this order: so many inputs of one lookup, and the outputs of
// each, one after the other.
struct FeBatches {
  const char* lookup;
  const void* const* inputs;  // [num_batches]
  const FeArray* outputs;     // [num_batches, num_outputs]
  int64_t num_batches, num_outputs;
};

// Time of the stream for each run [num_samples], planned before, with `plug` set again and again
// first, so that the host is ahead of the GPU: no launch is waited for.
FE_API const char* FeTimeRuns(FeMachine* machine, const FeBatches* batches, FeArray plug,
                              int64_t num_samples, double* stream_us);
// Time of the stream, and of the host, which waits for the end, for each plan with its run.
FE_API const char* FeTimeSteps(FeMachine* machine, const FeBatches* batches, int64_t num_samples,
                               double* stream_us, double* host_us);

#endif  // FUSED_EMBEDDING_C_API_CORE_API_H_
