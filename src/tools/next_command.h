// How to call our programs from where the user is, for the commands that nlsim prints.
#pragma once

#include <string>

namespace nlsplit::inline tools {

// "nlbench" where the shell finds one, else the path of the one beside this program, from the current folder if it is
// in there.
std::string program_here(const std::string& name);

}  // namespace nlsplit::inline tools
