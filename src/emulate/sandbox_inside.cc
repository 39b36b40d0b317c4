#include "emulate/sandbox_inside.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <thread>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/units.h"
#include "emulate/kernel_links.h"
#include "emulate/namespaces.h"
#include "emulate/packet_switch.h"
#include "emulate/private_etc.h"

namespace nlsplit::inline emulation {
namespace {

namespace fs = std::filesystem;

// TCP between places is a pipe that the links alone shape: it starts with its full window, does not shrink it after a
// pause, and takes no loss it did not see for one.
constexpr int mtu = 9000;
constexpr int initial_window = 2000;  // segments: 18 MB
constexpr const char* congestion = "reno";
constexpr int queue = 10'000;  // packets: more than any window
// The window of a connection that knows nothing yet: the kernel's own limit for sending, or twice what the links hold.
constexpr double least_window = 4 << 20;
// A piece arrives whole, and TCP takes 200 ms of silence for a loss: no piece may last nearly so long, however slow the
// slowest link of a place.
constexpr double longest_piece_s = 50e-3;

// TCP gives a connection up after 13 s in which nothing came through, and not after 15 minutes: mpirun waits for that.
constexpr const char* tries_over_a_cut = "5";

std::string cpus_file(const std::string& place) { return fmt::format("{}/cpus/{}", sandbox_folder, place); }

Status mount_over(const char* type, const char* where, unsigned long flags) {
  if (::mount(type, where, type, flags, nullptr) != 0) return system_error(fmt::format("cannot mount {}", where));
  return ok_status();
}

// What is mounted from here on nobody outside sees. In a chroot / is no mount point, and what holds it cannot be named:
// a copy of all that is mounted, which lies over /proc, becomes /.
Status make_mounts_private() {
  constexpr unsigned long all_private = MS_REC | MS_PRIVATE;
  if (::mount("none", "/", nullptr, all_private, nullptr) == 0) return ok_status();
  if (errno != EINVAL) return system_error("cannot make / private");
  std::error_code failure;
  const fs::path here = fs::current_path(failure);
  if (::mount("none", "/proc", nullptr, all_private, nullptr) != 0 ||
      ::mount("/", "/proc", nullptr, MS_BIND | MS_REC, nullptr) != 0 || ::chroot("/proc") != 0 ||
      ::chdir(failure ? "/" : here.c_str()) != 0 || ::mount("none", "/", nullptr, all_private, nullptr) != 0)
    return system_error("cannot make / private in a chroot");
  return ok_status();
}

Status make_files(const EmulatedNetwork& network, const SandboxOptions& options, const std::string& program) {
  RETURN_IF_ERROR(make_mounts_private());
  RETURN_IF_ERROR(mount_over("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV));
  // Refused in some containers; then `ps` sees what is outside, and nothing else is different.
  const Status own_proc = mount_over("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC);
  (void)own_proc;
  std::error_code failure;
  for (const char* folder : {"", "/net", "/bin", "/cpus"})
    fs::create_directories(std::string(sandbox_folder) + folder, failure);
  fs::create_symlink(program, std::string(sandbox_folder) + "/bin/on", failure);
  if (failure) return io_error(fmt::format("{}: {}", sandbox_folder, failure.message()));
  std::string names = "127.0.0.1 localhost\n";
  for (size_t p = 0; p < network.places.size(); ++p)
    names += fmt::format("{} {}\n", address_text(p), network.places[p].name);
  for (const Place& place : network.places)
    RETURN_IF_ERROR(write_file(cpus_file(place.name), fmt::format("{}", fmt::join(place.cpus, " "))));
  for (const auto& [name, content] : options.files)
    RETURN_IF_ERROR(write_file(fmt::format("{}/{}", sandbox_folder, name), content));
  return mount_private_etc(sandbox_folder, names);
}

double slowest_link(const EmulatedNetwork& network, size_t place) {
  double slowest = std::numeric_limits<double>::infinity();
  for (size_t to = 0; to < network.places.size(); ++to) {
    for (const int link : network.route(place, to).links)
      slowest = std::min(slowest, network.rates[static_cast<size_t>(link)]);
  }
  return slowest;
}

// In a new network namespace, which then is that of the calling thread.
Result<Port> make_place(const EmulatedNetwork& network, size_t number, int outside, NetworkSettings& settings) {
  RETURN_IF_ERROR(make_namespace(network.places[number].name));
  const double window = std::max(least_window, 2 * most_in_flight(network));
  const std::string sizes = fmt::format("4096 {:.0f} {:.0f}", window, 2 * window);
  settings.set("ipv6/conf/all/disable_ipv6", "1");
  settings.set("ipv4/tcp_slow_start_after_idle", "0");
  settings.set("ipv4/tcp_no_metrics_save", "1");
  settings.set("ipv4/tcp_rmem", sizes);
  settings.set("ipv4/tcp_wmem", fmt::format("4096 16384 {:.0f}", window));
  if (!network.cuts.empty()) settings.set("ipv4/tcp_retries2", tries_over_a_cut);
  InterfaceOptions options;
  options.address = first_address + static_cast<uint32_t>(number);
  options.mtu = mtu;
  options.queue = queue;
  options.initial_window = initial_window;
  options.congestion = congestion;
  const double piece = slowest_link(network, number) * longest_piece_s;
  if (piece < 65536) options.largest_burst = std::max(2 * mtu, static_cast<int>(piece));
  return Port::open(options, outside, number);
}

Result<Descriptor> our_namespace() {
  Descriptor found(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (found.get() < 0) return system_error("/proc/thread-self/ns/net").error();
  return found;
}

Status go_back(const Descriptor& outside) {
  if (::setns(outside.get(), CLONE_NEWNET) != 0) return system_error("cannot leave a network namespace");
  return ok_status();
}

Result<std::vector<Port>> make_places(const EmulatedNetwork& network) {
  ASSIGN_OR_RETURN(const Descriptor outside, our_namespace());
  std::vector<Port> ports;
  NetworkSettings settings;
  for (size_t p = 0; p < network.places.size(); ++p) {
    ASSIGN_OR_RETURN(Port port, make_place(network, p, outside.get(), settings));
    ports.push_back(std::move(port));
    RETURN_IF_ERROR(go_back(outside));
  }
  settings.report();
  return ports;
}

// The switch that carries packets; none where the kernel does.
Result<std::unique_ptr<PacketSwitch>> connect(const EmulatedNetwork& network) {
  if (network.kernel_links) {
    ASSIGN_OR_RETURN(const Descriptor outside, our_namespace());
    RETURN_IF_ERROR(make_kernel_links(*network.kernel_links));
    RETURN_IF_ERROR(go_back(outside));
    return std::unique_ptr<PacketSwitch>();
  }
  ASSIGN_OR_RETURN(std::vector<Port> ports, make_places(network));
  return std::make_unique<PacketSwitch>(network, std::move(ports));
}

Status stay_on_cpus(const std::string& place) {
  std::ifstream file(cpus_file(place));
  cpu_set_t own;
  CPU_ZERO(&own);
  for (int cpu; file >> cpu;) CPU_SET(cpu, &own);
  if (CPU_COUNT(&own) > 0 && ::sched_setaffinity(0, sizeof(own), &own) != 0)
    return system_error(fmt::format("cannot stay on the processors of host '{}'", place));
  return ok_status();
}

Status go_to(const std::string& place) {
  RETURN_IF_ERROR(enter_namespace(place));
  if (::unshare(CLONE_NEWUTS) != 0 || ::sethostname(place.c_str(), place.size()) != 0)
    return system_error("cannot set the host's name");
  return stay_on_cpus(place);
}

[[noreturn]] void become(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  const int code = errno == ENOENT ? 127 : 126;  // as shells have it
  std::fprintf(stderr, "error: cannot start %s: %s\n", argv[0], std::strerror(errno));
  ::_exit(code);
}

[[noreturn]] void give_up(const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.to_string().c_str());
  std::fflush(nullptr);
  ::_exit(exit_code(error));
}

// Waking a core that sleeps takes tens of microseconds, several times a round trip. As long as we hold this open, idle
// cores do not sleep, and still yield to whoever has work. Only the machine's root may ask for it.
void keep_cores_awake() {
  const int fd = ::open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC);  // open until the end of this process
  const int32_t microseconds = 0;
  if (fd >= 0 && ::write(fd, &microseconds, sizeof(microseconds)) != sizeof(microseconds)) ::close(fd);
}

// Reaps everyone's orphans until the command itself has ended; passes on what the outer process was sent.
int wait_for_command(pid_t command, const sigset_t& signals) {
  for (;;) {
    int status = 0;
    for (pid_t gone; (gone = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (gone == command) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&signals, &info);
    if (signal > 0 && signal != SIGCHLD && info.si_code == SI_USER) ::kill(command, signal);
  }
}

// The command's exit code; packets are carried until it ends.
int carry_until_end(PacketSwitch* wires, pid_t command, const sigset_t& signals) {
  if (wires == nullptr) return wait_for_command(command, signals);
  std::thread thread([wires] { wires->run(); });
  const int code = wait_for_command(command, signals);
  wires->stop();
  thread.join();
  return code;
}

std::string what_happened(const EmulatedNetwork& network, const PacketSwitch* wires) {
  NetworkCounts counts;
  for (const Place& place : network.places) {
    if (enter_namespace(place.name).ok()) add_counts(port_interface, counts);
  }
  if (wires == nullptr) {
    return fmt::format("{} in {} packets over the kernel's token buckets, {} sent again",
                       to_string(bytes(static_cast<int64_t>(counts.bytes))), counts.packets, counts.sent_again);
  }
  SwitchReport report = wires->report();
  report.lost += counts.dropped;
  report.sent_again += counts.sent_again;
  return to_string(report);
}

}  // namespace

void live_inside(const EmulatedNetwork& network, const SandboxOptions& options, const std::string& program,
                 const sigset_t& mask, int alive) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  char none;
  if (::read(alive, &none, 1) == 0) ::_exit(1);  // it was gone before we asked for the signal
  keep_cores_awake();
  const Status files = make_files(network, options, program);
  if (!files.ok()) give_up(files.error());
  const auto wires = connect(network);
  if (!wires.ok()) give_up(wires.error());

  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaddset(&signals, signal);
  const pid_t command = ::fork();
  if (command < 0) give_up(system_error("fork").error());
  if (command == 0) {
    const Status gone = go_to(network.places[options.head].name);
    if (!gone.ok()) give_up(gone.error());
    for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
    become(options.command);
  }
  const int code = carry_until_end(wires->get(), command, signals);
  if (!options.quiet) std::fprintf(stderr, "emulation: %s\n", what_happened(network, wires->get()).c_str());
  std::fflush(nullptr);
  ::_exit(code);
}

Error run_on_place(const std::string& place, const std::vector<std::string>& words) {
  const Status gone = go_to(place);
  if (!gone.ok()) return gone.error();
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
  become({"sh", "-c", line});
}

}  // namespace nlsplit::inline emulation
