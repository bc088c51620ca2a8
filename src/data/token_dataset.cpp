#include "data/token_dataset.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "bitgrad/base/error.h"
#include "data/image_dataset.h"

namespace bitgrad::data {

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kTokenSource = "data.tokens";

class MemoryTokens final : public TokenSource {
 public:
  MemoryTokens(TrackedBytes ids, StoredAs form) : ids_(std::move(ids)), form_(form) {}
  int64_t size() const override { return ids_.size() / element_bytes(form_); }
  void read(int64_t begin, int64_t n, int32_t* to) const override { widen_stored(ids_.data(), form_, begin, n, to); }
  const void* data() const override { return ids_.data(); }
  StoredAs form() const override { return form_; }
  int64_t memory_bytes() const override { return ids_.size(); }

 private:
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
  int64_t memory_bytes() const override {
    int64_t bytes = 0;
    for (const auto& part : parts_) bytes += part->memory_bytes();
    return bytes;
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
  int64_t memory_bytes() const override { return all_->memory_bytes(); }

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

namespace {

class TokenDataset final : public Dataset {
 public:
  TokenDataset(std::unique_ptr<TokenSource> ids, TokenTask task)
      : ids_(std::move(ids)), task_(std::move(task)), windows_(task_.windows) {
    const int64_t targets = ids_->size() - (windows_.tail ? 1 : windows_.context);
    const int64_t behind_first = windows_.overlap ? targets - windows_.context : targets - 1;
    const int64_t up = windows_.overlap ? windows_.stride - 1 : 0;
    size_ = std::max<int64_t>(0, behind_first + up) / windows_.stride + 1;
  }

  std::string name() const override { return task_.name; }
  int64_t size() const override { return size_; }
  std::vector<int64_t> sample_shape() const override { return {windows_.context}; }
  int64_t classes() const override { return task_.vocabulary; }
  int64_t vocabulary() const override { return task_.vocabulary; }
  int64_t document_end() const override { return task_.document_end; }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return task_.tokenizer; }
  TargetForm target_form() const override {
    return {.shape = windows_.each ? Shape{windows_.context} : Shape{},
            .classes = task_.vocabulary,
            .bytes_per_target = task_.bytes_per_target};
  }
  EpochOrder epoch_order() const override {
    return {windows_.order, windows_.epoch_samples > 0 ? windows_.epoch_samples : size_};
  }
  StoredSamples stored() const override {
    const bool ragged = windows_.tail && (ids_->size() - 1) % windows_.stride != 0;
    if (ids_->data() == nullptr || ragged || windows_.overlap || own_labels()) return {};
    StoredSamples s;
    s.codes = ids_->data();
    s.bytes = ids_->memory_bytes();
    s.stride = s.target_stride = windows_.stride;
    s.form = s.target_form = ids_->form();
    s.labels = static_cast<const uint8_t*>(s.codes) + (windows_.each ? 1 : windows_.context) * element_bytes(s.form);
    return s;
  }
  int64_t memory_bytes() const override {
    int64_t bytes = ids_->memory_bytes();
    for (const TokenSource* const own : {task_.mask.get(), task_.labels.get()})
      if (own != nullptr) bytes += own->memory_bytes();
    return bytes;
  }

  void sample_ids(int64_t index, int32_t* x, int32_t* label) const override {
    require(!windows_.each, task_.where, task_.name, ": targets are a class per position: read it by example.");
    example(index, x, label);
  }
  void example(int64_t index, void* x, void* target) const override {
    require(index >= 0 && index < size_, task_.where, task_.name, ": sample index: got ", index, ", expected 0 .. ",
            size_ - 1, ".");
    const int64_t begin = index * windows_.stride, count = std::min(windows_.context, ids_->size() - 1 - begin);
    auto* const to = static_cast<int32_t*>(x);
    auto* const labels = static_cast<int32_t*>(target);
    ids_->read(begin, count, to);
    if (!windows_.each) return ids_->read(begin + windows_.context, 1, labels);
    if (task_.labels != nullptr) {
      task_.labels->read(begin + 1, count, labels);
    } else {
      std::copy(to + 1, to + count, labels);
      ids_->read(begin + count, 1, labels + count - 1);
    }
    if (task_.mask != nullptr) {
      std::vector<int32_t> counts(static_cast<size_t>(count));
      task_.mask->read(begin + 1, count, counts.data());
      for (int64_t p = 0; p < count; ++p)
        if (counts[static_cast<size_t>(p)] == 0) labels[p] = kIgnoredClass;
    }
    std::fill(to + count, to + windows_.context, 0);
    std::fill(labels + count, labels + windows_.context, kIgnoredClass);
    if (windows_.overlap && index > 0) std::fill_n(labels, windows_.context - windows_.stride, kIgnoredClass);
  }

 private:
  bool own_labels() const { return task_.mask != nullptr || task_.labels != nullptr; }

  std::unique_ptr<TokenSource> ids_;
  TokenTask task_;
  TokenWindows windows_;
  int64_t size_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> token_dataset(std::unique_ptr<TokenSource> ids, TokenTask task) {
  return std::make_unique<TokenDataset>(std::move(ids), std::move(task));
}

}  // namespace bitgrad::data
