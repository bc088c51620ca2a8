#include "shared/rival.h"

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "bitgrad/base/error.h"

namespace bitgrad::bench {

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string program_of(const char* variable, const char* standard) {
  const char* named = std::getenv(variable);
  return quoted(named == nullptr ? standard : named);
}

std::optional<Json> row_of_rival(const std::string& where, const std::string& command) {
  std::FILE* pipe = popen(command.c_str(), "r");
  require(pipe != nullptr, where, "cannot start ", command);
  std::string text;
  std::array<char, 4096> part{};
  while (const size_t count = std::fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), count);
  const int status = pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return std::nullopt;
  require(status == 0, where, "the rival failed: ", command);
  return Json::parse(text);
}

}  // namespace bitgrad::bench
