#include "data/data_file.h"

#include <zlib.h>
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/missing_data.h"
#include "bitgrad/data/picture.h"

namespace bitgrad {

namespace data {

std::string data_path(const std::string& root, const std::string& path) {
  if (root.empty() || path.starts_with('/')) return path;
  return root.ends_with('/') ? root + path : root + "/" + path;
}

std::unique_ptr<InputFile> open_data_file(std::string_view where, const DatasetSpec& spec, const std::string& key,
                                          const std::string& path, std::string_view expected) {
  const std::string full = data_path(spec.root, path);
  const std::string named = concat(key, " '", printable(full), "'");
  if (file_system().is_directory(full))
    fail_with(ErrorCode::kData, where, named, ": got a folder, expected ", expected, ".");
  if (!file_system().exists(full)) {
    const std::string twin = full.ends_with(".gz") ? full.substr(0, full.size() - 3) : full + ".gz";
    const std::string hint = file_system().exists(twin) ? concat(" There is '", printable(twin), "'.") : std::string();
    throw MissingData(concat('[', where, "] ", named, ": no such file. '", printable(path),
                             "' was looked up under data.root = '", spec.root.empty() ? "." : printable(spec.root),
                             "'; set data.root or BITGRAD_DATA to the folder that holds it.", hint));
  }
  return file_system().open_read(full);
}

void warn_of_control_bytes(const std::string& path, int64_t count, int64_t size) {
  if (count > 0)
    log(LogLevel::kWarning, concat(printable(path), ": ", count, " of ", size,
                                   " bytes are not text (zero and other control characters): they are read like any "
                                   "other. Is it a file of another kind?"));
}

std::string absent_classes_text(const std::vector<bool>& seen) {
  constexpr int64_t kShown = 8;
  std::string list;
  int64_t absent = 0;
  for (size_t i = 0; i < seen.size(); ++i)
    if (!seen[i] && absent++ < kShown) list += concat(list.empty() ? "" : ", ", i);
  if (absent == 0) return {};
  if (!seen[0])
    return concat("no sample has class 0: classes are numbered from 0, so the model gets ", seen.size(),
                  ", of which 0 is never right. If the numbers are meant from 1, subtract 1");
  return concat("no sample has the class", absent == 1 ? " " : "es ", list, absent > kShown ? " ..." : "",
                ": classes are numbered from 0, so the model gets ", seen.size(),
                ". Number them without gaps, or set "
                "classes: ",
                seen.size(), " if they are meant");
}

std::string more_classes_text(int64_t largest) {
  return concat(". If the set has more classes, write data.train.classes: ", largest + 1,
                ", and the same in data.valid and data.test");
}

std::vector<std::string> packed_class_names(const std::string& labels) {
  constexpr std::string_view kEnd = ".labels.npy";
  if (!labels.ends_with(kEnd)) return {};
  const std::string path = labels.substr(0, labels.size() - kEnd.size()) + ".classes.txt";
  const bool there = file_system().exists(path) && !file_system().is_directory(path);
  return there ? read_class_names(path) : std::vector<std::string>{};
}

}  // namespace data

std::vector<std::string> read_class_names(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 24;
  std::vector<std::string> names;
  std::string line;
  for (const uint8_t byte : read_file(path, kMostBytes)) {
    if (byte == '\n') names.push_back(std::exchange(line, {}));
    if (byte != '\n' && byte != '\r') line += static_cast<char>(byte);
  }
  if (!line.empty()) names.push_back(line);
  return names;
}

}  // namespace bitgrad

namespace bitgrad::data {

namespace {

constexpr int64_t kPiece = int64_t{1} << 16;        // bytes read from the file at a time
constexpr int64_t kMostPerCall = int64_t{1} << 30;  // zlib counts in 32 bits
constexpr int64_t kDeflateRatio = 1032;             // the highest ratio that deflate can reach
constexpr int64_t kLikelyRatio = 100;               // a generous bound on the ratio of real data
constexpr int64_t kAnyRatio = int64_t{16} << 20;    // contents up to this length may have any ratio

int64_t times(int64_t bytes, int64_t factor) {
  return bytes > std::numeric_limits<int64_t>::max() / factor ? std::numeric_limits<int64_t>::max() : bytes * factor;
}

bool is_gzip(InputFile& file, int64_t at) {
  std::array<uint8_t, 2> magic{};
  return file.read_at(at, magic.data(), magic.size()) == magic.size() && magic[0] == 0x1f && magic[1] == 0x8b;
}

}  // namespace

struct ContentReader::Inflate {
  z_stream stream{};
  int64_t fed = 0;  // bytes passed to zlib
  bool done = false;
  std::vector<uint8_t> piece = std::vector<uint8_t>(static_cast<size_t>(kPiece));
  std::vector<uint8_t> skipped;
};

ContentReader::ContentReader(std::string path, InputFile& file) : path_(std::move(path)), file_(file) {
  if (!is_gzip(file_, 0)) return;
  inflate_ = std::make_unique<Inflate>();
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (inflateInit2(&inflate_->stream, kGzipOnly) != Z_OK) {
    inflate_.reset();
    fail_with(ErrorCode::kMemory, "data", path_, ": no memory to inflate it.");
  }
}

ContentReader::~ContentReader() {
  if (inflate_ != nullptr) inflateEnd(&inflate_->stream);
}

int64_t ContentReader::longest() const {
  const int64_t bytes = file_.size();
  if (!compressed()) return bytes;
  return std::min(times(bytes, kDeflateRatio), std::max(times(bytes, kLikelyRatio), kAnyRatio));
}

int64_t ContentReader::read(uint8_t* to, int64_t n) {
  if (compressed()) return read_gzip(to, n);
  int64_t part = std::min(n, std::max<int64_t>(file_.size() - offset_, 0));
  if (part > 0 && to != nullptr) part = static_cast<int64_t>(file_.read_at(offset_, to, static_cast<size_t>(part)));
  offset_ += part;
  return part;
}

std::string ContentReader::rest() {
  constexpr int64_t kPiece = int64_t{1} << 20;
  std::string text;
  for (int64_t got = kPiece; got == kPiece;) {
    const size_t before = text.size();
    text.resize(before + static_cast<size_t>(kPiece));
    got = read(reinterpret_cast<uint8_t*>(text.data()) + before, kPiece);
    text.resize(before + static_cast<size_t>(got));
  }
  return text;
}

std::string plain_text(const std::string& path, std::string bytes) {
  if (!bytes.starts_with("\x1F\x8B")) return bytes;
  const std::unique_ptr<InputFile> file = memory_file({bytes.begin(), bytes.end()});
  return ContentReader(path, *file).rest();
}

int64_t ContentReader::consumed() const { return inflate_->fed - static_cast<int64_t>(inflate_->stream.avail_in); }

void ContentReader::refill() {
  Inflate& z = *inflate_;
  if (z.stream.avail_in != 0) return;
  const size_t part = file_.read_at(z.fed, z.piece.data(), z.piece.size());
  z.stream.next_in = z.piece.data();
  z.stream.avail_in = static_cast<uInt>(part);
  z.fed += static_cast<int64_t>(part);
}

// Returns true if no further member follows.
bool ContentReader::end_of_member() {
  const int64_t at = consumed();
  if (at >= file_.size()) return true;
  if (!is_gzip(file_, at)) {
    fail_with(ErrorCode::kData, "data", path_, ": bytes after the gzip stream: got ", file_.size() - at, " at offset ",
              at, " of the file, expected its end.");
  }
  inflateReset(&inflate_->stream);
  return false;
}

int64_t ContentReader::read_gzip(uint8_t* to, int64_t n) {
  Inflate& z = *inflate_;
  if (to == nullptr && z.skipped.empty()) z.skipped.resize(size_t{1} << 16);
  int64_t done = 0;
  while (done < n && !z.done) {
    refill();
    const int64_t room = std::min(n - done, to == nullptr ? static_cast<int64_t>(z.skipped.size()) : kMostPerCall);
    z.stream.next_out = to == nullptr ? z.skipped.data() : to + done;
    z.stream.avail_out = static_cast<uInt>(room);
    const int rc = inflate(&z.stream, Z_NO_FLUSH);
    const int64_t made = room - static_cast<int64_t>(z.stream.avail_out);
    done += made;
    offset_ += made;
    if (offset_ > longest())
      fail_with(ErrorCode::kData, "data", path_, ": the content of the gzip stream is too long: got more than ",
                longest(), " bytes from a file of ", file_.size(), ", expected at most ", kLikelyRatio,
                " times the file. If this is the intended file, unpack it first.");
    if (rc == Z_STREAM_END) {
      z.done = end_of_member();
    } else if (rc == Z_MEM_ERROR) {
      fail_with(ErrorCode::kMemory, "data", path_, ": no memory to inflate it.");
    } else if (rc != Z_OK && rc != Z_BUF_ERROR) {
      fail_with(ErrorCode::kData, "data", path_, ": damaged gzip stream at offset ", consumed(), " of the file: got '",
                z.stream.msg == nullptr ? "a preset dictionary" : z.stream.msg,
                "', expected valid data. Fetch the file again.");
    } else if (made == 0 && consumed() >= file_.size()) {
      fail_with(ErrorCode::kData, "data", path_, ": truncated gzip stream: got ", file_.size(),
                " bytes, expected more (the content ends at offset ", offset_, "). Fetch the file again.");
    }
  }
  return done;
}

}  // namespace bitgrad::data
