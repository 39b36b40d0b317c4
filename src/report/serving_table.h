// How requests fared, as text.
#pragma once

#include <string>

#include "serving/served.h"

namespace nlsplit::inline report {

std::string serving_text(const ServingSummary& summary);

}  // namespace nlsplit::inline report
