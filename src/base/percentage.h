// Shares as users write them: "30%".
#pragma once

#include <string_view>

#include "base/result.h"

namespace nlsplit::inline base {

// "30%" → 0.3. Negative ones, too: which percentages make sense is the caller's business. Errors have the whole text as
// their fragment, as those of base/units.h.
Result<double> parse_percentage(std::string_view text);

}  // namespace nlsplit::inline base
