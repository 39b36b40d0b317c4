// NCCL that is none, for tests on the emulated GPU (tests/gpu/emulator): the functions of exec/nccl/nccl_api.h under
// NCCL's own names. Ranks are threads, processes, or both: they meet in a folder, and bytes travel as files there. So
// it is slow, and nothing of NVIDIA's code is in it.
//
// It keeps what NCCL says of its calls, and answers ncclInvalidUsage with a clear ncclGetLastError where they break it:
// groups that are not balanced; a communicator that is not there (any more), or not ready; a second rank on a GPU;
// peers that are not there; streams of another GPU; a send and a receive, matched by their order alone, of different
// sizes; a communicator that is given up while operations are under way. A send waits on its stream for its receive.
// Stricter than NCCL, it takes one group at a time of a GPU: exec/nccl/pairing.h promises that.
//
//   const auto fail = reinterpret_cast<FakeNcclFail>(dlsym(handle, "fake_nccl_fail"));
//   fail("ncclGroupEnd", 3);     // the third one from now on fails, of any rank of this process; ("", 0): none
//
// Functions: their names; "async": ncclCommGetAsyncError tells of an error; ("version", 21005): it is NCCL 2.10.5.
#pragma once

namespace nlsplit::testing {

using FakeNcclFail = void (*)(const char* function, int nth);
using FakeNcclCalls = int (*)(const char* function);  // how often it has been called since the last fake_nccl_fail
using FakeNcclLeft = int (*)();                       // communicators that nobody has destroyed or aborted

// The folder of folders: $NLS_FAKE_NCCL, else /tmp.
inline constexpr const char* fake_nccl_folder = "NLS_FAKE_NCCL";

}  // namespace nlsplit::testing
