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
#include <sstream>
#include <thread>

#include "base/file.h"
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

Status system_error(const std::string& what) { return io_error(fmt::format("{}: {}", what, std::strerror(errno))); }

std::string place_file(const std::string& place) { return fmt::format("{}/net/{}", sandbox_folder, place); }

std::string cpus_file(const std::string& place) { return fmt::format("{}/cpus/{}", sandbox_folder, place); }

// Settings of the namespace we are in. Where /proc/sys cannot be written they stay as they are, and `left` names them.
void set(const std::string& name, const std::string& value, std::string& left) {
  const int fd = ::open(("/proc/sys/net/" + name).c_str(), O_WRONLY | O_CLOEXEC);
  const bool done = fd >= 0 && ::write(fd, value.data(), value.size()) == static_cast<ssize_t>(value.size());
  if (fd >= 0) ::close(fd);
  if (!done && left.find(name) == std::string::npos) left += " " + name;
}

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
Result<Port> make_place(const EmulatedNetwork& network, size_t number, int outside, std::string& left) {
  if (::unshare(CLONE_NEWNET) != 0) return system_error("cannot make a network namespace").error();
  const double window = std::max(least_window, 2 * most_in_flight(network));
  const std::string sizes = fmt::format("4096 {:.0f} {:.0f}", window, 2 * window);
  set("ipv6/conf/all/disable_ipv6", "1", left);
  set("ipv4/tcp_slow_start_after_idle", "0", left);
  set("ipv4/tcp_no_metrics_save", "1", left);
  set("ipv4/tcp_rmem", sizes, left);
  set("ipv4/tcp_wmem", fmt::format("4096 16384 {:.0f}", window), left);
  if (!network.cuts.empty()) set("ipv4/tcp_retries2", tries_over_a_cut, left);
  RETURN_IF_ERROR(raise_loopback());
  InterfaceOptions options;
  options.address = first_address + static_cast<uint32_t>(number);
  options.mtu = mtu;
  options.queue = queue;
  options.initial_window = initial_window;
  options.congestion = congestion;
  const double piece = slowest_link(network, number) * longest_piece_s;
  if (piece < 65536) options.largest_burst = std::max(2 * mtu, static_cast<int>(piece));
  ASSIGN_OR_RETURN(Port port, Port::open(options, outside, number));
  const std::string file = place_file(network.places[number].name);
  RETURN_IF_ERROR(write_file(file, ""));
  if (::mount("/proc/self/ns/net", file.c_str(), nullptr, MS_BIND, nullptr) != 0)
    return system_error("cannot name a network namespace").error();
  return port;
}

Result<std::vector<Port>> make_places(const EmulatedNetwork& network) {
  const int outside = ::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  if (outside < 0) return system_error("/proc/self/ns/net").error();
  std::vector<Port> ports;
  std::string left;
  for (size_t p = 0; p < network.places.size(); ++p) {
    ASSIGN_OR_RETURN(Port port, make_place(network, p, outside, left));
    ports.push_back(std::move(port));
    if (::setns(outside, CLONE_NEWNET) != 0) return system_error("cannot leave a network namespace").error();
  }
  ::close(outside);
  if (!left.empty()) {
    std::fprintf(stderr, "emulation: /proc/sys cannot be written here, so TCP may be slow to fill the links:%s\n",
                 left.c_str());
  }
  return ports;
}

// What the kernel counted in the namespace we are in: packets its interface threw away, TCP segments sent again.
void add_counts(SwitchReport& report) {
  std::ifstream interfaces("/proc/thread-self/net/dev");
  for (std::string line; std::getline(interfaces, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name != std::string(port_interface) + ":") continue;
    uint64_t number = 0;
    for (int column = 0; column < 12; ++column) words >> number;  // eight of receiving; bytes, packets, errors, drops
    report.lost += number;
  }
  std::ifstream protocols("/proc/thread-self/net/snmp");
  std::vector<std::string> names;
  for (std::string line; std::getline(protocols, line);) {
    if (!line.starts_with("Tcp:")) continue;
    std::istringstream words(line);
    std::vector<std::string> values;
    for (std::string word; words >> word;) values.push_back(word);
    if (names.empty()) {
      names = values;
      continue;
    }
    for (size_t i = 0; i < std::min(names.size(), values.size()); ++i) {
      if (names[i] == "RetransSegs") report.sent_again += std::strtoull(values[i].c_str(), nullptr, 10);
    }
  }
}

bool enter_network(const std::string& place) {
  const int fd = ::open(place_file(place).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool entered = ::setns(fd, CLONE_NEWNET) == 0;
  ::close(fd);
  return entered;
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
  if (!enter_network(place)) return system_error(fmt::format("cannot go to host '{}'", place));
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

}  // namespace

void live_inside(const EmulatedNetwork& network, const SandboxOptions& options, const std::string& program,
                 const sigset_t& mask, int alive) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  char none;
  if (::read(alive, &none, 1) == 0) ::_exit(1);  // it was gone before we asked for the signal
  keep_cores_awake();
  const Status files = make_files(network, options, program);
  if (!files.ok()) give_up(files.error());
  auto ports = make_places(network);
  if (!ports.ok()) give_up(ports.error());

  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaddset(&signals, signal);
  PacketSwitch wires(network, std::move(ports).value());
  const pid_t command = ::fork();
  if (command < 0) give_up(system_error("fork").error());
  if (command == 0) {
    const Status gone = go_to(network.places[options.head].name);
    if (!gone.ok()) give_up(gone.error());
    for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
    become(options.command);
  }
  std::thread thread([&wires] { wires.run(); });
  const int code = wait_for_command(command, signals);
  wires.stop();
  thread.join();
  if (!options.quiet) {
    SwitchReport report = wires.report();
    for (const Place& place : network.places) {
      if (enter_network(place.name)) add_counts(report);
    }
    std::fprintf(stderr, "emulation: %s\n", to_string(report).c_str());
  }
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
