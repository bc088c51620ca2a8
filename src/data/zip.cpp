#include <zip.h>
#include <algorithm>
#include <exception>
#include <memory>

#include "bitgrad/base/error.h"
#include "bitgrad/data/npz.h"
#include "data/npy_array.h"

namespace bitgrad::data {

namespace {

class FileSource final : public ByteSource {
 public:
  explicit FileSource(InputFile& file) : file_(file) {}
  int64_t size() const override { return file_.size(); }
  int64_t read(uint8_t* to, int64_t n) override {
    const int64_t part = std::clamp<int64_t>(file_.size() - at_, 0, n);
    const auto got = part > 0 ? static_cast<int64_t>(file_.read_at(at_, to, static_cast<size_t>(part))) : 0;
    at_ += got;
    return got;
  }

 private:
  InputFile& file_;
  int64_t at_ = 0;
};

// The file as libzip reads it. No exception passes through libzip: the first one is kept.
struct ZipInput {
  InputFile& file;
  int64_t at = 0;
  std::exception_ptr failed = nullptr;
  zip_error_t error = {};

  ~ZipInput() { zip_error_fini(&error); }
  zip_int64_t read(void* to, zip_uint64_t bytes) {
    const zip_uint64_t part = std::min(bytes, static_cast<zip_uint64_t>(std::max<int64_t>(file.size() - at, 0)));
    try {
      const size_t got = part > 0 ? file.read_at(at, to, part) : 0;
      at += static_cast<int64_t>(got);
      return static_cast<zip_int64_t>(got);
    } catch (...) {
      failed = std::current_exception();
      zip_error_set(&error, ZIP_ER_READ, 0);
      return -1;
    }
  }
  static zip_int64_t answer(void* self, void* data, zip_uint64_t bytes, zip_source_cmd_t command) {
    ZipInput& in = *static_cast<ZipInput*>(self);
    const auto size = static_cast<zip_uint64_t>(in.file.size());
    switch (command) {
      case ZIP_SOURCE_READ:
        return in.read(data, bytes);
      case ZIP_SOURCE_TELL:
        return in.at;
      case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&in.error, data, bytes);
      case ZIP_SOURCE_SUPPORTS:
        return ZIP_SOURCE_SUPPORTS_SEEKABLE;
      case ZIP_SOURCE_SEEK: {
        const zip_int64_t to =
            zip_source_seek_compute_offset(static_cast<zip_uint64_t>(in.at), size, data, bytes, &in.error);
        if (to >= 0) in.at = to;
        return to >= 0 ? 0 : -1;
      }
      case ZIP_SOURCE_STAT: {
        auto* const stat = static_cast<zip_stat_t*>(data);
        zip_stat_init(stat);
        stat->size = size;
        stat->valid = ZIP_STAT_SIZE;
        return sizeof *stat;
      }
      default:
        return 0;
    }
  }
};

}  // namespace

class ZipArchive::Archive {
 public:
  Archive(std::string_view where, std::string path, InputFile& file)
      : where_(where), path_(std::move(path)), input_{file} {
    zip_error_t* const error = &input_.error;
    zip_source_t* const source = zip_source_function_create(ZipInput::answer, &input_, error);
    // libzip takes a file of no bytes as an archive without members.
    zip_ = source != nullptr && file.size() > 0 ? zip_open_from_source(source, ZIP_RDONLY, error) : nullptr;
    if (zip_ != nullptr) return;
    zip_source_free(source);
    if (file.size() == 0 || zip_error_code_zip(error) == ZIP_ER_NOZIP)
      fail_zip("got a file without the end record of a ZIP archive. It is truncated, or no .npz file.");
    refuse("", error);
  }
  ~Archive() { zip_discard(zip_); }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  zip_t* get() const { return zip_; }
  uint64_t bytes() const { return static_cast<uint64_t>(input_.file.size()); }
  template <typename... Parts>
  [[noreturn]] void fail_zip(const Parts&... parts) const {
    fail_with(ErrorCode::kData, where_, path_, ": ", parts...);
  }
  // What the library or the file says.
  [[noreturn]] void refuse(const std::string& what, zip_error_t* error) const {
    const int code = zip_error_code_zip(error);
    if (input_.failed) std::rethrow_exception(input_.failed);
    if (code == ZIP_ER_MEMORY) fail_with(ErrorCode::kMemory, where_, path_, ": ", what, "no memory to read it.");
    fail_zip(what,
             code == ZIP_ER_EOF   ? "the file became shorter while it was read, or ends too early"
             : code == ZIP_ER_CRC ? "got the checksum of other bytes than were written"
                                  : zip_error_strerror(error),
             ". The archive is damaged.");
  }
  zip_stat_t stat(size_t member) const {
    zip_stat_t out;
    if (zip_stat_index(zip_, member, ZIP_FL_ENC_RAW, &out) != 0) refuse("", zip_get_error(zip_));
    return out;
  }

 private:
  const std::string where_, path_;
  ZipInput input_;
  zip_t* zip_ = nullptr;
};

class ZipArchive::Member final : public ByteSource {
 public:
  Member(std::shared_ptr<const Archive> archive, size_t member, const zip_stat_t& stat)
      : archive_(std::move(archive)),
        what_(concat("member '", stat.name, "': ")),
        size_(static_cast<int64_t>(stat.size)),
        file_(zip_fopen_index(archive_->get(), member, 0), zip_fclose) {
    if (file_ == nullptr) archive_->refuse(what_, zip_get_error(archive_->get()));
  }
  int64_t size() const override { return size_; }
  int64_t read(uint8_t* to, int64_t n) override {
    n = std::min(n, size_ - at_);
    int64_t done = 0;
    while (done < n) {
      const int64_t got = some(to + done, n - done);
      if (got == 0)
        archive_->fail_zip(what_, "got ", at_, " bytes of content, expected ", size_, ". The archive is damaged.");
      done += got;
      at_ += got;
    }
    uint8_t more = 0;  // at the end the library compares the checksum
    if (done > 0 && at_ == size_ && some(&more, 1) != 0)
      archive_->fail_zip(what_, "got more than ", size_, " bytes of content. The archive is damaged.");
    return done;
  }

 private:
  int64_t some(uint8_t* to, int64_t n) {
    const zip_int64_t got = zip_fread(file_.get(), to, static_cast<zip_uint64_t>(n));
    if (got < 0) archive_->refuse(what_, zip_file_get_error(file_.get()));
    return got;
  }

  const std::shared_ptr<const Archive> archive_;
  const std::string what_;
  const int64_t size_;
  int64_t at_ = 0;
  const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file_;
};

std::unique_ptr<ByteSource> file_source(InputFile& file) { return std::make_unique<FileSource>(file); }

ZipArchive::ZipArchive(std::string_view where, std::string path, InputFile& file)
    : archive_(std::make_shared<Archive>(where, std::move(path), file)) {
  const zip_int64_t members = zip_get_num_entries(archive_->get(), 0);
  for (zip_int64_t i = 0; i < members; ++i) names_.emplace_back(archive_->stat(static_cast<size_t>(i)).name);
}

std::unique_ptr<ByteSource> ZipArchive::open(size_t member) const {
  const zip_stat_t stat = archive_->stat(member);
  const auto refuse = [&](const auto&... parts) { archive_->fail_zip("member '", stat.name, "': ", parts...); };
  if (stat.encryption_method != ZIP_EM_NONE) refuse("it is encrypted. Write the archive without a password.");
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE)
    refuse("got compression method ", stat.comp_method, ", expected 0 (stored) or 8 (deflated): numpy's savez or ",
           "savez_compressed.");
  // As ContentReader::longest: real data compress by a factor of 2 to 20.
  constexpr uint64_t kReachable = 1032, kLikely = 100, kAny = uint64_t{16} << 20;
  const uint64_t packed = stat.comp_size;
  if (packed > archive_->bytes())
    refuse("got ", packed, " bytes in the directory, expected at most the ", archive_->bytes(),
           " bytes of the file. The archive is damaged or truncated.");
  const bool stored = stat.comp_method == ZIP_CM_STORE;
  const uint64_t most = stored ? packed : std::min(packed * kReachable, std::max(packed * kLikely, kAny));
  if (stat.size > most || (stored && stat.size != packed))
    refuse("got ", stat.size, " bytes of content in the directory, expected at most ", most, " from ", packed,
           " bytes in the archive.", stored ? "" : " If this is the intended file, write it with numpy's savez.");
  return std::make_unique<Member>(archive_, member, stat);
}

namespace {

using Bytes = std::vector<uint8_t>;

Bytes npy_of(const NpzArray& a) {
  std::string shape;
  for (const int64_t d : a.shape) shape += concat(d, ", ");
  const std::string head = npy_header_bytes(a.descr, concat('(', shape, ')'));
  Bytes out(head.begin(), head.end());
  out.insert(out.end(), a.bytes.begin(), a.bytes.end());
  return out;
}

}  // namespace

std::vector<uint8_t> npz_bytes(const std::vector<NpzArray>& arrays) {
  const auto done = [](bool ok) {
    if (!ok) fail_with(ErrorCode::kMemory, "npz", "no memory for the archive");
  };
  require(arrays.size() < 65535, "npz", "got ", arrays.size(), " arrays, expected fewer than 65535");
  std::vector<Bytes> contents;  // read when the archive is closed
  const std::unique_ptr<zip_source_t, void (*)(zip_source_t*)> out(zip_source_buffer_create(nullptr, 0, 0, nullptr),
                                                                   zip_source_free);
  std::unique_ptr<zip_t, void (*)(zip_t*)> zip(
      out == nullptr ? nullptr : zip_open_from_source(out.get(), ZIP_TRUNCATE, nullptr), zip_discard);
  done(zip != nullptr);
  zip_source_keep(out.get());
  size_t bytes = 0;
  for (const NpzArray& a : arrays) {
    const Bytes& content = contents.emplace_back(npy_of(a));
    bytes += content.size();
    require(bytes < (size_t{1} << 32) - (size_t{1} << 20), "npz", "the arrays have 4 GiB or more. Use safetensors");
    zip_source_t* const source = zip_source_buffer(zip.get(), content.data(), content.size(), 0);
    const zip_int64_t added = zip_file_add(zip.get(), (a.name + ".npy").c_str(), source, ZIP_FL_ENC_UTF_8);
    if (added < 0) zip_source_free(source);
    const auto i = static_cast<zip_uint64_t>(added);
    constexpr zip_uint16_t kFirstDay = 0x21;  // 1980-01-01, so that the same model gives the same file
    done(added >= 0 && zip_set_file_compression(zip.get(), i, ZIP_CM_STORE, 0) == 0 &&
         zip_file_set_dostime(zip.get(), i, 0, kFirstDay, 0) == 0);
  }
  done(zip_close(zip.get()) == 0);
  static_cast<void>(zip.release());
  zip_stat_t stat;
  done(zip_source_stat(out.get(), &stat) == 0 && zip_source_open(out.get()) == 0);
  Bytes archive(stat.size);
  done(zip_source_read(out.get(), archive.data(), archive.size()) == std::ssize(archive));
  return archive;
}

}  // namespace bitgrad::data
