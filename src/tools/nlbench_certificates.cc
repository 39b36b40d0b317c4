#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "exec/grpc/certificates.h"
#include "tools/exit.h"
#include "tools/nlbench_commands.h"

namespace nlsplit::inline tools {
namespace {

struct CertificatesArguments {
  std::string folder;
  int days = 365;
  bool renew = false;
};

Status make(const CertificatesArguments& arguments) {
  struct stat there {};
  if (!arguments.renew && ::stat(arguments.folder.c_str(), &there) == 0)
    return invalid_input(arguments.folder + " exists already: --renew replaces it, and workers need the new one");
  RETURN_IF_ERROR(make_credentials(arguments.folder, arguments.days));
  fmt::print("{0}: valid for {1} days. Copy it to each machine: scp -rp {0} HOST:\n", arguments.folder, arguments.days);
  return ok_status();
}

}  // namespace

void add_certificates_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "certificates",
      "Make the folder of certificates for `--tls DIR` of nlbench worker and of the commands that start runs.\n"
      "  nlbench certificates -o keys\n"
      "  scp -rp keys b:\n"
      "Anyone with a copy can start runs on the workers, and be a worker. The key of the certificates' authority is\n"
      "deleted: another call makes another authority.");
  const auto a = std::make_shared<CertificatesArguments>();
  command->add_option("-o,--output", a->folder, "The folder to make")->required()->type_name("DIR");
  command->add_option("--days", a->days, "How many days they are valid (default 365)")->check(CLI::Range(1, 36500));
  command->add_flag("--renew", a->renew, "Replace an existing folder");
  command->callback([a, &code] { code = end_command(make(*a)); });
}

}  // namespace nlsplit::inline tools
