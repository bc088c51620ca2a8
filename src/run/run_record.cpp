#include "run/run_parts.h"

#include <array>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/text.h"
#include "bitgrad/base/version.h"
#include "bitgrad/nn/layer_table.h"

namespace bitgrad::detail {
namespace {

constexpr size_t kMostArguments = 1000, kMostLetters = 4000;

// The command line as reported by the system, arguments separated by spaces; empty if not available.
std::string command_line() {
  try {
    std::string text;
    size_t arguments = 0;
    for (const uint8_t byte : file_system().read("/proc/self/cmdline")) {
      if (byte == 0 && ++arguments >= kMostArguments) break;
      text += byte == 0 ? ' ' : static_cast<char>(byte);
      if (text.size() > kMostLetters) break;
    }
    while (text.ends_with(' ')) text.pop_back();
    return printable(text);
  } catch (const Error&) {
    return {};
  }
}

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::array<char, 32> text{};
  if (gmtime_r(&now, &utc) == nullptr) return {};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &utc)};
}

std::string output_of(const char* command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command, "r"), pclose);
  std::string text;
  std::array<char, 4096> part{};
  if (pipe == nullptr) return text;
  while (const size_t n = std::fread(part.data(), 1, part.size(), pipe.get())) text.append(part.data(), n);
  return text;
}

bool in_repository() {
  std::string up = ".";
  for (int i = 0; i < 32; ++i, up += "/..")
    if (file_system().exists(up + "/.git")) return true;
  return false;
}

// Reads, modifies and writes run.json.
void change(const std::string& folder, const std::function<void(Json&)>& work) {
  const std::string path = folder + "/run.json";
  try {
    Json record = Json::object();
    if (file_system().exists(path)) {
      const std::vector<uint8_t> bytes = file_system().read(path);
      record = Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    work(record);
    write_file_atomically(path, record.dump(1) + '\n');
  } catch (const std::exception& e) {
    log(LogLevel::kWarning, concat(path, " is not up to date: ", e.what()));
  }
}

}  // namespace

std::string git_state() {
  if (!in_repository()) return "null";
  const std::string text = output_of(
      "timeout 5 git --no-optional-locks -c core.fsmonitor=false status --porcelain=v2 --branch --untracked-files=no "
      "2>/dev/null");
  Json state{{"commit", nullptr}, {"branch", nullptr}, {"changed", 0}};
  int64_t changed = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = printable(text.substr(at, end - at));
    at = end + 1;
    if (line.starts_with("# branch.oid "))
      state["commit"] = line.substr(13);
    else if (line.starts_with("# branch.head "))
      state["branch"] = line.substr(14);
    else if (!line.starts_with('#'))
      ++changed;
  }
  state["changed"] = changed;
  return state["commit"].is_null() ? "null" : state.dump();
}

void record_session(const std::string& folder, const RunConfig& config, Learner& learner) {
  static const std::string git = git_state();  // once per process, which may train many times
  const DeviceGuard guard(learner.device());
  const bool cpu = learner.device().is_cpu();
  const Json session{
      {"step", learner.state().step},
      {"time", time_now()},
      {"version", BITGRAD_VERSION},
      {"commit", build_commit()},
      {"build", BITGRAD_BUILD_TYPE},
      {"compiler", BITGRAD_COMPILER},
      {"command", command_line()},
      {"device", cpu ? "cpu" : concat(to_string(learner.device()), ' ', device_backend(learner.device()).describe())},
      {"cpu", printable(cpu_model_name())},
      {"isa", isa_names(cpu_isa())},
      {"threads", num_threads()},
      {"bits", config.run.bits},
      {"git", Json::parse(git)}};
  change(folder, [&](Json& record) {
    if (!record.contains("sessions")) record["sessions"] = Json::array();
    record["sessions"].push_back(session);
  });
}

void record_model(const std::string& folder, Learner& learner) {
  const Json table = Json::parse(to_json(layer_table(learner.model())));
  change(folder, [&](Json& record) { record["model"] = table; });
}

}  // namespace bitgrad::detail
