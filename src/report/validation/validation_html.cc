#include <string_view>

#include "report/validation/page.h"
#include "report/validation/validation_data.h"
#include "report/validation/validation_report.h"

namespace nlsplit::inline reports {
namespace {

// Within a script element "</" and "<!--" would end or change it.
std::string embedded(std::string text) {
  constexpr std::string_view escaped = "\\u003c";
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos; at += escaped.size())
    text.replace(at, 1, escaped);
  return text;
}

}  // namespace

std::string validation_html(const PlanSet& set, const std::vector<ValidatedPlan>& plans, const Findings& findings) {
  constexpr std::string_view mark = "@DATA@";
  std::string page = validation_page;
  const std::string data =
      validation_data(set, plans, findings, true).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return page.replace(page.find(mark), mark.size(), embedded(data));
}

}  // namespace nlsplit::inline reports
