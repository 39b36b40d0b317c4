#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "base/file.h"
#include "base/interrupts.h"
#include "exec/run_threads.h"
#include "report/table.h"
#include "server/service.h"
#include "text/read_tokenizer.h"
#include "tools/exit.h"
#include "tools/nlbench_commands.h"
#include "tools/nlbench_generation_job.h"
#include "tools/nlbench_ranks.h"
#include "tools/serving_options.h"

namespace nlsplit::inline tools {
namespace {

struct ServeArguments {
  JobArguments plan;
  RanksArguments ranks;
  HttpOptions http{.port = 8080};
  std::string tokenizer, token_file, model, port_file;
  int64_t waiting = -1;  // -1: as many as there are slots
  bool no_reuse = false;
};

// What rank 0 has read, and serves.
struct Serving {
  GenerationJob job;
  Tokenizer tokenizer;
  Result<ChatTemplate> chat;
  std::string token;  // empty: none is wanted
};

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

// The first line of the file.
Result<std::string> read_token(const std::string& path) {
  ASSIGN_OR_RETURN(std::string content, read_file(path));
  content.resize(std::min(content.size(), content.find_first_of("\r\n")));
  const bool printable = std::ranges::all_of(content, [](char c) { return c > ' ' && c < 127; });
  if (content.empty() || !printable)
    return invalid_input(fmt::format("{}: its first line is not a token of letters, digits and marks", path));
  return content;
}

Result<Serving> read_serving(const ServeArguments& arguments) {
  if (!is_loopback(arguments.http.address) && arguments.token_file.empty())
    return invalid_input(
        fmt::format("--host {}: whoever reaches this address could use the model: give --token-file, a "
                    "file with a secret that requests must bring",
                    arguments.http.address));
  if (arguments.ranks.heartbeat_s == 0 && arguments.ranks.watchdog_s > 0)
    return invalid_input(
        "--heartbeat 0: without it ranks cannot tell an idle server from one that hangs: add --watchdog 0");
  std::string token;
  if (!arguments.token_file.empty()) {
    ASSIGN_OR_RETURN(token, read_token(arguments.token_file));
  }
  ASSIGN_OR_RETURN(GenerationJob job, read_generation_job(arguments.plan));
  if (job.form.hands_over) return prefill_is_not_served();
  const std::string path = arguments.tokenizer.empty() ? job.tokenizer_path() : arguments.tokenizer;
  if (path.empty())
    return invalid_input("requests and answers are text, and this model has no tokenizer: --tokenizer FILE");
  ASSIGN_OR_RETURN(Tokenizer tokenizer, read_tokenizer(path));
  return Serving{std::move(job), std::move(tokenizer), read_chat_template(path), std::move(token)};
}

// "SmolLM2-135M-Instruct.Q4_1" of "models/SmolLM2-135M-Instruct.Q4_1.gguf?…".
std::string name_of_model(const Serving& serving, const ServeArguments& arguments) {
  if (!arguments.model.empty()) return arguments.model;
  const std::string path = serving.job.tokenizer_path();
  if (path.ends_with(".gguf")) return std::filesystem::path(path).stem();
  if (!path.empty()) return std::filesystem::path(path).parent_path().filename();
  const std::string& of_session = serving.job.session().name;  // "llama [its plan]"
  return of_session.substr(0, of_session.find(" ["));
}

std::string url_of(const std::string& address, uint16_t port) {
  return fmt::format("http://{}:{}", address.find(':') == std::string::npos ? address : "[" + address + "]", port);
}

// What rank 0 has read, and where it listens.
class OpenServer {
 public:
  // Clients may connect from now on; they are answered once it runs. `arguments` is borrowed.
  static Result<std::unique_ptr<OpenServer>> open(const ServeArguments& arguments) {
    ASSIGN_OR_RETURN(Serving serving, read_serving(arguments));
    auto server = std::make_unique<OpenServer>(arguments, std::move(serving));
    RETURN_IF_ERROR(server->listen());
    return server;
  }
  OpenServer(const ServeArguments& arguments, Serving serving)
      : arguments_(arguments),
        serving_(std::move(serving)),
        engine_(serving_.job.form, arguments.waiting < 0 ? serving_.job.form.sequences : arguments.waiting,
                arguments.no_reuse ? PrefixReuse::off : PrefixReuse::on),
        service_(service_options(), serving_.tokenizer, serving_.chat, serving_.job.form, engine_) {}

  // HTTP on a thread of its own, beside a session that runs on this one.
  Status run(const RunOnRanks& session) {
    const GenerationForm& form = serving_.job.form;
    if (!form.keeps_positions && !arguments_.no_reuse)
      fmt::print(stderr, "nlbench: prompts are computed whole: this model's states cannot be cut to a prefix\n");
    if (!serving_.chat.ok()) fmt::print(stderr, "nlbench: no conversations: {}\n", serving_.chat.error().to_string());
    const std::string pages =
        form.page == 0 ? std::string() : fmt::format(" in {} of {}", counted(form.pages, "page"), form.page);
    fmt::print(stderr, "nlbench: {} serves {} at once, {} positions each{}, at {}\n",
               name_of_model(serving_, arguments_), counted(form.sequences, "request"), form.context, pages,
               url_of(arguments_.http.address, http_->port()));
    std::thread thread([this] { http_->run(); });
    const Result<SessionResult> result =
        session(serving_.job.session(), serving_.job.job(), engine_.choices(interrupted));
    engine_.fail();  // of a session that ended by itself there are none left
    write_after_interrupt(arguments_.http.goodbye_s + 1);
    http_->stop();
    thread.join();
    return result.ok() ? ok_status() : Status(result.error());
  }

 private:
  ServiceOptions service_options() {
    ServiceOptions options{
        .model = name_of_model(serving_, arguments_), .token = serving_.token, .created = std::time(nullptr)};
    if (const auto& of = serving_.job.loaded.saved.generation) options.tokens = of->tokens;
    options.answers = [this] { return http_->answers(); };
    return options;
  }

  Status listen() {
    ASSIGN_OR_RETURN(http_, HttpServer::open(arguments_.http, [this](HttpRequest request, const HttpReply& reply) {
                       service_.handle(std::move(request), reply);
                     }));
    return arguments_.port_file.empty() ? ok_status()
                                        : write_file(arguments_.port_file, fmt::format("{}\n", http_->port()));
  }

  const ServeArguments& arguments_;
  const Serving serving_;
  Engine engine_;
  Service service_;
  std::unique_ptr<HttpServer> http_;
};

RunOptions options_of(const ServeArguments& arguments) {
  RunOptions options = run_options(arguments.ranks);
  options.leave_states = true;
  options.keep_choices = false;
  options.cancelled = nullptr;  // an execution under way ends; then rank 0 ends the session for all
  return options;
}

int serve_command(const ServeArguments& arguments) {
  if (arguments.ranks.hosts.asked) return print_session_hosts(arguments.plan, arguments.ranks);
  return run_session_command(
      arguments.ranks, options_of(arguments), [&] { return OpenServer::open(arguments); },
      [](const std::unique_ptr<OpenServer>& server, const RunOnRanks& run) { return server->run(run); });
}

}  // namespace

void add_serve_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "serve",
      "Serve a language model that is split over machines, over OpenAI's interface (docs/serving.md).\n"
      "  mpirun -np 2 nlbench serve S.yaml --plan 1 --port 8080\n"
      "  nlbench serve S.yaml --plan 1 --transport threads\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": "
      "\"Hi\"}]}'\n"
      "The scenario has `workload: {mode: generation, sequences: N, …}`: N requests run at once. With `page: 16` they "
      "share a cache in pages. "
      "Routes: POST "
      "/v1/completions, /v1/chat/completions; GET /v1/models, /health, /metrics. It ends at SIGINT or SIGTERM.");
  const auto a = std::make_shared<ServeArguments>();
  add_session_options(*command, a->plan,
                      "A scenario (.yaml), or a folder saved by `nlsim lower S --session --save DIR`");
  add_ranks_options(*command, a->ranks);
  command->add_option("--host", a->http.address, "The address of this machine to listen at (default 127.0.0.1)")
      ->type_name("ADDRESS");
  command->add_option("--port", a->http.port, "Port to listen at; 0: one that is free (default 8080)")
      ->check(CLI::Range(0, 65535));
  command->add_option("--port-file", a->port_file, "Write the port to FILE when the server is ready")
      ->type_name("FILE");
  command
      ->add_option("--token-file", a->token_file,
                   "Requests must carry the first line of FILE: \"Authorization: Bearer …\"; needed "
                   "with any --host that other machines reach")
      ->type_name("FILE");
  command
      ->add_option(
          "--waiting", a->waiting,
          "Requests that may wait for a slot; further ones get status 429 (default: the number that runs at once)")
      ->check(at_least(0));
  command->add_flag("--no-prefix-reuse", a->no_reuse,
                    "Compute each prompt whole, without reusing prefixes of other requests");
  command->add_option("--model-name", a->model, "Name of the model (default: its file's)")->type_name("NAME");
  command->add_option("--tokenizer", a->tokenizer, "tokenizer.json or FILE.gguf (default: the model's own)")
      ->type_name("FILE");
  command->add_option("--max-body", a->http.most_body, "Largest size of a request in bytes (default 1048576)")
      ->check(at_least(1));
  command->add_option("--connections", a->http.most_connections, "Largest number of connections at once (default 256)")
      ->check(at_least(1));
  command
      ->add_option(
          "--patience", a->http.patience_s,
          "Close a connection whose request is not complete, or that reads nothing, for this many seconds (default 30)")
      ->check(above_zero() & CLI::Range(1e9));  // nanoseconds of 64 bits hold nine times as much
  command->callback([a, &code] { code = serve_command(*a); });
}

}  // namespace nlsplit::inline tools
