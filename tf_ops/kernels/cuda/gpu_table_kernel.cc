#include <algorithm>
#include <utility>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/secret.h"
#include "tf_ops/core/table/gpu/training.cu.h"
#include "tf_ops/kernels/cuda/gpu_table_resource.h"
#include "tf_ops/kernels/embedding_table_kernel.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Of the bytes of a table that counts keys before they get a row, one in so many is for counts.
constexpr int64_t kShareOfCounts = 8;
// A new table has so many buckets, unless its slots might then not fit into its bytes.
constexpr int64_t kFirstBuckets = 256;
constexpr int64_t kShareOfFirstBuckets = 16;

// A table in a GPU's memory.
class GpuTableMaker {
 public:
  using Resource = GpuTableResource;

  explicit GpuTableMaker(OpKernelConstruction* ctx) {
    config_.layout = ReadLayout(ctx);
    FE_REQUIRES_OK(ctx, ReadInitializer(ctx, config_.layout, &config_.initializer));
    config_.eviction = ParseName<GpuEviction>(
        GetAttr<std::string>(ctx, "eviction"),
        {{"none", GpuEviction::kNone}, {"lru", GpuEviction::kLru}, {"lfu", GpuEviction::kLfu}});
    config_.min_frequency = GetAttr<int64_t>(ctx, "min_frequency");
    config_.no_permission_value = GetAttr<float>(ctx, "no_permission_value");
    const int64_t hbm_bytes = GetAttr<int64_t>(ctx, "hbm_bytes");
    if (config_.min_frequency > 0) config_.max_count_bytes = hbm_bytes / kShareOfCounts;
    config_.max_bytes = hbm_bytes - config_.max_count_bytes;
    // Which rows are evicted is then the same in each run, as in DRAM.
    const bool evicts = config_.eviction != GpuEviction::kNone;
    config_.hash_key = evicts ? Mix64(config_.initializer.seed + 1) : Secret();
    FE_REQUIRES_OK(ctx, CheckGpuTableConfig(config_));
    description_ = absl::StrCat(
        DescribeRows(ctx, config_.layout, config_.initializer), ", admission after ",
        config_.min_frequency, " reading ", config_.no_permission_value, ", eviction ",
        GetAttr<std::string>(ctx, "eviction"), ", ", hbm_bytes, " bytes of a GPU's memory");
  }

  const RowLayout& layout() const { return config_.layout; }
  const std::string& description() const { return description_; }
  bool is_frozen() const { return false; }

  absl::Status Create(OpKernelContext* ctx, const std::string& name, bool is_initialized,
                      GpuTableResource** created) const {
    GpuTableConfig config = config_;
    for (int64_t n = 2; n <= kFirstBuckets; n *= 2) {
      GpuTableConfig larger = config_;
      larger.min_buckets = n * kShareOfFirstBuckets;
      if (CheckGpuTableConfig(larger).ok()) config.min_buckets = n;
    }
    const GpuWork work(ctx);
    std::unique_ptr<GpuTable> table;
    TF_RETURN_IF_ERROR(ToTfStatus(GpuTable::Create(work.exec(), config, &table)));
    DeviceBuffer<unsigned long long> num_missing;
    TF_RETURN_IF_ERROR(ToTfStatus(MakeCounters(work.exec(), 2, &num_missing)));
    *created = new GpuTableResource(name, std::move(table), std::move(num_missing), is_initialized,
                                    description_);
    return absl::OkStatus();
  }

 private:
  GpuTableConfig config_;
  std::string description_;
};

// The keys of one table.
struct KeysOfOne {
  KeysOfOne(const GpuTableResource& resource, const Tensor& keys)
      : table(resource.table()), end(keys.NumElements()), keys(InputSpan<int64_t>(keys)) {}

  GpuTableKeys view() const { return {{&table, 1}, {&end, 1}, keys}; }

  GpuTable* const table;
  const int64_t end;
  const Span<const int64_t> keys;
};

class GpuLookupOp : public GpuTableOp {
 public:
  explicit GpuLookupOp(OpKernelConstruction* ctx) : GpuTableOp(ctx, TableState::kInitialized) {
    insert_ = GetAttr<bool>(ctx, "insert");
    dtype_ = GetAttr<tensorflow::DataType>(ctx, "dtype");
  }

 private:
  void ComputeOnGpu(OpKernelContext* ctx, const GpuExec& exec,
                    const GpuTableResource& resource) override {
    int64_t step = 0;
    FE_REQUIRES_OK(ctx, CheckVector("keys", ctx->input(1)));
    FE_REQUIRES_OK(ctx, CheckCounts(ctx->input(2), ctx->input(1).NumElements()));
    FE_REQUIRES_OK(ctx, ReadScalar(ctx, 3, "step", &step));
    FE_REQUIRES_OK(ctx, CheckValueType("dtype", dtype_, resource.layout().value_type));
    const KeysOfOne keys(resource, ctx->input(1));
    const GpuTableKeys in = keys.view();
    const int64_t version = resource.StepOr(step);
    const GpuUses uses = {InputSpan<int32_t>(ctx->input(2)), {}, {&version, 1}};
    const GpuTableResource* const table = &resource;
    GpuTrainingPlan plan;
    if (insert_) {
      FE_REQUIRES_OK(ctx, InTables({&table, 1}, PlanGpuTraining(exec, in, uses, &plan)));
      FE_REQUIRES_OK(ctx, CheckNoneRefused(plan.insert.num_refused));
    }
    Tensor* embeddings = nullptr;
    Tensor* handles = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {keys.end, resource.layout().dim}, &embeddings));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {keys.end}, &handles));
    char* const values = static_cast<char*>(embeddings->data());
    const GpuLookupOutput out = {OutputSpan<int64_t>(handles), {&values, 1}};
    FE_REQUIRES_OK(ctx, insert_ ? RunGpuTraining(exec, in, uses, plan, {}, out)
                                : FindInGpuTables(exec, in, out));
    FE_REQUIRES_OK(ctx, CountLookup(exec, {&table, 1}, in.ends, OutputSpan<int64_t>(handles),
                                    insert_, plan.insert.num_evicted));
  }

  bool insert_;
  tensorflow::DataType dtype_;
};

class GpuUpsertOp : public GpuTableOp {
 public:
  using GpuTableOp::GpuTableOp;

 private:
  void ComputeOnGpu(OpKernelContext* ctx, const GpuExec& exec,
                    const GpuTableResource& resource) override {
    FE_REQUIRES_OK(ctx, CheckVector("keys", ctx->input(1)));
    const KeysOfOne keys(resource, ctx->input(1));
    const Tensor& values = ctx->input(2);
    FE_REQUIRES_OK(ctx, CheckValues("values", values, keys.end, resource.layout()));
    FE_REQUIRES_OK(ctx, resource.UpsertValues(exec, keys.view(), values.tensor_data().data()));
  }
};

// All rows are where lookups read them.
class GpuPrefetchOp : public GpuTableOp {
 public:
  using GpuTableOp::GpuTableOp;

 private:
  void ComputeOnGpu(OpKernelContext* ctx, const GpuExec& /*exec*/,
                    const GpuTableResource& /*resource*/) override {
    FE_REQUIRES_OK(ctx, CheckVector("keys", ctx->input(1)));
  }
};

class GpuEraseOp : public GpuTableOp {
 public:
  using GpuTableOp::GpuTableOp;

 private:
  void ComputeOnGpu(OpKernelContext* ctx, const GpuExec& exec,
                    const GpuTableResource& resource) override {
    FE_REQUIRES_OK(ctx, CheckVector("keys", ctx->input(1)));
    const KeysOfOne keys(resource, ctx->input(1));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {}, &output));
    int64_t num_erased = 0;
    FE_REQUIRES_OK(ctx, EraseFromGpuTables(exec, keys.view(), &num_erased));
    resource.counters().erasures += num_erased;
    output->scalar<int64_t>()() = num_erased;
  }
};

class GpuExpireOp : public GpuTableOp {
 public:
  using GpuTableOp::GpuTableOp;

 private:
  void ComputeOnGpu(OpKernelContext* ctx, const GpuExec& exec,
                    const GpuTableResource& resource) override {
    Expiry expiry;
    FE_REQUIRES_OK(ctx, ReadScalar(ctx, 1, "step", &expiry.step));
    FE_REQUIRES_OK(ctx, ReadScalar(ctx, 2, "steps_to_live", &expiry.steps_to_live));
    FE_REQUIRES_OK(ctx, ReadScalar(ctx, 3, "l2_weight_threshold", &expiry.l2_threshold));
    expiry.step = resource.StepOr(expiry.step);
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {}, &output));
    int64_t num_expired = 0;
    FE_REQUIRES_OK(ctx, ExpireInGpuTable(exec, expiry, resource.table(), &num_expired));
    resource.counters().expirations += num_expired;
    output->scalar<int64_t>()() = num_expired;
  }
};

class GpuMetadataOp : public GpuTableOp {
 public:
  explicit GpuMetadataOp(OpKernelConstruction* ctx) : GpuTableOp(ctx, TableState::kInitialized) {}

 private:
  void ComputeOnGpu(OpKernelContext* ctx, const GpuExec& exec,
                    const GpuTableResource& resource) override {
    FE_REQUIRES_OK(ctx, CheckVector("keys", ctx->input(1)));
    const KeysOfOne keys(resource, ctx->input(1));
    Tensor* frequencies = nullptr;
    Tensor* versions = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {keys.end}, &frequencies));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {keys.end}, &versions));
    FE_REQUIRES_OK(ctx, ReadGpuMetadata(exec, keys.view(), OutputSpan<int64_t>(frequencies),
                                        OutputSpan<int64_t>(versions)));
  }
};

// The emulation has no other kernel of this op, so that a program finds it without a label.
REGISTER_KERNEL_BUILDER(
    Name("EmbeddingVariableGpuHandle").Device(kGpuTableDevice).HostMemory("resource"),
    TableHandleOp<GpuTableMaker>);

REGISTER_KERNEL_BUILDER(FE_ON_GPU("EmbeddingVariableInitialize").HostMemory("resource"),
                        InitializeTableOp<GpuTableResource>);
REGISTER_KERNEL_BUILDER(
    FE_ON_GPU("EmbeddingVariableIsInitialized").HostMemory("resource").HostMemory("is_initialized"),
    IsTableInitializedOp<GpuTableResource>);
REGISTER_KERNEL_BUILDER(
    FE_ON_GPU("EmbeddingVariableLookup").HostMemory("resource").HostMemory("step"), GpuLookupOp);
REGISTER_KERNEL_BUILDER(FE_ON_GPU("EmbeddingVariableUpsert").HostMemory("resource"), GpuUpsertOp);
REGISTER_KERNEL_BUILDER(FE_ON_GPU("EmbeddingVariablePrefetch").HostMemory("resource"),
                        GpuPrefetchOp);
REGISTER_KERNEL_BUILDER(
    FE_ON_GPU("EmbeddingVariableErase").HostMemory("resource").HostMemory("num_erased"),
    GpuEraseOp);
REGISTER_KERNEL_BUILDER(FE_ON_GPU("EmbeddingVariableExpire")
                            .HostMemory("resource")
                            .HostMemory("step")
                            .HostMemory("steps_to_live")
                            .HostMemory("l2_weight_threshold")
                            .HostMemory("num_expired"),
                        GpuExpireOp);
REGISTER_KERNEL_BUILDER(FE_ON_GPU("EmbeddingVariableMetadata").HostMemory("resource"),
                        GpuMetadataOp);
REGISTER_KERNEL_BUILDER(FE_ON_GPU("EmbeddingVariableStatistics")
                            .HostMemory("resource")
                            .HostMemory("names")
                            .HostMemory("values"),
                        TableStatisticsOp<GpuTableResource>);
REGISTER_KERNEL_BUILDER(
    FE_ON_GPU("EmbeddingVariableSeed").HostMemory("resource").HostMemory("seed"),
    TableSeedOp<GpuTableResource>);

}  // namespace
}  // namespace fused_embedding
