#include "tf_ops/kernels/embedding_table_kernel.h"

#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/storage/cold_store_library.h"
#include "tf_ops/core/storage/table_folder.h"
#include "tf_ops/core/table/embedding_table.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/table_resource.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

std::pair<const char*, AdmissionKind> Named(AdmissionKind kind) {
  return {AdmissionKindName(kind), kind};
}

AdmissionConfig ReadAdmission(OpKernelConstruction* ctx) {
  AdmissionConfig admission;
  admission.kind = ParseName<AdmissionKind>(
      GetAttr<std::string>(ctx, "admission"),
      {Named(AdmissionKind::kAll), Named(AdmissionKind::kCounter), Named(AdmissionKind::kBloom)});
  admission.min_frequency = GetAttr<int64_t>(ctx, "min_frequency");
  admission.bloom_counters = GetAttr<int64_t>(ctx, "bloom_counters");
  admission.bloom_hashes = GetAttr<int64_t>(ctx, "bloom_hashes");
  return admission;
}

// But for the folder, which a table has when it is made.
StorageConfig ReadStorage(OpKernelConstruction* ctx) {
  StorageConfig storage;
  if (GetAttr<std::string>(ctx, "storage_path").empty()) return storage;
  storage.open = OpenRocksDb;
  storage.dram_bytes = GetAttr<int64_t>(ctx, "dram_bytes");
  storage.strategy =
      ParseName<CacheStrategy>(GetAttr<std::string>(ctx, "cache_strategy"),
                               {{"lru", CacheStrategy::kLru}, {"lfu", CacheStrategy::kLfu}});
  return storage;
}

Status ReadConfig(OpKernelConstruction* ctx, TableConfig* config) {
  config->layout = ReadLayout(ctx);
  config->admission = ReadAdmission(ctx);
  config->no_permission_value = GetAttr<float>(ctx, "no_permission_value");
  config->max_capacity = GetAttr<int64_t>(ctx, "max_capacity");
  config->eviction = ParseName<EvictionPolicy>(GetAttr<std::string>(ctx, "eviction"),
                                               {{"none", EvictionPolicy::kNone},
                                                {"lru", EvictionPolicy::kLru},
                                                {"lfu", EvictionPolicy::kLfu}});
  config->check_mode = ParseName<CheckMode>(GetAttr<std::string>(ctx, "check_mode"),
                                            {{"error", CheckMode::kError},
                                             {"warning", CheckMode::kWarning},
                                             {"ignore", CheckMode::kIgnore}});
  config->storage = ReadStorage(ctx);
  return ReadInitializer(ctx, config->layout, &config->initializer);
}

std::string DescribeStorage(OpKernelConstruction* ctx) {
  const auto path = GetAttr<std::string>(ctx, "storage_path");
  if (path.empty()) return "";
  return absl::StrCat(", ", GetAttr<int64_t>(ctx, "dram_bytes"), " bytes in DRAM (",
                      GetAttr<std::string>(ctx, "cache_strategy"), ") and rows in ", path);
}

// What two handles of one table must agree in, as text for the error message.
std::string Describe(OpKernelConstruction* ctx, const TableConfig& config) {
  return absl::StrCat(DescribeRows(ctx, config.layout, config.initializer), ", admission ",
                      GetAttr<std::string>(ctx, "admission"), "(", config.admission.min_frequency,
                      ", ", config.admission.bloom_counters, ", ", config.admission.bloom_hashes,
                      ") reading ", config.no_permission_value, ", max_capacity ",
                      config.max_capacity, ", eviction ", GetAttr<std::string>(ctx, "eviction"),
                      ", check_mode ", GetAttr<std::string>(ctx, "check_mode"),
                      DescribeStorage(ctx), GetAttr<bool>(ctx, "frozen") ? ", frozen" : "");
}

// A table in DRAM, and maybe on an SSD.
class DramTableMaker {
 public:
  using Resource = TableResource;

  explicit DramTableMaker(OpKernelConstruction* ctx) {
    is_frozen_ = GetAttr<bool>(ctx, "frozen");
    storage_path_ = GetAttr<std::string>(ctx, "storage_path");
    storage_name_ = GetAttr<std::string>(ctx, "storage_name");
    FE_REQUIRES_OK(ctx, ReadConfig(ctx, &config_));
    description_ = Describe(ctx, config_);
  }

  const RowLayout& layout() const { return config_.layout; }
  const std::string& description() const { return description_; }
  bool is_frozen() const { return is_frozen_; }

  absl::Status Create(OpKernelContext* /*ctx*/, const std::string& name, bool is_initialized,
                      TableResource** created) const {
    TableConfig config = config_;
    std::unique_ptr<TableFolder> folder;
    Status status;
    if (config.storage.open) {
      const std::string& folder_name = storage_name_.empty() ? name : storage_name_;
      status = TableFolder::Make(storage_path_, folder_name, &folder);
      if (!status.ok()) return ToTfStatus(status);
      config.storage.path = folder->path();
    }
    std::unique_ptr<EmbeddingTable> table;
    status = EmbeddingTable::Create(config, &table);
    if (!status.ok()) return ToTfStatus(status);
    *created = new TableResource(std::move(folder), std::move(table), is_frozen_, is_initialized,
                                 description_);
    return absl::OkStatus();
  }

 private:
  bool is_frozen_;
  std::string storage_path_;
  std::string storage_name_;
  TableConfig config_;
  std::string description_;
};

class LookupOp : public ReadingTableOp {
 public:
  explicit LookupOp(OpKernelConstruction* ctx) : ReadingTableOp(ctx) {
    insert_ = GetAttr<bool>(ctx, "insert");
    dtype_ = GetAttr<tensorflow::DataType>(ctx, "dtype");
  }

  void ComputeOn(OpKernelContext* ctx, const TableResource& resource) override {
    EmbeddingTable* table = resource.table();
    LookupInput in;
    FE_REQUIRES_OK(ctx, ReadInput(ctx, *table, &in));
    Tensor* embeddings = nullptr;
    Tensor* handles = nullptr;
    const RowLayout& layout = table->config().layout;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {in.keys.size, layout.dim}, &embeddings));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {in.keys.size}, &handles));
    LookupOutput out{static_cast<char*>(embeddings->data()), OutputSpan<int64_t>(handles).data};
    const TfExec exec(ctx);
    FE_REQUIRES_OK(ctx, insert_ && !resource.is_frozen() ? table->FindOrInsert(exec, in, &out)
                                                         : table->Find(exec, in, &out));
    WarnOfRefused(name(), *table, out.num_refused);
  }

 private:
  Status ReadInput(OpKernelContext* ctx, const EmbeddingTable& table, LookupInput* in) const {
    FE_RETURN_IF_ERROR(CheckVector("keys", ctx->input(1)));
    FE_RETURN_IF_ERROR(CheckCounts(ctx->input(2), ctx->input(1).NumElements()));
    FE_RETURN_IF_ERROR(ReadScalar(ctx, 3, "step", &in->step));
    in->keys = InputSpan<int64_t>(ctx->input(1));
    in->counts = InputSpan<int32_t>(ctx->input(2));
    return CheckValueType("dtype", dtype_, table.config().layout.value_type);
  }

  bool insert_;
  tensorflow::DataType dtype_;
};

class UpsertOp : public TableOp {
 public:
  using TableOp::TableOp;
  void ComputeOn(OpKernelContext* ctx, const TableResource& resource) override {
    FE_REQUIRES_OK(ctx, CheckVector("keys", ctx->input(1)));
    const Tensor& values = ctx->input(2);
    EmbeddingTable::Content content;
    content.keys = InputSpan<int64_t>(ctx->input(1));
    FE_REQUIRES_OK(ctx, CheckValues("values", values, content.keys.size, resource.layout()));
    content.values = static_cast<const char*>(values.data());
    FE_REQUIRES_OK(ctx, resource.table()->Upsert(TfExec(ctx), content));
  }
};

class PrefetchOp : public TableOp {
 public:
  using TableOp::TableOp;
  void ComputeOn(OpKernelContext* ctx, const TableResource& resource) override {
    FE_REQUIRES_OK(ctx, CheckVector("keys", ctx->input(1)));
    const Span<const int64_t> keys = InputSpan<int64_t>(ctx->input(1));
    FE_REQUIRES_OK(ctx, resource.table()->Prefetch(TfExec(ctx), keys));
  }
};

class EraseOp : public TableOp {
 public:
  using TableOp::TableOp;
  void ComputeOn(OpKernelContext* ctx, const TableResource& resource) override {
    FE_REQUIRES_OK(ctx, CheckVector("keys", ctx->input(1)));
    Tensor* num_erased = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {}, &num_erased));
    FE_REQUIRES_OK(ctx, resource.table()->Erase(TfExec(ctx), InputSpan<int64_t>(ctx->input(1)),
                                                num_erased->flat<int64_t>().data()));
  }
};

class ExpireOp : public TableOp {
 public:
  using TableOp::TableOp;
  void ComputeOn(OpKernelContext* ctx, const TableResource& resource) override {
    Expiry in;
    FE_REQUIRES_OK(ctx, ReadScalar(ctx, 1, "step", &in.step));
    FE_REQUIRES_OK(ctx, ReadScalar(ctx, 2, "steps_to_live", &in.steps_to_live));
    FE_REQUIRES_OK(ctx, ReadScalar(ctx, 3, "l2_weight_threshold", &in.l2_threshold));
    Tensor* num_expired = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {}, &num_expired));
    FE_REQUIRES_OK(ctx,
                   resource.table()->Expire(TfExec(ctx), in, num_expired->flat<int64_t>().data()));
  }
};

class MetadataOp : public ReadingTableOp {
 public:
  using ReadingTableOp::ReadingTableOp;
  void ComputeOn(OpKernelContext* ctx, const TableResource& resource) override {
    FE_REQUIRES_OK(ctx, CheckVector("keys", ctx->input(1)));
    Tensor* frequencies = nullptr;
    Tensor* versions = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, ctx->input(1).shape(), &frequencies));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, ctx->input(1).shape(), &versions));
    FE_REQUIRES_OK(ctx, resource.table()->Metadata(TfExec(ctx), InputSpan<int64_t>(ctx->input(1)),
                                                   OutputSpan<int64_t>(frequencies),
                                                   OutputSpan<int64_t>(versions)));
  }
};

#define FE_REGISTER(name, ...) \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU), __VA_ARGS__);
FE_REGISTER("EmbeddingVariableHandle", TableHandleOp<DramTableMaker>)
FE_REGISTER("EmbeddingVariableInitialize", InitializeTableOp<TableResource>)
FE_REGISTER("EmbeddingVariableIsInitialized", IsTableInitializedOp<TableResource>)
FE_REGISTER("EmbeddingVariableLookup", LookupOp)
FE_REGISTER("EmbeddingVariableUpsert", UpsertOp)
FE_REGISTER("EmbeddingVariablePrefetch", PrefetchOp)
FE_REGISTER("EmbeddingVariableErase", EraseOp)
FE_REGISTER("EmbeddingVariableExpire", ExpireOp)
FE_REGISTER("EmbeddingVariableMetadata", MetadataOp)
FE_REGISTER("EmbeddingVariableStatistics", TableStatisticsOp<TableResource>)
FE_REGISTER("EmbeddingVariableSeed", TableSeedOp<TableResource>)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
