#include "data/token_source.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "bitgrad/base/error.h"

namespace bitgrad::data {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kTokenSource = "data.tokens";

class MemoryTokens final : public TokenSource {
 public:
  MemoryTokens(TrackedBytes ids, StoredAs form) : ids_(std::move(ids)), form_(form) {}
  int64_t size() const override { return ids_.size() / element_bytes(form_); }
  void read(int64_t begin, int64_t n, int32_t* to) const override {
    if (form_ == StoredAs::kUint8) return copy<uint8_t>(begin, n, to);
    if (form_ == StoredAs::kUint16) return copy<uint16_t>(begin, n, to);
    copy<int32_t>(begin, n, to);
  }
  const void* data() const override { return ids_.data(); }
  StoredAs form() const override { return form_; }

 private:
  template <typename T>
  void copy(int64_t begin, int64_t n, int32_t* to) const {
    std::copy_n(reinterpret_cast<const T*>(ids_.data()) + begin, n, to);
  }
  TrackedBytes ids_;
  StoredAs form_;
};

class FileTokens final : public TokenSource {
 public:
  FileTokens(std::unique_ptr<InputFile> file, TokenFile form) : file_(std::move(file)), form_(std::move(form)) {}
  int64_t size() const override { return form_.ids; }
  void read(int64_t begin, int64_t n, int32_t* to) const override {
    if (form_.id_bytes == 2) return copy<uint16_t>(begin, n, to);
    copy<uint32_t>(begin, n, to);
  }

 private:
  template <typename T>
  void copy(int64_t begin, int64_t n, int32_t* to) const {
    std::array<T, 1024> piece;
    for (int64_t done = 0; done < n;) {
      const int64_t count = std::min<int64_t>(n - done, std::ssize(piece)), at = begin + done;
      const size_t bytes = static_cast<size_t>(count) * sizeof(T);
      if (file_->read_at(form_.offset + at * int64_t{sizeof(T)}, piece.data(), bytes) != bytes)
        fail_with(ErrorCode::kData, kTokenSource, form_.name, ": the file became shorter while it was read.");
      for (int64_t i = 0; i < count; ++i) {
        const T id = piece[static_cast<size_t>(i)];
        if (static_cast<int64_t>(id) >= form_.vocabulary)
          fail_with(ErrorCode::kData, kTokenSource, form_.name, ": id ", at + i, ": got ", static_cast<int64_t>(id),
                    ", expected 0 .. ", form_.vocabulary - 1, " (vocabulary).");
        to[done + i] = static_cast<int32_t>(id);
      }
      done += count;
    }
  }

  std::unique_ptr<InputFile> file_;
  TokenFile form_;
};

}  // namespace

std::unique_ptr<TokenSource> memory_tokens(TrackedBytes ids, StoredAs form) {
  return std::make_unique<MemoryTokens>(std::move(ids), form);
}
std::unique_ptr<TokenSource> file_tokens(std::unique_ptr<InputFile> file, const TokenFile& form) {
  return std::make_unique<FileTokens>(std::move(file), form);
}

}  // namespace bitgrad::data
