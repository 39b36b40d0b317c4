// What each pass of compile() made, as text: for `nlsim lower --passes` and for tests.
#pragma once

#include <string>

#include "compile/lowering.h"

namespace nlsplit::inline compiler {

std::string print_kernels(const KernelGraph& graph);
std::string print_split(const KernelGraph& parts, const Plan& plan, const Cluster& cluster);
std::string print_placement(const Lowering& lowering);
std::string print_schedule(const Lowering& lowering);
std::string print_messages(const Lowering& lowering);
std::string print_program(const Lowering& lowering);

}  // namespace nlsplit::inline compiler
