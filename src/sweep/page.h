// The page that `nlsim sweep` writes.
#pragma once

namespace nlsplit::inline sweeps {

// page.html, with @DATA@ where its data belong.
extern const char* const sweep_page;

}  // namespace nlsplit::inline sweeps
