#include "data/token_dataset.h"

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

class JoinedTokens final : public TokenSource {
 public:
  explicit JoinedTokens(std::vector<std::unique_ptr<TokenSource>> parts) : parts_(std::move(parts)) {
    for (const auto& part : parts_) ends_.push_back((ends_.empty() ? 0 : ends_.back()) + part->size());
  }
  int64_t size() const override { return ends_.back(); }
  void read(int64_t begin, int64_t n, int32_t* to) const override {
    auto i = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    for (int64_t done = 0; done < n; ++i) {
      const int64_t at = begin + done - (ends_[i] - parts_[i]->size());
      const int64_t count = std::min(n - done, parts_[i]->size() - at);
      parts_[i]->read(at, count, to + done);
      done += count;
    }
  }

 private:
  std::vector<std::unique_ptr<TokenSource>> parts_;
  std::vector<int64_t> ends_;
};

class PartOfTokens final : public TokenSource {
 public:
  PartOfTokens(std::unique_ptr<TokenSource> all, int64_t begin, int64_t n)
      : all_(std::move(all)), begin_(begin), n_(n) {}
  int64_t size() const override { return n_; }
  void read(int64_t begin, int64_t n, int32_t* to) const override { all_->read(begin_ + begin, n, to); }

 private:
  std::unique_ptr<TokenSource> all_;
  int64_t begin_, n_;
};

}  // namespace

std::unique_ptr<TokenSource> joined_tokens(std::vector<std::unique_ptr<TokenSource>> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  return std::make_unique<JoinedTokens>(std::move(parts));
}
std::unique_ptr<TokenSource> part_of_tokens(std::unique_ptr<TokenSource> all, int64_t begin, int64_t n) {
  return std::make_unique<PartOfTokens>(std::move(all), begin, n);
}
std::unique_ptr<TokenSource> memory_tokens(TrackedBytes ids, StoredAs form) {
  return std::make_unique<MemoryTokens>(std::move(ids), form);
}
std::unique_ptr<TokenSource> file_tokens(std::unique_ptr<InputFile> file, const TokenFile& form) {
  return std::make_unique<FileTokens>(std::move(file), form);
}

}  // namespace bitgrad::data
