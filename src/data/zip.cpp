#include "data/zip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "bitgrad/base/error.h"

namespace bitgrad::data {
namespace {

constexpr int64_t kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20, kEntryBytes = 46, kLocalBytes = 30;
constexpr int64_t kLongestComment = 65535;
constexpr uint32_t kEndMagic = 0x06054b50, kEnd64Magic = 0x06064b50, kLocator64Magic = 0x07064b50,
                   kEntryMagic = 0x02014b50, kLocalMagic = 0x04034b50;
constexpr uint32_t kIn64 = 0xFFFFFFFF;  // the value is in the ZIP64 record
constexpr int kZipDeflated = 8;

uint64_t little(const uint8_t* at, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) value = (value << 8) | at[i];
  return value;
}
uint32_t u16(const uint8_t* at) { return static_cast<uint32_t>(little(at, 2)); }
uint32_t u32(const uint8_t* at) { return static_cast<uint32_t>(little(at, 4)); }
// Sizes above the int64 range are clamped; the check against the file size then rejects them.
int64_t u64(const uint8_t* at) {
  return static_cast<int64_t>(
      std::min<uint64_t>(little(at, 8), static_cast<uint64_t>(std::numeric_limits<int64_t>::max())));
}

class Archive {
 public:
  Archive(std::string_view where, const std::string& path, InputFile& file) : where_(where), path_(path), file_(file) {}

  template <typename... Parts>
  [[noreturn]] void fail_zip(const Parts&... parts) const {
    fail_with(ErrorCode::kData, where_, path_, ": ", parts...);
  }
  // Reads exactly `bytes` bytes at `offset`.
  std::vector<uint8_t> piece(int64_t offset, int64_t bytes, std::string_view what) const {
    if (offset < 0 || bytes < 0 || offset > file_.size() || bytes > file_.size() - offset)
      fail_zip(what, " at byte offset ", offset, ": got ", bytes, " bytes, expected them within the ", file_.size(),
               " bytes of the file. The archive is damaged or truncated.");
    std::vector<uint8_t> out(static_cast<size_t>(bytes));
    if (static_cast<int64_t>(file_.read_at(offset, out.data(), out.size())) != bytes)
      fail_zip(what, ": the file became shorter while it was read.");
    return out;
  }
  void check_magic(const uint8_t* at, uint32_t magic, int64_t offset, std::string_view what) const {
    if (u32(at) != magic)
      fail_zip(what, " at byte offset ", offset, ": got signature ", u32(at), ", expected ", magic,
               ". The archive is damaged.");
  }

  // Offset of the central directory, and its number of entries.
  struct Directory {
    int64_t offset, bytes, entries;
  };
  Directory directory() const {
    const int64_t tail = std::min(file_.size(), kEndBytes + kLongestComment), begin = file_.size() - tail;
    const std::vector<uint8_t> bytes = piece(begin, tail, "end of the archive");
    for (int64_t at = tail - kEndBytes; at >= 0; --at) {
      const uint8_t* const end = bytes.data() + at;
      if (u32(end) != kEndMagic || at + kEndBytes + u16(end + 20) != tail) continue;
      const Directory found{u32(end + 16), u32(end + 12), u16(end + 10)};
      const bool in_64 = u32(end + 16) == kIn64 || u32(end + 12) == kIn64 || found.entries == 0xFFFF;
      return in_64 && begin + at >= kLocator64Bytes ? directory_64(begin + at - kLocator64Bytes) : found;
    }
    fail_zip("got a file without the end record of a ZIP archive, expected one in its last ", tail,
             " bytes. It is truncated, or no .npz file.");
  }
  Directory directory_64(int64_t locator_at) const {
    const std::vector<uint8_t> locator = piece(locator_at, kLocator64Bytes, "64-bit locator");
    check_magic(locator.data(), kLocator64Magic, locator_at, "64-bit locator");
    const int64_t at = u64(locator.data() + 8);
    const std::vector<uint8_t> end = piece(at, kEnd64Bytes, "64-bit end record");
    check_magic(end.data(), kEnd64Magic, at, "64-bit end record");
    return {u64(end.data() + 48), u64(end.data() + 40), u64(end.data() + 32)};
  }

  // Sizes and offset that do not fit in the entry, in the order of APPNOTE 4.5.3.
  void read_extra(const uint8_t* extra, int64_t bytes, const uint8_t* entry, ZipMember& member) const {
    for (int64_t at = 0; at + 4 <= bytes;) {
      const int64_t length = u16(extra + at + 2);
      if (length > bytes - at - 4) return;
      if (u16(extra + at) == 1) {
        int64_t from = at + 4;
        const auto take = [&](int64_t& field, const uint8_t* narrow) {
          if (u32(narrow) != kIn64) return;
          if (from + 8 > at + 4 + length) fail_zip("member '", member.name, "': its 64-bit sizes are cut off.");
          field = u64(extra + from);
          from += 8;
        };
        take(member.size, entry + 24);
        take(member.packed, entry + 20);
        take(member.header, entry + 42);
      }
      at += 4 + length;
    }
  }

  std::vector<ZipMember> members() const {
    const Directory where = directory();
    const std::vector<uint8_t> bytes = piece(where.offset, where.bytes, "central directory");
    std::vector<ZipMember> out;
    int64_t at = 0;
    for (int64_t i = 0; i < where.entries; ++i) {
      const auto room = std::ssize(bytes) - at;
      if (room < kEntryBytes)
        fail_zip("central directory: got ", i, " entries, expected ", where.entries, ". The archive is damaged.");
      const uint8_t* const entry = bytes.data() + at;
      check_magic(entry, kEntryMagic, where.offset + at, "entry of the central directory");
      const int64_t name = u16(entry + 28), extra = u16(entry + 30), comment = u16(entry + 32);
      if (kEntryBytes + name + extra + comment > room)
        fail_zip("central directory: entry ", i, " is longer than what is left of it. The archive is damaged.");
      ZipMember member;
      member.name.assign(reinterpret_cast<const char*>(entry + kEntryBytes), static_cast<size_t>(name));
      member.method = static_cast<int>(u16(entry + 10));
      member.encrypted = (u16(entry + 8) & 1) != 0;
      member.crc = u32(entry + 16);
      member.packed = u32(entry + 20);
      member.size = u32(entry + 24);
      member.header = u32(entry + 42);
      read_extra(entry + kEntryBytes + name, extra, entry, member);
      out.push_back(std::move(member));
      at += kEntryBytes + name + extra + comment;
    }
    return out;
  }

 private:
  const std::string where_, path_;
  InputFile& file_;
};

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

// The content of a member whose stored bytes start at `begin`.
class MemberSource final : public ByteSource {
 public:
  MemberSource(Archive archive, InputFile& file, ZipMember member, int64_t begin)
      : archive_(std::move(archive)), file_(file), member_(std::move(member)), begin_(begin) {
    if (member_.method != kZipDeflated) return;
    piece_.resize(size_t{1} << 16);
    if (inflateInit2(&z_, -MAX_WBITS) != Z_OK)
      fail_with(ErrorCode::kMemory, "data", "no memory to inflate '", member_.name, "'.");
    inflating_ = true;
  }
  ~MemberSource() override {
    if (inflating_) inflateEnd(&z_);
  }
  MemberSource(const MemberSource&) = delete;
  MemberSource& operator=(const MemberSource&) = delete;

  int64_t size() const override { return member_.size; }
  int64_t read(uint8_t* to, int64_t n) override {
    int64_t done = 0;
    n = std::min(n, member_.size - made_);
    while (done < n) {
      constexpr int64_t kMostPerCall = int64_t{1} << 30;  // zlib counts in 32 bits
      const int64_t room = std::min(n - done, kMostPerCall),
                    got = inflating_ ? inflated(to + done, room) : raw(to + done, room);
      if (got == 0) fail_member("got ", made_, " bytes of content, expected ", member_.size);
      crc_ = static_cast<uint32_t>(crc32(crc_, to + done, static_cast<uInt>(got)));
      done += got;
      made_ += got;
    }
    if (done > 0 && made_ == member_.size && crc_ != member_.crc)
      fail_member("got the checksum ", crc_, ", expected ", member_.crc);
    return done;
  }

 private:
  template <typename... Parts>
  [[noreturn]] void fail_member(const Parts&... parts) const {
    archive_.fail_zip("member '", member_.name, "': ", parts..., ". The archive is damaged.");
  }
  int64_t raw(uint8_t* to, int64_t room) {
    const auto got = static_cast<int64_t>(file_.read_at(begin_ + fed_, to, static_cast<size_t>(room)));
    fed_ += got;
    return got;
  }
  int64_t inflated(uint8_t* to, int64_t room) {
    z_.next_out = to;
    z_.avail_out = static_cast<uInt>(room);
    for (;;) {
      if (z_.avail_in == 0 && fed_ < member_.packed) {
        const int64_t part = std::min<int64_t>(std::ssize(piece_), member_.packed - fed_);
        const size_t got = file_.read_at(begin_ + fed_, piece_.data(), static_cast<size_t>(part));
        if (got == 0)
          fail_member("the file became shorter while it was read: got ", fed_, " bytes of ", member_.packed);
        z_.next_in = piece_.data();
        z_.avail_in = static_cast<uInt>(got);
        fed_ += static_cast<int64_t>(got);
      }
      const int rc = inflate(&z_, Z_NO_FLUSH);
      const int64_t made = room - static_cast<int64_t>(z_.avail_out);
      if (rc == Z_MEM_ERROR) fail_with(ErrorCode::kMemory, "data", "no memory to inflate '", member_.name, "'.");
      if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
        fail_member("damaged deflate stream at byte offset ", begin_ + fed_ - static_cast<int64_t>(z_.avail_in),
                    " of the file");
      if (made > 0 || rc == Z_STREAM_END || (z_.avail_in == 0 && fed_ >= member_.packed)) return made;
    }
  }

  const Archive archive_;
  InputFile& file_;
  const ZipMember member_;
  const int64_t begin_;
  z_stream z_{};
  bool inflating_ = false;
  std::vector<uint8_t> piece_;
  int64_t fed_ = 0, made_ = 0;
  uint32_t crc_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> file_source(InputFile& file) { return std::make_unique<FileSource>(file); }

std::vector<ZipMember> zip_members(std::string_view where, const std::string& path, InputFile& file) {
  return Archive(where, path, file).members();
}

std::unique_ptr<ByteSource> open_zip_member(std::string_view where, const std::string& path, InputFile& file,
                                            const ZipMember& member) {
  const Archive archive(where, path, file);
  const auto refuse = [&](const auto&... parts) { archive.fail_zip("member '", member.name, "': ", parts...); };
  if (member.encrypted) refuse("it is encrypted. Write the archive without a password.");
  if (member.method != 0 && member.method != kZipDeflated)
    refuse("got compression method ", member.method, ", expected 0 (stored) or 8 (deflated): numpy's savez or ",
           "savez_compressed.");
  const std::vector<uint8_t> local = archive.piece(member.header, kLocalBytes, "local header");
  archive.check_magic(local.data(), kLocalMagic, member.header, "local header");
  const int64_t begin = member.header + kLocalBytes + u16(local.data() + 26) + u16(local.data() + 28);
  if (begin > file.size() || member.packed > file.size() - begin)
    refuse("got ", member.packed, " bytes from offset ", begin, " on, expected them within the ", file.size(),
           " bytes of the file. The archive is damaged or truncated.");
  // As ContentReader::longest: real data compress by a factor of 2 to 20.
  constexpr int64_t kReachable = 1032, kLikely = 100, kAny = int64_t{16} << 20;
  const int64_t most = member.method == 0
                           ? member.packed
                           : std::min(member.packed * kReachable, std::max(member.packed * kLikely, kAny));
  if (member.size > most || (member.method == 0 && member.size != member.packed))
    refuse("got ", member.size, " bytes of content in the directory, expected at most ", most, " from ", member.packed,
           " bytes in the archive.",
           member.method == 0 ? "" : " If this is the intended file, write it with numpy's savez.");
  return std::make_unique<MemberSource>(archive, file, member, begin);
}

}  // namespace bitgrad::data
