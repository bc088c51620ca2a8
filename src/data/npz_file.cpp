#include "bitgrad/data/npz.h"

#include <set>

#include "bitgrad/base/error.h"
#include "data/npy_array.h"
#include "data/zip.h"

namespace bitgrad {
namespace {

constexpr std::string_view kNpz = "data.npz", kNpyEnding = ".npy";
constexpr size_t kMostArrays = 100000;

std::string array_text(const std::string& path, const std::string& name) {
  return concat(path, " array '", name, '\'');
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
    const bool floats = header.kind == 'f';
    entries_.push_back({name, header.descr, Shape(header.shape), floats});
  }
}

Tensor NpzFile::floats(const std::string& name) const {
  for (const data::ZipMember& member : data::zip_members(kNpz, path_, *file_)) {
    if (member.name != name + std::string(kNpyEnding)) continue;
    const auto source = data::open_zip_member(kNpz, path_, *file_, member);
    const data::NpyHeader header = data::read_npy_header(kNpz, array_text(path_, name), *source);
    if (header.kind != 'f')
      fail_with(ErrorCode::kData, kNpz, array_text(path_, name), ": got '", header.descr, "', expected floats");
    const data::NpyArray array = data::read_npy_array(kNpz, array_text(path_, name), *source, header);
    Tensor t = Tensor::empty(Shape(header.shape), dtypes::fp32, MemoryKind::kBuffer, Device::cpu());
    for (int64_t i = 0; i < t.numel(); ++i) t.as<float>()[i] = static_cast<float>(array.number_at(i));
    return t;
  }
  fail_with(ErrorCode::kData, kNpz, path_, ": has no array '", name, '\'');
}

}  // namespace bitgrad
