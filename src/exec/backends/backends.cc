#include "exec/backends/backends.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "exec/backends/cpu.h"
#include "exec/backends/cuda.h"

namespace nlsplit::inline exec {

std::span<const BackendRow> all_backends() {
  static constexpr std::array<BackendRow, 3> rows = {{
      {DeviceKind::cpu, open_cpu},
      {DeviceKind::cuda, open_cuda},
      {DeviceKind::host, open_cpu},  // its messages are packed and unpacked by the CPU
  }};
  return rows;
}

Result<std::unique_ptr<Backend>> open_backend(const BackendContext& context) {
  const auto rows = all_backends();
  const auto row = std::ranges::find(rows, context.own().kind, &BackendRow::kind);
  CHECK(row != rows.end(), "a row for each kind of device");
  return row->open(context);
}

}  // namespace nlsplit::inline exec
