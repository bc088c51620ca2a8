// Format text: sliding windows of bytes for networks of linear layers. Language models use format tokens (tokens.cpp).
// The vocabulary is the sorted set of bytes that occur in the whole file, with ids 0 .. v-1. Sample i of a split holds
// the `context` ids before position context + i of that split; its label is the id at that position (the task of Bengio
// et al. 2003 and Karpathy's char-rnn, 2015). Split train is the first floor(size * (1 - test_fraction)) bytes, test
// the rest; no sample crosses the boundary. targets `last` is that single label; targets `each` is the next byte at
// every position of the sample: target [context], the ids from position i + 1 on.
//
// The file may be plain or gzip.
#include <algorithm>
#include <array>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "data/data_file.h"
#include "data/formats.h"
#include "data/token_dataset.h"

namespace bitgrad::data {
namespace {

constexpr std::string_view kDataText = "data.text";

// Reads to the end and counts each byte.
int64_t count_bytes(const std::string& path, ContentReader& reader, std::array<int64_t, 256>& occurs) {
  std::vector<uint8_t> piece(size_t{1} << 16);
  for (;;) {
    const int64_t before = reader.offset(), got = reader.read(piece.data(), std::ssize(piece));
    if (before == 0)
      require_text(kDataText, path, {reinterpret_cast<const char*>(piece.data()), static_cast<size_t>(got)});
    for (int64_t i = 0; i < got; ++i) ++occurs[piece[static_cast<size_t>(i)]];
    if (got < std::ssize(piece)) return reader.offset();
  }
}

void check_keys(const DatasetSpec& spec) {
  check_text_keys(kDataText, spec);
  require(spec.targets.empty() || spec.targets == "last" || spec.targets == "each", kDataText, "targets: got '",
          spec.targets, "', expected last (the byte after the sample) or each (the next byte at every position).");
}

}  // namespace

void check_text_keys(std::string_view where, const DatasetSpec& spec) {
  require(spec.context >= 1, where, "context: got ", spec.context, ", expected 1 or more.");
  require(spec.test_fraction >= 0 && spec.test_fraction < 1, where, "test_fraction: got ", spec.test_fraction,
          ", expected a number in [0, 1).");
  require(spec.valid_fraction >= 0 && spec.test_fraction + spec.valid_fraction < 1, where, "test_fraction (",
          spec.test_fraction, ") and data.valid.fraction (", spec.valid_fraction,
          "): got no part of the text to train on, expected a sum below 1.");
  require(spec.split == "train" || spec.split == "test" || (spec.split == "valid" && spec.valid_fraction > 0), where,
          "split: got '", spec.split, "', expected train or test.");
  require(spec.affine == DatasetSpec{}.affine, where, "affine: got [", spec.affine[0], ", ", spec.affine[1],
          "], which is for pixels; a text has none.");
  require(!spec.normalize.given(), where, "normalize is for pixels; a text has none.");
}

std::pair<int64_t, int64_t> text_range(const DatasetSpec& spec, int64_t size) {
  const auto part = [&](double fraction) { return static_cast<int64_t>(static_cast<double>(size) * fraction); };
  const int64_t test = part(1.0 - spec.test_fraction);
  const int64_t valid = spec.valid_fraction > 0 ? part(1.0 - spec.test_fraction - spec.valid_fraction) : test;
  if (spec.split == "train") return {0, valid};
  return spec.split == "valid" ? std::pair{valid, test} : std::pair{test, size};
}

std::unique_ptr<Dataset> make_text_dataset(const DatasetSpec& spec) {
  check_keys(spec);
  const std::string path = data_path(spec.root, spec.file);
  const std::unique_ptr<InputFile> file = open_data_file(kDataText, spec, "file", spec.file, "a text");
  // Reads the file twice, so that only the split's part of the text is ever in memory.
  ContentReader all(path, *file);
  std::array<int64_t, 256> occurs{};
  const int64_t size = count_bytes(path, all, occurs);
  if (size == 0) fail_with(ErrorCode::kData, kDataText, path, ": the file is empty.");
  int64_t control = 0;
  for (size_t byte = 0; byte < occurs.size(); ++byte)
    if (is_control_byte(static_cast<char>(byte))) control += occurs[byte];
  warn_of_control_bytes(path, control, size);
  std::array<uint8_t, 256> id_of{};
  int64_t vocabulary = 0;
  for (size_t byte = 0; byte < id_of.size(); ++byte)
    if (occurs[byte] > 0) id_of[byte] = static_cast<uint8_t>(vocabulary++);
  const auto [begin, end] = text_range(spec, size);
  if (end - begin <= spec.context)
    fail_with(ErrorCode::kData, kDataText, path, ": split ", spec.split, ": got ", end - begin, " of the file's ", size,
              " bytes, expected more than context = ", spec.context,
              ". Take a longer text, a shorter context or another "
              "test_fraction (",
              spec.test_fraction, ").");
  TrackedBytes ids(end - begin, MemoryKind::kDataset);
  ContentReader text(path, *file);
  if (text.read(nullptr, begin) != begin || text.read(ids.data(), ids.size()) != ids.size())
    fail_with(ErrorCode::kData, kDataText, path, ": the file became shorter while it was read.");
  std::transform(ids.data(), ids.data() + ids.size(), ids.data(), [&](uint8_t byte) { return id_of[byte]; });
  TokenTask task;
  task.where = kDataText;
  task.name = concat(path, " (", spec.split, ")");
  task.vocabulary = vocabulary;
  task.bytes_per_target = 1;
  task.windows.context = spec.context;
  task.windows.each = spec.targets == "each";
  return token_dataset(memory_tokens(std::move(ids), StoredAs::kUint8), std::move(task));
}

}  // namespace bitgrad::data
