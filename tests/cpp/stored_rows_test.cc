#include "tests/cpp/group_testing.h"
#include "tf_ops/core/lookup/group/group_lookup.h"
#include "tf_ops/core/lookup/rows/row_formats.h"

namespace fused_embedding {
namespace {

constexpr RowFormat kFormats[] = {RowFormat::kInt8, RowFormat::kInt4, RowFormat::kBFloat16};

template <typename Number>
void Append(Number number, std::vector<uint8_t>* bytes) {
  const auto* begin = reinterpret_cast<const uint8_t*>(&number);
  bytes->insert(bytes->end(), begin, begin + sizeof(number));
}

// A row of random quants: its bytes, as the layout is described, and its values.
struct StoredRow {
  StoredRow(Random* random, RowFormat format, size_t dim) {
    if (format == RowFormat::kBFloat16) {
      for (size_t d = 0; d < dim; ++d) {
        values.push_back(static_cast<double>(RandomInt(random, -128, 127)) / 64);  // exact
        Append(Rounded<BFloat16>(values.back()), &bytes);
      }
      return;
    }
    const bool is_int4 = format == RowFormat::kInt4;
    const double scale = static_cast<double>(RandomInt(random, 0, 8)) / 256;
    const double bias = static_cast<double>(RandomInt(random, -8, 8)) / 16;
    const size_t half = (dim + 1) / 2;
    bytes.assign(is_int4 ? half : dim, 0);
    for (size_t d = 0; d < dim; ++d) {
      const int64_t quant = RandomInt(random, 0, is_int4 ? 15 : 255);
      values.push_back(static_cast<double>(quant) * scale + bias);
      const bool is_high = is_int4 && d >= half;
      bytes[is_high ? d - half : d] |= static_cast<uint8_t>(is_high ? quant << 4 : quant);
    }
    for (const double number : {scale, bias}) {
      if (is_int4) {
        Append(Rounded<Half>(number), &bytes);
      } else {
        Append(static_cast<float>(number), &bytes);
      }
    }
  }

  std::vector<uint8_t> bytes;
  std::vector<double> values;
};

// A group whose tables have stored rows.
class StoredGroup : public GroupCase<float> {
 public:
  StoredGroup(int seed, RowFormat format) : GroupCase<float>(seed) {
    for (Matrix& table : tables_) {
      bytes_.emplace_back();
      for (auto& row : table) {
        const StoredRow stored(&random_, format, row.size());
        EXPECT_EQ(static_cast<int64_t>(stored.bytes.size()),
                  RowBytes(format, static_cast<int64_t>(row.size())));
        row = stored.values;
        bytes_.back().insert(bytes_.back().end(), stored.bytes.begin(), stored.bytes.end());
      }
    }
    for (size_t c = 0; c < cases_.size(); ++c) {
      const size_t table = cases_[c].table;
      cases_[c].pairs.embeddings = tables_[table];
      memory_.push_back(
          std::make_unique<ColumnOf<float>>(cases_[c], Array<float>(), row_strides_[c]));
      columns_.push_back(memory_.back()->column());
      stored_.push_back(Array<uint8_t>::Of(bytes_[table]));  // exactly, for the address sanitizer
      columns_.back().stored = {stored_.back().data(), format};
    }
  }

  std::vector<Array<float>> Combine(const CpuExec& exec, int64_t gap) const {
    return CombineColumns(exec, cases_, AsSpan(columns_), gap);
  }

 private:
  std::vector<std::vector<uint8_t>> bytes_;
  std::vector<Array<uint8_t>> stored_;
  std::vector<std::unique_ptr<ColumnOf<float>>> memory_;
  std::vector<GroupColumn<float>> columns_;
};

TEST(StoredRows, GroupLookupEqualsItsDefinitionForAnyNumberOfThreads) {
  for (int seed = 0; seed < NumCases(150); ++seed) {
    for (const RowFormat format : kFormats) {
      SCOPED_TRACE(::testing::Message() << seed << " " << static_cast<int>(format));
      const StoredGroup group(seed, format);
      ExpectCombinedByAnyNumberOfThreads(group, seed % 3);
    }
  }
}

TEST(StoredRows, FormatsHaveNames) {
  RowFormat format;
  ASSERT_TRUE(IsOk(ParseRowFormat("int4", &format)));
  EXPECT_EQ(format, RowFormat::kInt4);
  EXPECT_EQ(ParseRowFormat("int3", &format).message(),
            "a row format must be int8, int4 or bfloat16, got int3");
}

}  // namespace
}  // namespace fused_embedding
