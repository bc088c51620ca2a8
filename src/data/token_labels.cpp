// Which ids of a token file are targets, and of which class: bits in NAME.mask beside NAME.bin, or the arrays ids and
// labels of an .npz archive.
#include <algorithm>
#include <bit>
#include <cstring>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "data/data_file.h"
#include "data/npy_array.h"
#include "data/token_dataset.h"

namespace bitgrad::data {
namespace {

constexpr std::string_view kLabels = "data.tokens";

// Bit i % 8 of byte i / 8.
class BitTokens final : public TokenSource {
 public:
  BitTokens(TrackedBytes bits, int64_t n) : bits_(std::move(bits)), n_(n) {}
  int64_t size() const override { return n_; }
  void read(int64_t begin, int64_t n, int32_t* to) const override {
    for (int64_t i = 0; i < n; ++i) to[i] = bits_.data()[(begin + i) / 8] >> ((begin + i) % 8) & 1;
  }
  int64_t memory_bytes() const override { return bits_.size(); }

 private:
  TrackedBytes bits_;
  int64_t n_;
};

}  // namespace

std::string mask_path(const std::string& ids) {
  constexpr std::string_view kBin = ".bin";
  return (ids.ends_with(kBin) ? ids.substr(0, ids.size() - kBin.size()) : ids) + ".mask";
}

std::unique_ptr<TokenSource> open_mask_bits(const std::string& ids_path, int64_t ids) {
  const std::string path = mask_path(ids_path);
  if (!file_system().exists(path))
    fail_with(ErrorCode::kData, kLabels, "labels: mask: '", path, "': no such file, expected the bits of the ids in ",
              ids_path, '.');
  const int64_t bytes = (ids + 7) / 8;
  const auto file = file_system().open_read(path);
  if (file->size() != bytes)
    fail_with(ErrorCode::kData, kLabels, path, ": got ", file->size(), " bytes, expected ", bytes,
              ": a bit for each of the ", ids, " ids of ", ids_path, '.');
  TrackedBytes bits(bytes, MemoryKind::kDataset);
  if (file->read_at(0, bits.data(), static_cast<size_t>(bytes)) != static_cast<size_t>(bytes))
    fail_with(ErrorCode::kData, kLabels, path, ": the file became shorter while it was read.");
  if (ids % 8 != 0 && bits.data()[bytes - 1] >> (ids % 8) != 0)
    fail_with(ErrorCode::kData, kLabels, path, ": got bits of 1 behind the last of the ", ids,
              " ids, expected 0: bit i % 8 of byte i / 8 is that of id i (numpy.packbits with bitorder='little').");
  return std::make_unique<BitTokens>(std::move(bits), ids);
}

namespace {

// One axis of whole numbers 0 .. vocabulary-1, or kIgnoredClass if `ignored`.
TrackedBytes read_whole_numbers(const ZipArchive& archive, const std::string& path, const std::string& name,
                                int64_t vocabulary, bool ignored) {
  const std::vector<std::string>& names = archive.names();
  const auto found = std::find(names.begin(), names.end(), name + ".npy");
  if (found == names.end())
    fail_with(ErrorCode::kData, kLabels, path, ": got no array '", name, "', expected arrays ids and labels.");
  const std::string what = concat(path, " array '", name, '\'');
  const auto source = archive.open(static_cast<size_t>(found - names.begin()));
  NpyHeader header = read_npy_header(kLabels, what, *source);
  if (header.shape.size() != 1)
    fail_with(ErrorCode::kData, kLabels, what, ": got ", header.shape.size(),
              " axes, expected one: the ids of a text. ",
              "Samples of their own, [n, t], are format npz: images: ids, labels: labels.");
  const NpyArray array = read_npy_array(kLabels, what, *source, header);
  TrackedBytes out(4 * array.elements(), MemoryKind::kDataset);
  auto* const to = reinterpret_cast<int32_t*>(out.data());
  for (int64_t i = 0; i < array.elements(); ++i) {
    const std::optional<int64_t> value = array.integer_at(i);
    if (!value || !((*value >= 0 && *value < vocabulary) || (ignored && *value == kIgnoredClass)))
      array.refuse("element ", i, ": got ", array.number_at(i), ", expected 0 .. ", vocabulary - 1, " (vocabulary)",
                   ignored ? ", or -100 for an id that is not a target." : ".");
    to[i] = static_cast<int32_t>(*value);
  }
  return out;
}

}  // namespace

LabelledTokens open_labelled_tokens(const std::string& path, InputFile& file, int64_t vocabulary) {
  const ZipArchive archive(kLabels, path, file);
  TrackedBytes ids = read_whole_numbers(archive, path, "ids", vocabulary, false);
  TrackedBytes labels = read_whole_numbers(archive, path, "labels", vocabulary, true);
  if (ids.size() != labels.size())
    fail_with(ErrorCode::kData, kLabels, path, ": got ", ids.size() / 4, " ids and ", labels.size() / 4,
              " labels, expected a label for each id.");
  return {memory_tokens(std::move(ids), StoredAs::kInt32), memory_tokens(std::move(labels), StoredAs::kInt32)};
}

}  // namespace bitgrad::data
