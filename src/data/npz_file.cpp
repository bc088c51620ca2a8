#include "bitgrad/data/npz.h"

#include <bit>
#include <set>

#include "bitgrad/base/error.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/dtype/bf16.h"
#include "data/npy_header.h"
#include "data/zip.h"

namespace bitgrad {
namespace {

constexpr std::string_view kNpz = "data.npz", kNpyEnding = ".npy";
constexpr size_t kMostArrays = 100000;

std::string array_text(const std::string& path, const std::string& name) {
  return concat(path, " array '", name, '\'');
}

float npz_element(const data::NpyHeader& header, const uint8_t* from, int64_t i) {
  uint64_t bits = 0;
  for (int64_t b = header.width - 1; b >= 0; --b) bits = (bits << 8) | from[i * header.width + b];
  if (header.width == 2) return fp16_to_float(static_cast<uint16_t>(bits));
  if (header.width == 4) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  return static_cast<float>(std::bit_cast<double>(bits));
}

}  // namespace

NpzFile::NpzFile(const std::string& path) : path_(path), file_(file_system().open_read(path)) {
  std::set<std::string> names;
  for (const data::ZipMember& member : data::zip_members(kNpz, path_, *file_)) {
    if (!member.name.ends_with(kNpyEnding)) continue;
    const std::string name = member.name.substr(0, member.name.size() - kNpyEnding.size());
    if (!names.insert(name).second || names.size() > kMostArrays)
      fail_with(ErrorCode::kData, kNpz, path_, ": got ",
                names.size() > kMostArrays ? concat("more than ", kMostArrays, " arrays")
                                           : concat("two arrays '", name, '\''));
    const auto source = data::open_zip_member(kNpz, path_, *file_, member);
    const data::NpyHeader header = data::read_npy_header(kNpz, array_text(path_, name), *source);
    const bool floats = header.kind == 'f' && (header.width == 2 || header.width == 4 || header.width == 8);
    entries_.push_back({name, header.descr, Shape(header.shape), floats});
  }
}

Tensor NpzFile::floats(const std::string& name) const {
  for (const data::ZipMember& member : data::zip_members(kNpz, path_, *file_)) {
    if (member.name != name + std::string(kNpyEnding)) continue;
    const auto source = data::open_zip_member(kNpz, path_, *file_, member);
    const data::NpyHeader header = data::read_npy_header(kNpz, array_text(path_, name), *source);
    if (header.kind != 'f' || (header.width != 2 && header.width != 4 && header.width != 8))
      fail_with(ErrorCode::kData, kNpz, array_text(path_, name), ": got '", header.descr, "', expected floats");
    Tensor t = Tensor::empty(Shape(header.shape), dtypes::fp32, MemoryKind::kBuffer, Device::cpu());
    TrackedBytes raw(t.numel() * header.width, MemoryKind::kWorkspace);
    if (const int64_t got = source->read(raw.data(), raw.size()); got < raw.size())
      fail_with(ErrorCode::kData, kNpz, array_text(path_, name), ": truncated: got ", got, " bytes of ", raw.size());
    for (int64_t i = 0; i < t.numel(); ++i) t.as<float>()[i] = npz_element(header, raw.data(), i);
    return t;
  }
  fail_with(ErrorCode::kData, kNpz, path_, ": has no array '", name, '\'');
}

}  // namespace bitgrad
