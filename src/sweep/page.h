#pragma once

namespace nlsplit {

// page.html, with @DATA@ where its data belong.
extern const char* const sweep_page;

}  // namespace nlsplit
