#include "data/content.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "bitgrad/base/error.h"

namespace bitgrad::data {
namespace {

constexpr int64_t kMostPerCall = int64_t{1} << 30;  // zlib counts in 32 bits
constexpr int64_t kDeflateRatio = 1032;

bool is_gzip(const std::vector<uint8_t>& file, size_t at) {
  return file.size() - at >= 2 && file[at] == 0x1f && file[at + 1] == 0x8b;
}

}  // namespace

struct ContentReader::Inflate {
  z_stream stream{};
  size_t fed = 0;  // bytes of the file handed to zlib
  bool done = false;
  std::vector<uint8_t> skipped;
};

ContentReader::ContentReader(std::string path, const std::vector<uint8_t>& file) : path_(std::move(path)), file_(file) {
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
  const int64_t bytes = static_cast<int64_t>(file_.size());
  return compressed() ? bytes * kDeflateRatio : bytes;
}

int64_t ContentReader::read(uint8_t* to, int64_t n) {
  if (compressed()) return read_gzip(to, n);
  const int64_t part = std::min(n, static_cast<int64_t>(file_.size()) - offset_);
  if (part > 0 && to != nullptr) std::memcpy(to, file_.data() + offset_, static_cast<size_t>(part));
  offset_ += part;
  return part;
}

int64_t ContentReader::consumed() const { return static_cast<int64_t>(inflate_->fed - inflate_->stream.avail_in); }

void ContentReader::refill() {
  Inflate& z = *inflate_;
  if (z.stream.avail_in != 0) return;
  const size_t part = std::min(file_.size() - z.fed, static_cast<size_t>(kMostPerCall));
  z.stream.next_in = const_cast<Bytef*>(file_.data() + z.fed);
  z.stream.avail_in = static_cast<uInt>(part);
  z.fed += part;
}

// True when no further member follows.
bool ContentReader::end_of_member() {
  const size_t at = static_cast<size_t>(consumed());
  if (at == file_.size()) return true;
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
    if (rc == Z_STREAM_END) {
      z.done = end_of_member();
    } else if (rc == Z_MEM_ERROR) {
      fail_with(ErrorCode::kMemory, "data", path_, ": no memory to inflate it.");
    } else if (rc != Z_OK && rc != Z_BUF_ERROR) {
      fail_with(ErrorCode::kData, "data", path_, ": damaged gzip stream at offset ", consumed(), " of the file: got '",
                z.stream.msg == nullptr ? "a preset dictionary" : z.stream.msg,
                "', expected valid data. Fetch the file again.");
    } else if (made == 0 && consumed() == static_cast<int64_t>(file_.size())) {
      fail_with(ErrorCode::kData, "data", path_, ": truncated gzip stream: got ", file_.size(),
                " bytes, expected more (the content ends at offset ", offset_, "). Fetch the file again.");
    }
  }
  return done;
}

}  // namespace bitgrad::data
