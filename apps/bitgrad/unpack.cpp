// The only file that uses libarchive.
#include "data_fetch.h"

#include <algorithm>
#include <memory>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/io/sha256.h"
#include "output_file.h"

#if BITGRAD_WITH_ARCHIVE
#include <archive.h>
#include <archive_entry.h>
#endif

namespace bitgrad::cli {

#if BITGRAD_WITH_ARCHIVE
namespace {

constexpr size_t kPiece = size_t{1} << 18;

class Unpacking {
 public:
  Unpacking(const std::string& archive, const std::string& folder, std::vector<FetchFile> files)
      : path_(archive), folder_(folder), wanted_(std::move(files)), archive_(archive_read_new(), archive_read_free) {
    ensure(archive_ != nullptr, "data fetch", "archive_read_new");
    archive_read_support_filter_gzip(archive_.get());
    archive_read_support_format_tar(archive_.get());
    if (archive_read_open_filename(archive_.get(), path_.c_str(), kPiece) != ARCHIVE_OK) refuse_damaged();
  }

  void run() {
    archive_entry* entry = nullptr;
    for (int code = 0; (code = archive_read_next_header(archive_.get(), &entry)) != ARCHIVE_EOF;) {
      if (code != ARCHIVE_OK) refuse_damaged();
      const std::string name = checked_name(entry);
      const auto found =
          std::find_if(wanted_.begin(), wanted_.end(), [&](const FetchFile& file) { return file.path == name; });
      if (found == wanted_.end()) continue;
      write(entry, *found);
      wanted_.erase(found);
    }
    if (!wanted_.empty()) refuse("got no member '", wanted_[0].path, "', expected one");
    FileGroup group;
    for (const auto& part : parts_) part->finish();
    group.commit();
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail_with(ErrorCode::kData, "data fetch", path_, ": ", parts...);
  }
  [[noreturn]] void refuse_damaged() const {
    const char* const why = archive_error_string(archive_.get());
    refuse("damaged archive: got '", why == nullptr ? "no .tar.gz" : why, "', expected a whole .tar.gz");
  }
  std::string checked_name(archive_entry* entry) const {
    const char* const raw = archive_entry_pathname(entry);
    std::string name = raw == nullptr ? "" : raw;
    if (name.starts_with("./")) name.erase(0, 2);
    if (name.starts_with('/') || ('/' + name + '/').find("/../") != std::string::npos)
      refuse("got a member '", name, "', which leads out of the folder. Nothing was unpacked");
    return name;
  }
  void write(archive_entry* entry, const FetchFile& file) {
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) != nullptr)
      refuse("member '", file.path, "': got a link or a folder, expected a file");
    if (archive_entry_size(entry) != file.bytes)
      refuse("member '", file.path, "': got ", archive_entry_size(entry), " bytes, expected ", file.bytes);
    const std::string place = folder_ + '/' + file.path;
    file_system().make_directories(place.substr(0, place.rfind('/')));
    parts_.push_back(std::make_unique<PartFile>(place));
    Sha256 hash;
    std::vector<char> piece(kPiece);
    for (la_ssize_t got = 0; (got = archive_read_data(archive_.get(), piece.data(), piece.size())) != 0;) {
      if (got < 0) refuse_damaged();
      parts_.back()->write(piece.data(), static_cast<size_t>(got));
      hash.update(piece.data(), static_cast<size_t>(got));
    }
    if (hash.hex() != file.sha256)
      refuse("member '", file.path, "': got SHA-256 ", hash.hex(), ", expected ", file.sha256);
  }

  const std::string path_, folder_;
  std::vector<FetchFile> wanted_;
  std::unique_ptr<archive, int (*)(archive*)> archive_;
  std::vector<std::unique_ptr<PartFile>> parts_;  // renamed when all members are complete
};

}  // namespace

void unpack(const std::string& archive, const std::string& folder, const std::vector<FetchFile>& files) {
  Unpacking(archive, folder, files).run();
}

#else

void unpack(const std::string& archive, const std::string& folder, const std::vector<FetchFile>&) {
  fail("data fetch", "this program was built without libarchive (Debian: libarchive-dev). Unpack by hand: tar -xzf ",
       archive, " -C ", folder);
}

#endif

}  // namespace bitgrad::cli
