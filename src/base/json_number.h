// Integers from JSON that somebody else may have written: nlohmann's get<int>() converts 4e24 to whatever comes out.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace nlsplit::inline base {

// Throws json::type_error, as get<T>() does, for what is no integer or does not fit T.
template <typename T>
T whole_number(const nlohmann::json& value) {
  const auto fits = [](auto number) { return std::in_range<T>(number); };
  if (value.is_number_unsigned() ? fits(value.get<uint64_t>())
                                 : value.is_number_integer() && fits(value.get<int64_t>()))
    return value.get<T>();
  throw nlohmann::json::type_error::create(302,
                                           fmt::format("{} is not an integer from {} to {}", value.dump(),
                                                       std::numeric_limits<T>::min(), std::numeric_limits<T>::max()),
                                           &value);
}

}  // namespace nlsplit::inline base
