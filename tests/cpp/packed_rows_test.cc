#include "tf_ops/core/lookup/remote/packed_rows.h"

#include <algorithm>
#include <utility>

#include "tests/cpp/partition_testing.h"

namespace fused_embedding {
namespace {

PackedLayout RandomPackedLayout(Random* random) {
  PackedLayout layout;
  layout.num_servers = RandomInt(random, 1, 3);
  for (int64_t t = RandomInt(random, 1, 4); t > 0; --t) {
    layout.dims.push_back(RandomInt(random, 1, 5));
    layout.num_parts.push_back(RandomInt(random, 1, 4));
    for (int64_t p = layout.num_parts.back(); p > 0; --p) {
      layout.part_servers.push_back(RandomInt(random, 0, layout.num_servers - 1));
    }
  }
  return layout;
}

// What the servers send: part after part, each value another one.
struct Packed {
  std::vector<Array<float>> servers;
  std::vector<std::vector<float>> tables;
};

Packed Pack(const PackedLayout& layout, const Ints& part_sizes) {
  std::vector<std::vector<float>> servers(static_cast<size_t>(layout.num_servers));
  Packed packed;
  float next = 0;
  size_t part = 0;
  for (size_t t = 0; t < layout.dims.size(); ++t) {
    packed.tables.emplace_back();
    for (int64_t p = 0; p < layout.num_parts[t]; ++p, ++part) {
      for (int64_t i = 0; i < part_sizes[part] * layout.dims[t]; ++i, ++next) {
        packed.tables[t].push_back(next);
        servers[static_cast<size_t>(layout.part_servers[part])].push_back(next);
      }
    }
  }
  for (const auto& values : servers) packed.servers.push_back(Array<float>::Of(values));
  return packed;
}

void ExpectUnpacks(const PackedPlaces& places, const Packed& packed) {
  std::vector<const float*> servers;
  std::vector<float*> again;
  std::vector<Array<float>> copies;
  for (const Array<float>& values : packed.servers) {
    servers.push_back(values.view().data);
    copies.emplace_back(values.size(), -77.0f);
    again.push_back(copies.back().data());
  }
  ContiguousTables<float> tables;
  ASSERT_TRUE(IsOk(tables.Gather(places, AsSpan(std::as_const(servers)))));
  for (size_t t = 0; t < packed.tables.size(); ++t) {
    const std::vector<float>& want = packed.tables[t];
    const int64_t table = static_cast<int64_t>(t);
    ASSERT_EQ(places.tables[t].num_values, static_cast<int64_t>(want.size()));
    Array<float> rows(places.tables[t].num_values, -77.0f);
    UnpackTable<float>(places, table, AsSpan(std::as_const(servers)), rows.data());
    EXPECT_EQ(rows.values(), want);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), tables[table]));
    PackTable<float>(places, table, rows.view().data, AsSpan(std::as_const(again)));
  }
  for (size_t s = 0; s < copies.size(); ++s) {
    EXPECT_EQ(copies[s].bytes(), packed.servers[s].bytes());
  }
}

TEST(PackedRows, TheExampleOfItsHeader) {
  const PackedLayout layout = {{2, 1}, {2, 1}, {0, 1, 0}, 2};
  ASSERT_TRUE(IsOk(CheckPackedLayout(layout)));
  PackedPlaces places;
  const Ints part_sizes = {1, 2, 3};
  ASSERT_TRUE(IsOk(PlacePackedRows(layout, AsSpan(part_sizes), &places)));
  EXPECT_EQ(places.server_sizes, (Ints{5, 4}));
  EXPECT_EQ(places.tables[0].num_rows, 3);
  EXPECT_EQ(places.tables[1].num_rows, 3);
  EXPECT_EQ(places.parts[2].offset, 2);
}

TEST(PackedRows, AreUnpackedAsTheyWerePacked) {
  Random random(5);
  for (int round = 0; round < NumCases(300); ++round) {
    const PackedLayout layout = RandomPackedLayout(&random);
    ASSERT_TRUE(IsOk(CheckPackedLayout(layout)));
    Ints part_sizes;
    for (size_t p = 0; p < layout.part_servers.size(); ++p) {
      part_sizes.push_back(RandomInt(&random, 0, 3));
    }
    PackedPlaces places;
    ASSERT_TRUE(IsOk(PlacePackedRows(layout, AsSpan(part_sizes), &places)));
    const Packed packed = Pack(layout, part_sizes);
    Ints sizes;
    for (const Array<float>& values : packed.servers) sizes.push_back(values.size());
    ASSERT_TRUE(IsOk(CheckPackedSizes(places, AsSpan(sizes))));
    ExpectUnpacks(places, packed);
    ++sizes.back();
    EXPECT_TRUE(IsInvalid(CheckPackedSizes(places, AsSpan(sizes)), {"rows of server"}));
  }
}

TEST(PackedRows, LayoutsAreChecked) {
  const PackedLayout right = {{2, 1}, {2, 1}, {0, 1, 0}, 2};
  const auto check = [&](auto change) {
    PackedLayout layout = right;
    change(&layout);
    return CheckPackedLayout(layout);
  };
  for (const int64_t parts : {int64_t{0}, int64_t{-1}, int64_t{4}, kInt64Min, kInt64Max}) {
    EXPECT_TRUE(
        IsInvalid(check([&](PackedLayout* l) { l->num_parts[1] = parts; }), {"num_parts must be"}));
  }
  for (const int64_t server : {int64_t{2}, int64_t{-1}, kInt64Min, kInt64Max}) {
    EXPECT_TRUE(IsInvalid(check([&](PackedLayout* l) { l->part_servers[1] = server; }),
                          {"part_servers has", "outside [0, 2)"}));
  }
  for (const int64_t dim : {int64_t{0}, int64_t{-1}, kInt64Min}) {
    EXPECT_TRUE(IsInvalid(check([&](PackedLayout* l) { l->dims[0] = dim; }), {"dims must be"}));
  }
  EXPECT_TRUE(IsInvalid(check([](PackedLayout* l) { l->dims.pop_back(); }), {"one entry"}));
  EXPECT_TRUE(IsInvalid(check([](PackedLayout* l) { l->num_parts.pop_back(); }), {"one entry"}));
  EXPECT_TRUE(IsInvalid(check([](PackedLayout* l) { l->part_servers.pop_back(); }), {"one for"}));
}

TEST(PackedRows, NumbersOfRowsAreChecked) {
  const PackedLayout layout = {{2, 1}, {2, 1}, {0, 1, 0}, 2};
  for (size_t p = 0; p < 3; ++p) {
    for (const int64_t size : {int64_t{-1}, kInt64Min, kInt64Max}) {
      Ints part_sizes = {1, 2, 3};
      part_sizes[p] = size;
      PackedPlaces places;
      EXPECT_TRUE(IsInvalid(PlacePackedRows(layout, AsSpan(part_sizes), &places),
                            {"part_sizes[", "must be a number of rows"}));
    }
  }
  // Each part fits, but not all of a table.
  const PackedLayout ones = {{1}, {2}, {0, 1}, 2};
  const Ints part_sizes = {kInt64Max, 1};
  PackedPlaces places;
  EXPECT_TRUE(IsInvalid(PlacePackedRows(ones, AsSpan(part_sizes), &places), {"part_sizes[1] = 1"}));
  EXPECT_TRUE(IsInvalid(PlacePackedRows(ones, {}, &places), {"one element for each of the 2"}));
}

}  // namespace
}  // namespace fused_embedding
