// Shared by the benchmark programs: option parsing with the exit codes of the command line, and resident memory.
#pragma once

#include <cstdint>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "cli/arguments.h"

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

// The body of main: opens missing standard streams, parses the options and runs. Returns 2 for a wrong option, the code
// of an Error, or 70 for any other exception.
template <typename Run>
int run_main(const std::string& name, Run&& run) {
  try {
    open_missing_streams();
    return run();
  } catch (const cli::HelpShown&) {
    return 0;
  } catch (const cli::UsageError& error) {
    std::cerr << name << ": " << error.what() << "\nRun with --help for the options.\n";
    return 2;
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << name << ": " << error.what() << '\n';
    return 70;
  }
}

}  // namespace bitgrad::bench
