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

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

template <typename Enum>
Enum ParseName(const std::string& name, std::initializer_list<std::pair<const char*, Enum>> names) {
  for (const auto& [known, value] : names) {
    if (name == known) return value;
  }
  return names.begin()->second;  // not reached: the op's attr allows no other name
}

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

Status ReadInitializer(OpKernelConstruction* ctx, const RowLayout& layout,
                       InitializerConfig* initializer) {
  FE_RETURN_IF_ERROR(
      ParseInitializerKind(GetAttr<std::string>(ctx, "initializer"), &initializer->kind));
  initializer->a = GetAttr<float>(ctx, "initializer_a");
  initializer->b = GetAttr<float>(ctx, "initializer_b");
  initializer->seed = static_cast<uint64_t>(GetAttr<int64_t>(ctx, "seed"));
  const auto matrix = GetAttr<std::string>(ctx, "initializer_matrix");
  initializer->matrix.assign(matrix.begin(), matrix.end());
  return CheckInitializer(*initializer, layout);
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
  config->layout.dim = GetAttr<int64_t>(ctx, "dim");
  config->layout.value_type = ToValueType(GetAttr<tensorflow::DataType>(ctx, "dtype"));
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
  return absl::StrCat(tensorflow::DataTypeString(GetAttr<tensorflow::DataType>(ctx, "dtype")),
                      "[?, ", config.layout.dim, "], initializer ",
                      GetAttr<std::string>(ctx, "initializer"), "(", config.initializer.a, ", ",
                      config.initializer.b, ") with ", config.initializer.matrix.size(),
                      " bytes of default values, seed ", config.initializer.seed, ", admission ",
                      GetAttr<std::string>(ctx, "admission"), "(", config.admission.min_frequency,
                      ", ", config.admission.bloom_counters, ", ", config.admission.bloom_hashes,
                      ") reading ", config.no_permission_value, ", max_capacity ",
                      config.max_capacity, ", eviction ", GetAttr<std::string>(ctx, "eviction"),
                      ", check_mode ", GetAttr<std::string>(ctx, "check_mode"),
                      DescribeStorage(ctx), GetAttr<bool>(ctx, "frozen") ? ", frozen" : "");
}

class HandleOp : public OpKernel {
 public:
  explicit HandleOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    container_ = GetAttr<std::string>(ctx, "container");
    name_ = GetAttr<std::string>(ctx, "shared_name");
    if (name_.empty()) name_ = name();
    dtype_ = GetAttr<tensorflow::DataType>(ctx, "dtype");
    is_frozen_ = GetAttr<bool>(ctx, "frozen");
    // Not where a graph of a cluster was imported without its devices: there is one process.
    const bool is_on_server = ctx->device()->parsed_name().job != "localhost";
    needs_initializer_ = GetAttr<bool>(ctx, "needs_initializer") && is_on_server && !is_frozen_;
    storage_path_ = GetAttr<std::string>(ctx, "storage_path");
    storage_name_ = GetAttr<std::string>(ctx, "storage_name");
    if (storage_name_.empty()) storage_name_ = name_;
    FE_REQUIRES_OK(ctx, ReadConfig(ctx, &config_));
    description_ = Describe(ctx, config_);
  }

  void Compute(OpKernelContext* ctx) override {
    const tensorflow::TensorShape scalar;
    const tensorflow::PartialTensorShape rows({-1, config_.layout.dim});
    const tensorflow::ResourceHandle handle = tensorflow::MakeResourceHandle<TableResource>(
        ctx, container_, name_, {tensorflow::DtypeAndPartialTensorShape{dtype_, rows}});
    TableResourcePtr resource;
    OP_REQUIRES_OK(ctx, tensorflow::LookupOrCreateResource<TableResource>(
                            ctx, handle, &resource,
                            [this](TableResource** created) { return Create(created); }));
    OP_REQUIRES(
        ctx, resource->description() == description_,
        ToTfStatus(InvalidArgument("EmbeddingVariable ", name_, " exists as ",
                                   resource->description(), ", and is asked for as ", description_,
                                   "; use another name, or the same options")));
    // Also of a table that another handle made: graphs with this one have no initializer.
    if (!needs_initializer_) resource->readiness()->set_initialized();
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, scalar, &output));
    output->scalar<tensorflow::ResourceHandle>()() = handle;
  }

 private:
  absl::Status Create(TableResource** created) const {
    TableConfig config = config_;
    std::unique_ptr<TableFolder> folder;
    Status status;
    if (config.storage.open) {
      status = TableFolder::Make(storage_path_, storage_name_, &folder);
      if (!status.ok()) return ToTfStatus(status);
      config.storage.path = folder->path();
    }
    std::unique_ptr<EmbeddingTable> table;
    status = EmbeddingTable::Create(config, &table);
    if (!status.ok()) return ToTfStatus(status);
    *created = new TableResource(std::move(folder), std::move(table), is_frozen_,
                                 !needs_initializer_, description_);
    return absl::OkStatus();
  }

  std::string container_;
  std::string name_;
  tensorflow::DataType dtype_;
  bool is_frozen_;
  bool needs_initializer_;
  std::string storage_path_;
  std::string storage_name_;
  TableConfig config_;
  std::string description_;
};

class InitializeOp : public TableOp {
 public:
  using TableOp::TableOp;
  void ComputeOn(OpKernelContext* /*ctx*/, const TableResource& resource) override {
    resource.readiness()->set_initialized();
  }
};

class IsInitializedOp : public TableOp {
 public:
  using TableOp::TableOp;
  void ComputeOn(OpKernelContext* ctx, const TableResource& resource) override {
    Tensor* is_initialized = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {}, &is_initialized));
    is_initialized->scalar<bool>()() = resource.readiness()->is_ready();
  }
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
    FE_RETURN_IF_ERROR(CheckVector("counts", ctx->input(2)));
    FE_RETURN_IF_ERROR(ReadScalar(ctx, 3, "step", &in->step));
    in->keys = InputSpan<int64_t>(ctx->input(1));
    in->counts = InputSpan<int32_t>(ctx->input(2));
    if (!in->counts.empty() && in->counts.size != in->keys.size) {
      return InvalidArgument("counts must be empty or have one element for each of the ",
                             in->keys.size, " keys, got ", in->counts.size);
    }
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
    FE_REQUIRES_OK(ctx, CheckValues("values", values, content.keys.size, *resource.table()));
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

class StatisticsOp : public TableOp {
 public:
  using TableOp::TableOp;
  void ComputeOn(OpKernelContext* ctx, const TableResource& resource) override {
    const auto statistics = NamedStatistics(resource.table()->Statistics());
    Tensor* names = nullptr;
    Tensor* values = nullptr;
    const int64_t n = static_cast<int64_t>(statistics.size());
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {n}, &names));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {n}, &values));
    for (int64_t i = 0; i < n; ++i) {
      names->vec<tensorflow::tstring>()(i) = statistics[static_cast<size_t>(i)].first;
      values->vec<int64_t>()(i) = statistics[static_cast<size_t>(i)].second;
    }
  }
};

class SeedOp : public TableOp {
 public:
  using TableOp::TableOp;
  void ComputeOn(OpKernelContext* ctx, const TableResource& resource) override {
    Tensor* seed = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {}, &seed));
    seed->scalar<int64_t>()() = static_cast<int64_t>(resource.table()->initializer().seed);
  }
};

#define FE_REGISTER(name, Op) \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU), Op);
FE_REGISTER("EmbeddingVariableHandle", HandleOp)
FE_REGISTER("EmbeddingVariableInitialize", InitializeOp)
FE_REGISTER("EmbeddingVariableIsInitialized", IsInitializedOp)
FE_REGISTER("EmbeddingVariableLookup", LookupOp)
FE_REGISTER("EmbeddingVariableUpsert", UpsertOp)
FE_REGISTER("EmbeddingVariablePrefetch", PrefetchOp)
FE_REGISTER("EmbeddingVariableErase", EraseOp)
FE_REGISTER("EmbeddingVariableExpire", ExpireOp)
FE_REGISTER("EmbeddingVariableMetadata", MetadataOp)
FE_REGISTER("EmbeddingVariableStatistics", StatisticsOp)
FE_REGISTER("EmbeddingVariableSeed", SeedOp)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
