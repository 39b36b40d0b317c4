// cuBLASLt's products, plainly: matrices from their descriptors, sums in float32. What a descriptor says that is not
// known here is refused. The order of a sum depends on the sizes, as NVIDIA's does.
#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gpu/emulator/fault.h"
#include "gpu/emulator/memory.h"
#include "gpu/emulator/numbers.h"
#include "gpu/emulator/runtime.h"

using namespace nlsplit::emulator;

namespace {

struct Layout {
  Number type;
  int64_t rows, columns, ld;
  int32_t batch = 1;
  int64_t stride = 0;
  friend bool operator==(const Layout&, const Layout&) = default;
  // Elements from one column, the first, to where the last one ends.
  int64_t extent() const { return (batch - 1) * stride + (columns - 1) * ld + rows; }
  size_t bytes() const { return static_cast<size_t>(extent()) * size_of(type); }
};

struct Product {
  bool tf32 = false;
  cublasOperation_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  bool has_bias() const { return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS; }
  bool has_relu() const { return epilogue == CUBLASLT_EPILOGUE_RELU || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS; }
};

struct Preference {
  uint64_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
};

// What is in a cublasLtMatmulAlgo_t.
struct Algorithm {
  uint64_t problem;
  uint64_t workspace;
  uint32_t alignment[4];
  uint64_t block;  // how much of k is summed at a time
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

thread_local std::string said;
cublasStatus_t refuse_product(cublasStatus_t status, std::string why) {
  said = std::move(why);
  return status;
}

#define RETURN_IF_FAULTY(wrong, status, ...)                                            \
  do {                                                                                  \
    if (wrong) return refuse_product(CUBLAS_STATUS_##status, fmt::format(__VA_ARGS__)); \
  } while (false)

template <class T>
T* of(const void* handle) {
  return static_cast<T*>(const_cast<void*>(handle));
}

template <class T>
cublasStatus_t take(T& to, const void* from, size_t bytes) {
  RETURN_IF_FAULTY(bytes != sizeof(T), INVALID_VALUE, "an attribute of {} B, not {}", bytes, sizeof(T));
  std::memcpy(&to, from, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

template <class T, class Handle>
cublasStatus_t create(Handle* handle, T value) {
  const std::lock_guard lock(mutex());
  T* object = new T(value);
  made(object);
  *handle = reinterpret_cast<Handle>(object);
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t destroy(const void* handle) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(!destroyed(handle), INVALID_VALUE, "a descriptor that does not exist is destroyed");
  delete of<T>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

struct Sizes {
  int64_t m, n, k;
};

cublasStatus_t check(const Product& p, const Layout& a, const Layout& b, const Layout& c, const Layout& d, Sizes& s) {
  for (const Layout* one : {&a, &b, &c, &d}) {
    RETURN_IF_FAULTY(one->rows < 1 || one->columns < 1 || one->batch < 1, INVALID_VALUE, "an empty matrix");
    RETURN_IF_FAULTY(one->ld < one->rows, INVALID_VALUE, "a leading dimension {} of {} rows", one->ld, one->rows);
    RETURN_IF_FAULTY(one->batch != d.batch, INVALID_VALUE, "batches of {} and {}", one->batch, d.batch);
  }
  // cuBLASLt's table of types for CUBLAS_COMPUTE_32F: 16-bit factors may have a result of theirs or in f32.
  RETURN_IF_FAULTY(a.type != b.type || c.type != d.type || (d.type != a.type && d.type != Number::f32), NOT_SUPPORTED,
                   "matrices of different types");
  RETURN_IF_FAULTY(p.tf32 && a.type != Number::f32, NOT_SUPPORTED, "TF32 of 16-bit elements");
  RETURN_IF_FAULTY(d.batch > 1 && d.stride < (d.columns - 1) * d.ld + d.rows, INVALID_VALUE, "results that overlap");
  const bool ta = p.trans_a != CUBLAS_OP_N, tb = p.trans_b != CUBLAS_OP_N;
  s = {ta ? a.columns : a.rows, tb ? b.rows : b.columns, ta ? a.rows : a.columns};
  RETURN_IF_FAULTY(
      (tb ? b.columns : b.rows) != s.k || d.rows != s.m || d.columns != s.n || c.rows != s.m || c.columns != s.n,
      INVALID_VALUE, "{} x {} times {} x {} is not {} x {}", s.m, s.k, tb ? b.columns : b.rows, s.n, d.rows, d.columns);
  return CUBLAS_STATUS_SUCCESS;
}

uint64_t fingerprint(const Product& p, const Layout& a, const Layout& b, const Layout& d) {
  uint64_t hash = 1469598103934665603u;  // FNV-1a
  const auto add = [&](int64_t value) { hash = (hash ^ static_cast<uint64_t>(value)) * 1099511628211u; };
  for (const Layout* one : {&a, &b, &d}) {
    for (const int64_t value :
         {one->rows, one->columns, one->ld, int64_t{one->batch}, one->stride, static_cast<int64_t>(one->type)})
      add(value);
  }
  for (const int value :
       {p.tf32 ? 1 : 0, static_cast<int>(p.trans_a), static_cast<int>(p.trans_b), static_cast<int>(p.epilogue)})
    add(value);
  return hash;
}

// One matrix as floats, columns side by side; transposed if asked for. False: it cannot be read.
bool fetch(int gpu, const Layout& layout, const void* at, int64_t batch, bool transpose, bool tf32,
           std::vector<float>& to) {
  const auto* from =
      static_cast<const std::byte*>(at) + static_cast<size_t>(batch * layout.stride) * size_of(layout.type);
  to.resize(static_cast<size_t>(layout.rows * layout.columns));
  for (int64_t column = 0; column < layout.columns; ++column) {
    const auto* begin = from + static_cast<size_t>(column * layout.ld) * size_of(layout.type);
    if (!check_read(gpu, begin, static_cast<size_t>(layout.rows) * size_of(layout.type), "cublasLtMatmul reads"))
      return false;
    for (int64_t row = 0; row < layout.rows; ++row) {
      const float value = load(layout.type, begin, row);
      to[static_cast<size_t>(transpose ? row * layout.columns + column : column * layout.rows + row)] =
          tf32 ? to_tf32(value) : value;
    }
  }
  return true;
}

struct Call {
  Product what;
  Sizes sizes;
  Algorithm algorithm;
  float alpha, beta;
  const void *a, *b, *c;
  void *d, *workspace;
  Layout a_layout, b_layout, c_layout, d_layout;
};

void multiply(int gpu, const Call& call) {
  const auto [m, n, k] = call.sizes;
  if (call.algorithm.workspace > 0) {
    if (!check_room(gpu, call.workspace, call.algorithm.workspace, "cublasLtMatmul's workspace is")) return;
    poison(call.workspace, call.algorithm.workspace);
  }
  const size_t d_size = size_of(call.d_layout.type);
  std::vector<float> a, b, bias(static_cast<size_t>(m), 0.0f), part(static_cast<size_t>(m)),
      sum(static_cast<size_t>(m));
  if (call.what.has_bias()) {
    if (!check_read(gpu, call.what.bias, static_cast<size_t>(m) * d_size, "cublasLtMatmul's bias")) return;
    for (int64_t i = 0; i < m; ++i) bias[static_cast<size_t>(i)] = load(call.d_layout.type, call.what.bias, i);
  }
  for (int64_t batch = 0; batch < call.d_layout.batch; ++batch) {
    // a[k][m], b[n][k]
    if (!fetch(gpu, call.a_layout, call.a, batch, call.what.trans_a != CUBLAS_OP_N, call.what.tf32, a)) return;
    if (!fetch(gpu, call.b_layout, call.b, batch, call.what.trans_b != CUBLAS_OP_N, call.what.tf32, b)) return;
    for (int64_t column = 0; column < n; ++column) {
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (int64_t first = 0; first < k; first += static_cast<int64_t>(call.algorithm.block)) {
        std::fill(part.begin(), part.end(), 0.0f);
        const int64_t last = std::min(k, first + static_cast<int64_t>(call.algorithm.block));
        for (int64_t p = first; p < last; ++p) {
          const float factor = b[static_cast<size_t>(column * k + p)];
          const float* from = &a[static_cast<size_t>(p * m)];
          for (int64_t i = 0; i < m; ++i) part[static_cast<size_t>(i)] += from[i] * factor;
        }
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      }
      const auto place = [&](const Layout& layout) {
        return static_cast<size_t>(batch * layout.stride + column * layout.ld) * d_size;
      };
      const auto* c = static_cast<const std::byte*>(call.c) + place(call.c_layout);
      auto* d = static_cast<std::byte*>(call.d) + place(call.d_layout);
      const size_t bytes = static_cast<size_t>(m) * d_size;
      if (!check_room(gpu, d, bytes, "cublasLtMatmul writes")) return;
      if (call.beta != 0 && !check_read(gpu, c, bytes, "cublasLtMatmul reads")) return;
      for (int64_t i = 0; i < m; ++i) {
        const auto at = static_cast<size_t>(i);
        float value = call.alpha * sum[at] + bias[at];
        if (call.beta != 0) value = call.alpha * sum[at] + call.beta * load(call.c_layout.type, c, i) + bias[at];
        if (call.what.has_relu() && value < 0) value = 0;
        store(call.d_layout.type, d, i, value);
      }
      mark_written(d, bytes);
    }
  }
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t) { return said.c_str(); }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return create(handle, current_gpu()); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy<int>(handle); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale) {
  RETURN_IF_FAULTY(compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32, NOT_SUPPORTED,
                   "the emulator does not compute by type {}", static_cast<int>(compute));
  RETURN_IF_FAULTY(scale != CUDA_R_32F, NOT_SUPPORTED, "the emulator does not scale by type {}",
                   static_cast<int>(scale));
  return create(desc, Product{.tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return destroy<Product>(desc); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* from, size_t bytes) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(!is_made(desc), INVALID_VALUE, "an attribute of a product that does not exist");
  auto& product = *of<Product>(desc);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(product.trans_a, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(product.trans_b, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(product.bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: {
      cublasLtEpilogue_t wanted{};
      if (const cublasStatus_t status = take(wanted, from, bytes); status != CUBLAS_STATUS_SUCCESS) return status;
      RETURN_IF_FAULTY(wanted != CUBLASLT_EPILOGUE_DEFAULT && wanted != CUBLASLT_EPILOGUE_RELU &&
                           wanted != CUBLASLT_EPILOGUE_BIAS && wanted != CUBLASLT_EPILOGUE_RELU_BIAS,
                       NOT_SUPPORTED, "the emulator has no epilogue {}", static_cast<int>(wanted));
      product.epilogue = wanted;
      return CUBLAS_STATUS_SUCCESS;
    }
    default:
      return refuse_product(CUBLAS_STATUS_NOT_SUPPORTED,
                            fmt::format("the emulator has no attribute {} of a product", static_cast<int>(attribute)));
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  const auto number = number_of(type);
  RETURN_IF_FAULTY(!number, NOT_SUPPORTED, "the emulator has no elements of type {}", static_cast<int>(type));
  return create(layout, Layout{*number, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return destroy<Layout>(layout); }

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* from,
                                                size_t bytes) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(!is_made(layout), INVALID_VALUE, "an attribute of a matrix that does not exist");
  auto& matrix = *of<Layout>(layout);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return take(matrix.batch, from, bytes);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) return take(matrix.stride, from, bytes);
  return refuse_product(CUBLAS_STATUS_NOT_SUPPORTED,
                        fmt::format("the emulator has no attribute {} of a matrix", static_cast<int>(attribute)));
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made_one) {
  return create(made_one, Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy<Preference>(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t which,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* from,
                                                    size_t bytes) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(!is_made(which), INVALID_VALUE, "an attribute of a preference that does not exist");
  auto& preference = *of<Preference>(which);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(preference.workspace, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return take(preference.alignment[0], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return take(preference.alignment[1], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return take(preference.alignment[2], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(preference.alignment[3], from, bytes);
    default:
      return refuse_product(CUBLAS_STATUS_NOT_SUPPORTED,
                            fmt::format("the emulator has no preference {}", static_cast<int>(attribute)));
  }
}

// The quickest for operands as aligned as promised: up to 16 bytes at a time, and half of the room there is.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t which, int wanted,
                                              cublasLtMatmulHeuristicResult_t found[], int* count) {
  const std::lock_guard lock(mutex());
  for (const void* object : {static_cast<const void*>(handle), static_cast<const void*>(desc),
                             static_cast<const void*>(a), static_cast<const void*>(b), static_cast<const void*>(c),
                             static_cast<const void*>(d), static_cast<const void*>(which)})
    RETURN_IF_FAULTY(!is_made(object), INVALID_VALUE, "an algorithm is wanted for what does not exist");
  RETURN_IF_FAULTY(wanted < 1, INVALID_VALUE, "no algorithm is wanted");
  const Product& product = *of<Product>(desc);
  const Layout &left = *of<Layout>(a), &right = *of<Layout>(b), &result = *of<Layout>(d);
  Sizes sizes{};
  *count = 0;
  if (const cublasStatus_t status = check(product, left, right, *of<Layout>(c), result, sizes);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  const Preference& preference = *of<Preference>(which);
  Algorithm algorithm{};
  algorithm.problem = fingerprint(product, left, right, result);
  constexpr uint64_t most_workspace = 64 << 10;
  algorithm.workspace = std::min(preference.workspace / 2, most_workspace);
  uint32_t least = 16;
  for (size_t i = 0; i < 4; ++i) least = std::min(least, preference.alignment[i]);
  std::fill_n(algorithm.alignment, 4, least);
  algorithm.block = uint64_t{4} << ((algorithm.problem + least) % 5);
  found[0] = {};
  std::memcpy(&found[0].algo, &algorithm, sizeof(algorithm));
  found[0].workspaceSize = algorithm.workspace;
  found[0].state = CUBLAS_STATUS_SUCCESS;
  found[0].wavesCount = 1;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const std::lock_guard lock(mutex());
  for (const void* object :
       {static_cast<const void*>(handle), static_cast<const void*>(desc), static_cast<const void*>(a_layout),
        static_cast<const void*>(b_layout), static_cast<const void*>(c_layout), static_cast<const void*>(d_layout)})
    RETURN_IF_FAULTY(!is_made(object), INVALID_VALUE, "a product of what does not exist");
  RETURN_IF_FAULTY(*of<int>(handle) != current_gpu(), INVALID_VALUE, "a handle of another GPU");
  RETURN_IF_FAULTY(algo == nullptr || alpha == nullptr || beta == nullptr, INVALID_VALUE,
                   "a product without all it takes");
  Call call{*of<Product>(desc),
            {},
            {},
            *static_cast<const float*>(alpha),
            *static_cast<const float*>(beta),
            a,
            b,
            c,
            d,
            workspace,
            *of<Layout>(a_layout),
            *of<Layout>(b_layout),
            *of<Layout>(c_layout),
            *of<Layout>(d_layout)};
  if (const cublasStatus_t status =
          check(call.what, call.a_layout, call.b_layout, call.c_layout, call.d_layout, call.sizes);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  std::memcpy(static_cast<void*>(&call.algorithm), algo, sizeof(call.algorithm));
  RETURN_IF_FAULTY(call.algorithm.problem != fingerprint(call.what, call.a_layout, call.b_layout, call.d_layout),
                   NOT_SUPPORTED, "an algorithm for another product");
  RETURN_IF_FAULTY(call.algorithm.workspace > workspace_bytes, INVALID_VALUE, "{} B of workspace, not {}",
                   workspace_bytes, call.algorithm.workspace);
  const void* const operands[] = {a, b, c, d};
  for (size_t i = 0; i < 4; ++i) {
    RETURN_IF_FAULTY(reinterpret_cast<uintptr_t>(operands[i]) % call.algorithm.alignment[i] != 0, NOT_SUPPORTED,
                     "operand {} is not at a multiple of {} B, as was promised", i, call.algorithm.alignment[i]);
  }
  RETURN_IF_FAULTY(reinterpret_cast<uintptr_t>(workspace) % 256 != 0, INVALID_VALUE,
                   "a workspace that is not at a multiple of 256 B");
  RETURN_IF_FAULTY(call.what.has_bias() && call.what.bias == nullptr, INVALID_VALUE, "an epilogue without its bias");
  RETURN_IF_FAULTY(overlap(d, call.d_layout.bytes(), a, call.a_layout.bytes()) ||
                       overlap(d, call.d_layout.bytes(), b, call.b_layout.bytes()),
                   INVALID_VALUE, "the result lies where a factor does");
  RETURN_IF_FAULTY(call.beta != 0 && overlap(d, call.d_layout.bytes(), c, call.c_layout.bytes()) &&
                       (c != d || call.c_layout != call.d_layout),
                   INVALID_VALUE, "the result lies where the addend does, but otherwise");
  if (const cudaError_t status = enqueue(stream, [call, gpu = gpu_of(stream)] { multiply(gpu, call); });
      status != cudaSuccess) {
    return refuse_product(CUBLAS_STATUS_EXECUTION_FAILED, fault().empty() ? last_refusal() : fault());
  }
  return CUBLAS_STATUS_SUCCESS;
}
