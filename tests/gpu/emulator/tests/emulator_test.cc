// The emulator itself: right kernels run, and each kind of wrong one is found and named.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <nvrtc.h>

#include <numeric>
#include <string>
#include <vector>

#include "gpu/emulator/fault.h"
#include "gpu/emulator/memory.h"
#include "gpu/emulator/runtime.h"
#include "gpu/emulator/tests/faulty.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int threads = faulty_threads;

class Emulator : public ::testing::Test {
 protected:
  void SetUp() override {
    emulator::forget_fault();
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    emulator::forget_fault();
    for (void* one : memory) EXPECT_EQ(cudaFree(one), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    EXPECT_EQ(emulator::allocations() + emulator::objects(), 0u);
  }

  float* take(size_t count) {
    void* one = nullptr;
    EXPECT_EQ(cudaMalloc(&one, count * sizeof(float)), cudaSuccess);
    memory.push_back(one);
    return static_cast<float*>(one);
  }
  float* filled(size_t count) {
    float* one = take(count);
    numbers.emplace_back(count);
    std::iota(numbers.back().begin(), numbers.back().end(), 0.0f);
    EXPECT_EQ(cudaMemcpyAsync(one, numbers.back().data(), count * sizeof(float), cudaMemcpyHostToDevice, stream),
              cudaSuccess);
    return one;
  }
  std::vector<float> read(const float* from, size_t count) {
    std::vector<float> values(count);
    EXPECT_EQ(cudaMemcpyAsync(values.data(), from, count * sizeof(float), cudaMemcpyDeviceToHost, stream), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess) << emulator::fault();
    return values;
  }
  // What was found; "" for nothing.
  static std::string found() {
    static_cast<void>(cudaDeviceSynchronize());
    return emulator::fault();
  }

  cudaStream_t stream = nullptr;
  std::vector<void*> memory;
  std::vector<std::vector<float>> numbers;
};

void seed_draws(uint64_t seed) { emulator::draws() = Random(seed); }

std::vector<float> block_sums(unsigned blocks) {
  std::vector<float> sums;
  for (unsigned b = 0; b < blocks; ++b) {
    float sum = 0;
    for (int t = 0; t < threads; ++t) sum += static_cast<float>(b * threads + static_cast<unsigned>(t));
    sums.push_back(sum);
  }
  return sums;
}

// As the backend compiles generated kernels; nullptr: refused.
cudaKernel_t compiled(const std::string& source, std::vector<const char*> options) {
  nvrtcProgram program = nullptr;
  EXPECT_EQ(nvrtcCreateProgram(&program, source.c_str(), "test.cu", 0, nullptr, nullptr), NVRTC_SUCCESS);
  cudaKernel_t kernel = nullptr;
  if (nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data()) == NVRTC_SUCCESS) {
    size_t bytes = 0;
    EXPECT_EQ(nvrtcGetCUBINSize(program, &bytes), NVRTC_SUCCESS);
    std::string code(bytes, ' ');
    EXPECT_EQ(nvrtcGetCUBIN(program, code.data()), NVRTC_SUCCESS);
    cudaLibrary_t library = nullptr;
    EXPECT_EQ(cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0), cudaSuccess);
    EXPECT_EQ(cudaLibraryGetKernel(&kernel, library, "generated"), cudaSuccess);
  }
  EXPECT_EQ(nvrtcDestroyProgram(&program), NVRTC_SUCCESS);
  return kernel;
}
const std::vector<const char*> usual_options = {"--gpu-architecture=sm_80", "--fmad=false"};

TEST_F(Emulator, FindsWrongIndicesOfGeneratedKernels) {
  const auto kernel = [](const std::string& index) {
    return compiled(
        "static __device__ const int table0[] = {0, 1, 2, 3};\n"
        "extern \"C\" __global__ void generated(const float* __restrict__ in0, float* __restrict__ out) {\n"
        "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  out[i] = in0[" +
            index + "];\n}\n",
        usual_options);
  };
  const cudaKernel_t right = kernel("table0[i]"), behind = kernel("i + 1"), outside = kernel("table0[i + 1] % 4");
  const float* from = filled(4);
  float* to = take(4);
  void* arguments[] = {static_cast<void*>(&from), static_cast<void*>(&to)};
  const auto launch = [&](cudaKernel_t one) { return cudaLaunchKernel(one, dim3(2), dim3(2), arguments, 0, stream); };
  EXPECT_EQ(launch(right), cudaSuccess);
  EXPECT_THAT(read(to, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(launch(behind), cudaSuccess);
  EXPECT_EQ(found(), "the generated kernel: block 1 thread 1 reads 0 B after an allocation of 16 B");
  emulator::forget_fault();
  EXPECT_EQ(launch(outside), cudaSuccess);
  EXPECT_EQ(found(), "the generated kernel: block 1 thread 1 reads outside a table");
}

TEST_F(Emulator, CompilesOnlyWithoutContractionAndForItself) {
  const std::string source = "extern \"C\" __global__ void generated(float* __restrict__ out) {}";
  EXPECT_NE(compiled(source, usual_options), nullptr);
  EXPECT_EQ(compiled(source, {"--gpu-architecture=sm_80"}), nullptr);
  EXPECT_EQ(compiled(source, {"--gpu-architecture=sm_90", "--fmad=false"}), nullptr);
  EXPECT_EQ(compiled("#include <math.h>\n" + source, usual_options), nullptr);
}

TEST_F(Emulator, RunsBarriersAndSharedMemory) {
  const float* from = filled(3 * threads);
  float* to = take(3);
  for (uint64_t seed = 1; seed <= 20; ++seed) {  // orders of blocks and threads
    seed_draws(seed);
    ASSERT_EQ(launch_tree(from, to, 3, stream), cudaSuccess);
    EXPECT_EQ(read(to, 3), block_sums(3));
  }
}

TEST_F(Emulator, RunsShuffles) {
  const float* from = filled(3 * threads);
  float* to = take(3);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    seed_draws(seed);
    ASSERT_EQ(launch_shuffles(from, to, 3, stream), cudaSuccess);
    EXPECT_EQ(read(to, 3), block_sums(3));
  }
}

TEST_F(Emulator, FindsAMissingBarrier) {
  static_cast<void>(launch_without_barrier(filled(threads), take(threads), 1, stream));
  EXPECT_THAT(found(),
              ::testing::ContainsRegex("faulty.cu:[0-9]+: block 0 thread [0-9]+ (reads|writes) (what|shared)"));
}

TEST_F(Emulator, FindsABarrierThatNotAllReach) {
  static_cast<void>(launch_divergent_barrier(take(threads), 1, stream));
  EXPECT_THAT(found(), HasSubstr("waits at a barrier that thread 5 does not reach"));
}

TEST_F(Emulator, FindsSharedMemoryThatItsBlockDidNotWrite) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    seed_draws(seed);
    emulator::forget_fault();
    static_cast<void>(launch_unwritten_shared(take(2 * threads), 2, stream));
    EXPECT_THAT(found(), HasSubstr("reads shared memory that its block did not write"));
  }
}

TEST_F(Emulator, FindsALaneThatDoesNotCome) {
  static_cast<void>(launch_missing_lane(take(threads), 1, stream));
  EXPECT_THAT(found(), HasSubstr("waits for lanes 0xffffffff, and not all of them come with this mask"));
}

TEST_F(Emulator, FindsThreadsThatWriteTheSameElement) {
  static_cast<void>(launch_all_write(take(1), 1, stream));
  EXPECT_THAT(found(), HasSubstr("with no barrier in between: byte 0 of an allocation of 4 B"));
}

TEST_F(Emulator, FindsBlocksThatReadEachOther) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {  // either may run first
    seed_draws(seed);
    emulator::forget_fault();
    static_cast<void>(launch_reads_other_block(take(2 * threads), 2, stream));
    EXPECT_THAT(found(), ::testing::AnyOf(HasSubstr("of another block wrote"), HasSubstr("of another block read"),
                                          HasSubstr("reads what was never written")));
  }
}

TEST_F(Emulator, FindsWhatIsReadOutsideAnAllocation) {
  static_cast<void>(launch_shifted(filled(threads), take(threads), 1, 1, stream));
  EXPECT_THAT(found(), HasSubstr("thread 63 reads 0 B after an allocation of 256 B"));
}

TEST_F(Emulator, FindsWhatWasNeverWritten) {
  static_cast<void>(launch_shifted(take(threads), take(threads), 0, 1, stream));
  EXPECT_THAT(found(), HasSubstr("reads what was never written: byte "));
}

TEST_F(Emulator, FindsAnAddressOfTheHost) {
  const std::vector<float> host(threads);
  static_cast<void>(launch_shifted(host.data(), take(threads), 0, 1, stream));
  EXPECT_THAT(found(), HasSubstr("which is the host's"));
}

TEST_F(Emulator, FindsMemoryOfAnotherGpu) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  void* other = nullptr;
  ASSERT_EQ(cudaMalloc(&other, 256), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  static_cast<void>(launch_shifted(filled(threads), static_cast<float*>(other), 0, 1, stream));
  EXPECT_THAT(found(), HasSubstr("of an allocation of 256 B on GPU 1"));
  emulator::forget_fault();
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaFree(other), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(Emulator, FindsVectorsAtOddPlaces) {
  const float* from = filled(4 * threads + 4);
  float* to = take(4 * threads);
  ASSERT_EQ(launch_vectors(reinterpret_cast<const float4*>(from), reinterpret_cast<float4*>(to), 1, stream),
            cudaSuccess);
  EXPECT_EQ(read(to, 6), (std::vector<float>{1, 1, 2, 3, 5, 5}));
  static_cast<void>(
      launch_vectors(reinterpret_cast<const float4*>(from + 1), reinterpret_cast<float4*>(to), 1, stream));
  EXPECT_THAT(found(), HasSubstr("at an address where its type cannot lie"));
}

// Two streams without an event between them run in either order; what one stream was told runs in its own.
TEST_F(Emulator, RunsStreamsInAnyOrder) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  float* at = take(1);
  const float ones[] = {1, 2, 3};
  int first = 0, last = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    seed_draws(seed);
    for (const float* value : {&ones[0], &ones[1]})
      ASSERT_EQ(cudaMemcpyAsync(at, value, sizeof(float), cudaMemcpyHostToDevice, stream), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(at, &ones[2], sizeof(float), cudaMemcpyHostToDevice, other), cudaSuccess);
    cudaEvent_t event = nullptr, here = nullptr;
    ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
    ASSERT_EQ(cudaEventCreate(&here), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(event, other), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(here, stream), cudaSuccess);
    ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
    ASSERT_EQ(cudaEventSynchronize(here), cudaSuccess);
    const float value = read(at, 1)[0];
    EXPECT_TRUE(value == 2 || value == 3) << value;
    ++(value == 2 ? last : first);
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(here), cudaSuccess);
  }
  EXPECT_GT(first, 0);
  EXPECT_GT(last, 0);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

// What is captured runs when the graph does, as often as it does; its events are reached anew.
TEST_F(Emulator, RunsGraphs) {
  const float* from = filled(threads);
  float* to = take(1);
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(launch_tree(from, to, 1, stream), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorInvalidValue);
  ASSERT_EQ(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal), cudaSuccess);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 4), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  const float zero = 0;
  for (int times = 0; times < 2; ++times) {
    ASSERT_EQ(cudaMemcpyAsync(to, &zero, sizeof(float), cudaMemcpyHostToDevice, stream), cudaSuccess);
    EXPECT_EQ(read(to, 1)[0], 0);
    ASSERT_EQ(cudaGraphLaunch(ready, stream), cudaSuccess);
    ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
    EXPECT_EQ(read(to, 1), block_sums(1));
  }
  EXPECT_EQ(cudaGraphExecDestroy(ready), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(Emulator, RefusesCopiesThatDoNotFit) {
  float* at = take(4);
  float host[8] = {};
  EXPECT_EQ(cudaMemcpyAsync(at, host, 16, cudaMemcpyDeviceToHost, stream), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(at, at + 1, 8, cudaMemcpyDeviceToDevice, stream), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy2DAsync(at, 4, at, 4, 8, 1, cudaMemcpyDeviceToDevice, stream), cudaErrorInvalidPitchValue);
  EXPECT_EQ(cudaFree(at + 1), cudaErrorInvalidValue);
  static_cast<void>(cudaMemcpyAsync(at, host, 20, cudaMemcpyHostToDevice, stream));
  EXPECT_THAT(found(), HasSubstr("a copy writes 0 B after an allocation of 16 B"));
}

TEST_F(Emulator, RefusesCopiesOfWhatIsPageLockedInPart) {
  constexpr size_t page = 4096;
  const std::unique_ptr<void, decltype(&std::free)> pages(std::aligned_alloc(page, 3 * page), &std::free);
  auto* const host = static_cast<std::byte*>(pages.get());
  std::memset(host, 0, 3 * page);
  float* at = take(3 * page / sizeof(float));
  ASSERT_EQ(cudaHostRegister(host + page, page, 0), cudaSuccess);
  const auto copy_in = [&](size_t begin, size_t end) {
    return cudaMemcpyAsync(at, host + begin, end - begin, cudaMemcpyHostToDevice, stream);
  };
  EXPECT_EQ(copy_in(0, page), cudaSuccess);
  EXPECT_EQ(copy_in(page, 2 * page), cudaSuccess);
  EXPECT_EQ(copy_in(page - 4, page + 4), cudaErrorInvalidValue);
  EXPECT_EQ(copy_in(2 * page - 4, 2 * page + 4), cudaErrorInvalidValue);
  EXPECT_EQ(copy_in(0, 3 * page), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(host, at, page + 4, cudaMemcpyDeviceToHost, stream), cudaErrorInvalidValue);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(host + page), cudaSuccess);
}

using EmulatorDeathTest = Emulator;
TEST_F(EmulatorDeathTest, TheHostCannotTouchTheMemory) {
  const float* at = filled(threads);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  emulator::lock_memory();
  EXPECT_DEATH(static_cast<void>(*const_cast<const volatile float*>(at)), "");
}

TEST_F(Emulator, KnowsWhatIsNotGivenBack) {
  cublasLtMatmulPreference_t preference = nullptr;
  const size_t before = emulator::objects();
  ASSERT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(emulator::objects(), before + 1);
  EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_SEARCH_MODE, &before, sizeof(before)),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace nlsplit
