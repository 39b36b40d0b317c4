// The page that `nlbench validate` writes.
#pragma once

namespace nlsplit::inline reports {

// page.html, with @DATA@ where its data belong.
extern const char* const validation_page;

}  // namespace nlsplit::inline reports
