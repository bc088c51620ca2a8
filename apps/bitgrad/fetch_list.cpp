#include "data_fetch.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"

namespace bitgrad::cli {
namespace {

constexpr const char* kBuiltIn =
#include "mirrors.inc"
    ;

class ListReader {
 public:
  explicit ListReader(std::string name) : name_(std::move(name)) {}

  std::vector<FetchSet> read(std::string_view text) const {
    try {
      std::vector<FetchSet> sets;
      const Json list = Json::parse(text, {.unique_names = true});
      for (const auto& [name, set] : list.members()) sets.push_back(read(name, set));
      return sets;
    } catch (const JsonError& error) {
      fail_with(ErrorCode::kData, "data fetch", name_, ": ", error.what());
    }
  }

 private:
  template <typename... Parts>
  void require_form(bool ok, const std::string& set, const Parts&... parts) const {
    if (!ok) fail_with(ErrorCode::kData, "data fetch", name_, ": set '", set, "': ", parts...);
  }
  FetchSet read(const std::string& name, const Json& set) const {
    FetchSet out{.name = name};
    for (const Json& mirror : set.at("mirrors")) out.mirrors.push_back(checked_mirror(name, mirror.text()));
    if (set.contains("archive")) out.archive = read_file_entry(name, set.at("archive"));
    for (const Json& file : set.at("files")) out.files.push_back(read_file_entry(name, file));
    require_form(!out.mirrors.empty() && !out.files.empty(), name, "got no mirrors or no files, expected one or more");
    return out;
  }
  std::string checked_mirror(const std::string& set, std::string url) const {
    require_form(url.starts_with("http://") || url.starts_with("https://"), set, "mirrors: got '", url,
                 "', expected http://... or https://...");
    return url.ends_with('/') ? url : url + '/';
  }
  FetchFile read_file_entry(const std::string& set, const Json& file) const {
    FetchFile out{file.at("path").text(), file.at("bytes").get<int64_t>(), file.at("sha256").text()};
    const std::string slashed = '/' + out.path + '/';
    const bool inside = !out.path.empty() && slashed.find("//") == std::string::npos &&
                        slashed.find("/../") == std::string::npos && slashed.find("/./") == std::string::npos &&
                        out.path.find('\0') == std::string::npos;
    require_form(inside, set, "path: got '", out.path, "', expected a path below the folder of the data");
    require_form(out.bytes > 0, set, "bytes of '", out.path, "': got ", out.bytes, ", expected 1 or more");
    const bool hex = out.sha256.find_first_not_of("0123456789abcdef") == std::string::npos;
    constexpr size_t kDigits = 64;
    require_form(hex && out.sha256.size() == kDigits, set, "sha256 of '", out.path, "': got '", out.sha256,
                 "', expected 64 digits of 0 .. 9, a .. f");
    return out;
  }

  const std::string name_;
};

}  // namespace

std::vector<FetchSet> read_fetch_list(const std::string& file) {
  if (file.empty()) return ListReader("mirrors").read(kBuiltIn);
  constexpr int64_t kMostBytes = int64_t{1} << 24;
  const std::vector<uint8_t> bytes = read_file(file, kMostBytes);
  return ListReader(file).read({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace bitgrad::cli
