// Tables, slots and gradients of the steps on arrays, and the step by its definition.

#ifndef FUSED_EMBEDDING_TESTS_CPP_SPARSE_APPLY_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_SPARSE_APPLY_TESTING_H_

#include <map>
#include <string>
#include <vector>

#include "tests/cpp/core_testing.h"
#include "tf_ops/core/optimizer/rules.h"
#include "tf_ops/core/optimizer/sparse_apply.h"

namespace fused_embedding {

using Numbers = std::vector<double>;

inline const std::map<std::string, Numbers> kHyperparameters = {
    {"sgd", {0.5}},
    {"momentum", {0.5, 0.9, 1}},
    {"adagrad", {0.5, 0.01, 0.1}},
    {"rmsprop", {0.5, 0.9, 0.3, 1e-3}},
    {"centered_rmsprop", {0.5, 0.9, 0.3, 1}},  // 1: keeps away from a variance of 0
    {"adam", {0.5, 0.9, 0.99, 1e-3, 0.9, 0.99}},
    {"adamw", {0.5, 0.9, 0.99, 1e-3, 0.9, 0.99, 0.01}},
    {"adam_async", {0.5, 0.9, 0.99, 1e-3, 0.9, 0.99, 0}},
    {"ftrl", {0.5, -0.5, 0.01, 0.1, 0.02, 0.1}},
    {"keras_momentum", {0.5, 0.9, 1}},
    {"keras_adagrad", {0.5, 0.01, 0.1}},
    {"keras_rmsprop", {0.5, 0.9, 1e-3}},
    {"keras_centered_rmsprop", {0.5, 0.9, 1}},
};

inline RuleInfo Rule(const std::string& name) {
  RuleInfo rule;
  EXPECT_TRUE(IsOk(FindRule(name, &rule)));
  return rule;
}

template <typename T>
Array<T> RandomArray(int64_t size, double low, Random* random) {
  Array<T> array(size);
  for (T& value : array.span()) {
    value = Rounded<T>(std::uniform_real_distribution<double>(low, 1)(*random));
  }
  return array;
}

// A table, its slots and a gradient, in memory of exactly their sizes.
template <typename T>
struct Table {
  Table(int64_t rows, int64_t row_size, int64_t num_slots, const std::vector<int64_t>& row_indices,
        Random* random)
      : num_rows(rows),
        dim(row_size),
        values(RandomArray<T>(rows * row_size, -1, random)),
        indices(Array<int64_t>::Of(row_indices)),
        grads(RandomArray<T>(indices.size() * row_size, -1, random)) {
    for (int64_t k = 0; k < num_slots; ++k) {
      slots.push_back(RandomArray<T>(rows * row_size, 0.5, random));
    }
  }

  SparseUpdate Update() {
    SparseUpdate update;
    update.type = kValueTypeOf<T>;
    update.num_rows = num_rows;
    update.dim = dim;
    update.values = reinterpret_cast<char*>(values.data());
    for (size_t k = 0; k < slots.size(); ++k) {
      update.slots[k] = reinterpret_cast<char*>(slots[k].data());
    }
    update.indices = indices.view();
    update.grads = reinterpret_cast<const char*>(grads.data());
    return update;
  }

  std::string bytes() const {
    std::string all = values.bytes();
    for (const Array<T>& slot : slots) all += slot.bytes();
    return all;
  }

  int64_t num_rows, dim;
  Array<T> values;
  std::vector<Array<T>> slots;
  Array<int64_t> indices;
  Array<T> grads;
};

// The rule on rows in double, each once, by the sum of its gradients as T holds it.
template <typename RuleOfDouble, typename T>
void ApplyNaively(const Numbers& hyperparameters, const Table<T>& table, Array<double>* values,
                  std::vector<Array<double>>* slots) {
  std::map<int64_t, std::vector<double>> sums;
  for (int64_t i = 0; i < table.indices.size(); ++i) {
    auto& sum = sums[table.indices[i]];
    sum.resize(static_cast<size_t>(table.dim));
    for (int64_t d = 0; d < table.dim; ++d) {
      sum[static_cast<size_t>(d)] += static_cast<double>(Load(table.grads[i * table.dim + d]));
    }
  }
  const RuleOfDouble rule(hyperparameters.data());
  for (const auto& [row, sum] : sums) {
    Array<double> grad(table.dim);
    for (int64_t d = 0; d < table.dim; ++d) {
      grad[d] = static_cast<double>(Load(Rounded<T>(sum[static_cast<size_t>(d)])));
    }
    double* value = values->data() + row * table.dim;
    const auto slot = [&, row = row](size_t k) { return (*slots)[k].data() + row * table.dim; };
    if constexpr (RuleOfDouble::kSlots.size() == 0) {
      rule.Update(value, grad.data(), table.dim);
    } else if constexpr (RuleOfDouble::kSlots.size() == 1) {
      rule.Update(value, grad.data(), table.dim, slot(0));
    } else if constexpr (RuleOfDouble::kSlots.size() == 2) {
      rule.Update(value, grad.data(), table.dim, slot(0), slot(1));
    } else {
      rule.Update(value, grad.data(), table.dim, slot(0), slot(1), slot(2));
    }
  }
}

template <typename T>
void ExpectClose(const Array<T>& got, const Array<double>& want) {
  for (int64_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(IsClose(got[i], want[i], 16)) << "value " << i;
  }
}

inline std::vector<int64_t> RandomIndices(int64_t n, int64_t num_rows, Random* random) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < n; ++i) indices.push_back(RandomInt(random, 0, num_rows - 1));
  return indices;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_SPARSE_APPLY_TESTING_H_
