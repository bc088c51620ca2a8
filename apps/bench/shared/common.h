// Shared by the benchmark programs: their main, the options that several have, and resident memory.
#pragma once

#include <cstdint>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "cli/arguments.h"
#include "shared/report.h"

namespace bitgrad::bench {

// A line of /proc/self/status, such as VmHWM, in bytes; 0 if there is no such line.
inline int64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key + ':', 0) == 0) return std::stoll(line.substr(key.size() + 1)) * 1024;
  return 0;
}

// The parts of a list "64,512,4608".
inline std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

// The whole numbers of such a list; -1 for a part that is none.
inline std::vector<int64_t> whole_numbers(const std::string& text) {
  std::vector<int64_t> numbers;
  for (const std::string& part : split(text)) {
    numbers.push_back(-1);
    if (parse_whole(trimmed(part), numbers.back()) != NumberResult::kOk) numbers.back() = -1;
  }
  return numbers;
}

// The options that the programs share; those of each derive from them.
struct SharedOptions {
  int64_t repeat = 0;  // measurements of each contestant
  std::string json = {}, compare = {};
  double slack = 0.9;
  Device device = {};
  int threads = 1;
};
// `ratio`: the field of a row that --compare compares.
inline void add_report_options(cli::Arguments& args, SharedOptions& o, const std::string& ratio) {
  args.option("--repeat", o.repeat, concat("measurements; the median counts (", o.repeat, ')')).range(1, 1000000);
  args.option("--json", o.json, "write the results to this file");
  args.option(
      "--compare", o.compare,
      concat("an earlier --json file: exit status 1 if a result's ", ratio, " is below slack times the recorded one"));
  args.option("--slack", o.slack, concat("of comparisons (", o.slack, ')')).range(0.0, 10.0);
}
inline cli::Argument add_device_option(cli::Arguments& args, SharedOptions& o, const std::string& text = "") {
  return args.choice<Device>("--device", o.device, {{"cpu", Device::cpu()}, {"cuda", Device::cuda()}},
                             "cpu, cuda (cpu)" + text);
}
inline cli::Argument add_threads_option(cli::Arguments& args, SharedOptions& o, const std::string& text = "") {
  return args.option("--threads", o.threads, text + "(1)").range(1, 1024);
}
inline void parse(cli::Arguments& args, int argc, char** argv, const SharedOptions& o) {
  args.parse(argc, argv);
  check_writable("--json", o.json);
}

// Writes and compares a report as these options say. Returns the exit status.
inline int finish(const Json& report, const SharedOptions& o, CompareRule rule) {
  rule.slack = o.slack;
  write_report(o.json, report);
  return o.compare.empty() || compare_with_file(report, o.compare, rule) ? 0 : 1;
}

// "Intel Xeon (avx2 avx512)"
inline std::string machine_of(const Json& report) {
  return concat(report.at("machine").text(), " (", report.at("isa").text(), ')');
}

// The body of main: opens missing standard streams, and run(args) parses the options and runs. Returns 2 for a wrong
// option, the code of an Error, or 70 for any other exception.
template <typename Run>
int run_main(const std::string& name, const std::string& description, Run&& run) {
  cli::Arguments args(description, name);
  try {
    open_missing_streams();
    return run(args);
  } catch (const cli::HelpShown&) {
    return 0;
  } catch (const cli::UsageError& error) {
    std::cerr << concat(name, ": ", error.what(), "\nRun with --help for the options.\n");  // at once: ranks share it
    return 2;
  } catch (const Error& error) {
    std::cerr << concat(error.what(), '\n');
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << concat(name, ": ", error.what(), '\n');
    return 70;
  }
}

}  // namespace bitgrad::bench
