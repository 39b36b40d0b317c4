// A GPU that is none, for tests: the CPU that stands in, but it has two devices, does what is on a stream as late as it
// may, and fails when it is told to. A module like the real one: what it is told goes through two functions more.
//
//   const auto fail = reinterpret_cast<FakeFail>(dlsym(handle, "fake_gpu_fail"));
//   fail("launch", 3);      // the third launch from now on; ("", 0): nothing fails any more
//   fail("hang", 3);        // the third wait does not return until fail() is told something else
#pragma once

namespace nlsplit::testing {

using FakeFail = void (*)(const char* function, int nth);
using FakeCalls = int (*)(const char* function);  // how often it has been called since the last fake_gpu_fail

}  // namespace nlsplit::testing
