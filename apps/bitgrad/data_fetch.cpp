#include "data_fetch.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/io/sha256.h"
#include "progress.h"
#include "table.h"

namespace bitgrad::cli {
namespace {

constexpr std::string_view kFetch = "data fetch";

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
      fail_with(ErrorCode::kData, kFetch, name_, ": ", error.what());
    }
  }

 private:
  template <typename... Parts>
  void require_form(bool ok, const std::string& set, const Parts&... parts) const {
    if (!ok) fail_with(ErrorCode::kData, kFetch, name_, ": set '", set, "': ", parts...);
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

namespace {

std::string sha256_of(const std::string& path) {
  constexpr size_t kPiece = size_t{1} << 20;
  const std::unique_ptr<InputFile> file = file_system().open_read(path);
  std::vector<uint8_t> piece(kPiece);
  Sha256 hash;
  int64_t at = 0;
  for (size_t got = kPiece; got == kPiece; at += static_cast<int64_t>(got)) {
    got = file->read_at(at, piece.data(), piece.size());
    hash.update(piece.data(), got);
  }
  return hash.hex();
}

// The progress of a file.
class FetchLine {
 public:
  FetchLine(std::string name, int64_t total) : name_(std::move(name)), total_(total) {}
  void tick(int64_t bytes) {
    if (first_ < 0) first_ = bytes;
    progress_.show([&](int columns) { return text(bytes).substr(0, static_cast<size_t>(std::max(columns, 1))); });
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::string text(int64_t bytes) const {
    const double seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
    const double speed = static_cast<double>(bytes - first_) / std::max(seconds, 1e-3);
    std::string out = concat(100 * bytes / total_, " %  ", name_, "  ", size_text(bytes), " of ", size_text(total_),
                             "  ", size_text(static_cast<int64_t>(speed)), "/s");
    if (speed > 0) out += "  ETA " + duration_text(static_cast<double>(total_ - bytes) / speed);
    return out;
  }

  const std::string name_;
  const int64_t total_;
  Progress progress_{/*quiet=*/false};
  const Clock::time_point begun_ = Clock::now();
  int64_t first_ = -1;
};

// One data set and its destination folder.
class Fetching {
 public:
  Fetching(const FetchSet& set, std::string folder, bool force)
      : set_(set), folder_(std::move(folder)), force_(force), mirrors_(set.mirrors) {}

  // Finds the missing files. Throws Error(kUsage) for a file that exists with other content.
  void look() {
    for (const FetchFile& file : set_.files)
      if (!is_there(file)) missing_.push_back(file);
    if (set_.archive && !missing_.empty()) archive_there_ = is_there(*set_.archive);
  }
  // Returns an empty text, or what failed.
  std::string run() {
    if (missing_.empty()) {
      std::cout << set_.name << ": all " << set_.files.size() << " files are in " << folder_ << " already\n";
      return {};
    }
    if (set_.archive) return run_archive();
    for (const FetchFile& file : missing_)
      if (const std::string why = fetch(file); !why.empty()) return failure(why);
    return {};
  }

 private:
  std::string place(const FetchFile& file) const { return folder_ + '/' + file.path; }

  bool is_there(const FetchFile& file) const {
    const std::string path = place(file);
    if (!file_system().exists(path)) return false;
    require(!file_system().is_directory(path), kFetch, "'", path, "': got a folder, expected the place of a file");
    const int64_t bytes = file_system().open_read(path)->size();
    const std::string hash = bytes == file.bytes ? sha256_of(path) : std::string();
    if (bytes == file.bytes && hash == file.sha256) return true;
    require(force_, kFetch, "'", path, "' exists and is another file: got ", bytes, " bytes",
            hash.empty() ? "" : concat(" of SHA-256 ", hash), ", expected ", file.bytes, " of SHA-256 ", file.sha256,
            ". Move it away, name another folder with -o, or overwrite it with --force. Nothing was fetched");
    return false;
  }

  std::string run_archive() {
    const FetchFile& archive = *set_.archive;
    if (!archive_there_)
      if (const std::string why = fetch(archive); !why.empty()) return failure(why);
    unpack(place(archive), folder_, missing_);
    for (const FetchFile& file : missing_)
      std::cout << printable(place(file)) << ": " << file.bytes << " bytes, unpacked\n";
    if (!archive_there_) file_system().remove(place(archive));
    return {};
  }

  // Downloads from the first mirror that has the file, and moves that mirror to the front for the next one.
  std::string fetch(const FetchFile& file) {
    std::string why;
    for (size_t m = 0; m < mirrors_.size(); ++m) {
      const std::string url = mirrors_[m] + file.name(), error = fetch_from(url, file);
      if (error.empty()) {
        std::rotate(mirrors_.begin(), mirrors_.begin() + static_cast<std::ptrdiff_t>(m), mirrors_.end());
        std::cout << printable(place(file)) << ": " << file.bytes << " bytes from " << url << std::endl;
        return {};
      }
      why += concat("  ", url, ": ", printable(error), '\n');
    }
    return why;
  }
  // If an interrupted attempt left other bytes in FILE.part, a second attempt starts from scratch.
  std::string fetch_from(const std::string& url, const FetchFile& file) {
    const std::string path = place(file), part = path + ".part";
    file_system().make_directories(path.substr(0, path.rfind('/')));
    for (bool again = false;; again = true) {
      const int64_t had = file_system().exists(part) ? file_system().open_read(part)->size() : 0;
      if (had > file.bytes) {
        file_system().remove(part);
        continue;
      }
      if (had < file.bytes) {
        FetchLine line(file.path, file.bytes);
        std::string why = download(url, part, file.bytes, [&](int64_t bytes) { line.tick(bytes); });
        if (!why.empty()) return why;
      }
      const std::string hash = sha256_of(part);
      if (hash == file.sha256) break;
      file_system().remove(part);
      if (had == 0 || again) return concat("got SHA-256 ", hash, ", expected ", file.sha256);
    }
    file_system().rename(part, path);
    return {};
  }

  std::string failure(const std::string& why) const {
    std::string out = concat(set_.name, " could not be fetched:\n", why, "By hand, where there is a network:\n");
    const auto step = [&](const FetchFile& file) {
      out += concat("  fetch ", set_.mirrors[0], file.name(), "\n    as ", place(file), " (", file.bytes,
                    " bytes, SHA-256 ", file.sha256, ")\n");
    };
    if (set_.archive)
      step(*set_.archive);
    else
      for (const FetchFile& file : missing_)
        if (!file_system().exists(place(file))) step(file);
    return out + "  then run the same command again: it checks" + (set_.archive ? " and unpacks" : "") + " them\n";
  }

  const FetchSet& set_;
  const std::string folder_;
  const bool force_;
  std::vector<std::string> mirrors_;
  std::vector<FetchFile> missing_;
  bool archive_there_ = false;
};

std::string folder_of(const FetchOptions& o) {
  if (!o.folder.empty()) return o.folder;
  const char* const data = std::getenv("BITGRAD_DATA");
  return data != nullptr && *data != '\0' ? data : ".";
}

}  // namespace

int run_fetch(const FetchOptions& options) {
  const std::vector<FetchSet> list = read_fetch_list(options.mirrors);
  std::vector<std::string> known;
  for (const FetchSet& set : list) known.push_back(set.name);
  std::vector<Fetching> fetchings;
  for (const std::string& name : options.names) {
    const auto set = std::find(known.begin(), known.end(), name);
    require(set != known.end(), kFetch, unknown_name("data set", name, known));
    fetchings.emplace_back(list[static_cast<size_t>(set - known.begin())], folder_of(options), options.force);
  }
  for (Fetching& fetching : fetchings) fetching.look();
  std::string failures;
  for (Fetching& fetching : fetchings) failures += fetching.run();
  if (!failures.empty()) fail_with(ErrorCode::kData, kFetch, failures.substr(0, failures.size() - 1));
  return 0;
}

}  // namespace bitgrad::cli
