#include "bitgrad/data/npz.h"

#include <algorithm>
#include <set>

#include "bitgrad/base/error.h"
#include "data/npy_array.h"

namespace bitgrad {
namespace {

constexpr std::string_view kNpz = "data.npz", kNpyEnding = ".npy";
constexpr size_t kMostArrays = 100000;

std::string array_text(const std::string& path, const std::string& name) {
  return concat(path, " array '", name, '\'');
}

}  // namespace

NpzFile::NpzFile(const std::string& path)
    : path_(path),
      file_(file_system().open_read(path)),
      archive_(std::make_shared<data::ZipArchive>(kNpz, path_, *file_)) {
  std::set<std::string> names;
  for (size_t i = 0; i < archive_->names().size(); ++i) {
    const std::string& member = archive_->names()[i];
    if (!member.ends_with(kNpyEnding)) continue;
    const std::string name = member.substr(0, member.size() - kNpyEnding.size());
    if (!names.insert(name).second || names.size() > kMostArrays)
      fail_with(ErrorCode::kData, kNpz, path_, ": got ",
                names.size() > kMostArrays ? concat("more than ", kMostArrays, " arrays")
                                           : concat("two arrays '", name, '\''));
    const data::NpyHeader header = data::read_npy_header(kNpz, array_text(path_, name), *archive_->open(i));
    entries_.push_back({name, header.descr, Shape(header.shape), header.kind == 'f', i});
  }
}

Tensor NpzFile::floats(const std::string& name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const NpzEntry& e) { return e.name == name; });
  if (found == entries_.end()) fail_with(ErrorCode::kData, kNpz, path_, ": has no array '", name, '\'');
  const std::string what = array_text(path_, name);
  if (!found->floats) fail_with(ErrorCode::kData, kNpz, what, ": got '", found->descr, "', expected floats");
  const auto source = archive_->open(found->member);
  const data::NpyArray array = data::read_npy_array(kNpz, what, *source, data::read_npy_header(kNpz, what, *source));
  Tensor t = Tensor::empty(found->shape, dtypes::fp32, MemoryKind::kBuffer, Device::cpu());
  for (int64_t i = 0; i < t.numel(); ++i) t.as<float>()[i] = static_cast<float>(array.number_at(i));
  return t;
}

}  // namespace bitgrad
