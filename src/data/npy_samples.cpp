// Samples from a single .npy file, or an array of an .npz archive, without targets.

#include <algorithm>
#include <set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/npz.h"
#include "bitgrad/data/samples.h"
#include "data/npy_array.h"

namespace bitgrad {

namespace {

using data::NpyArray;

TrackedBytes ids_of(const NpyArray& array) {
  if (!array.whole() || array.header.kind == 'b')
    array.refuse("descr: got '", array.header.descr, "', expected integers: the model reads ids.");
  TrackedBytes out(array.elements() * int64_t{sizeof(int32_t)}, MemoryKind::kDataset);
  const int64_t each = array.elements() / array.header.count();
  for (int64_t i = 0; i < array.elements(); ++i) {
    const std::optional<int64_t> id = array.integer_at(i);
    if (!id || *id != static_cast<int32_t>(*id))
      array.refuse("sample ", i / each, ", value ", i % each, ' ', array.offset_of(i), ": got ",
                   id ? concat(*id) : concat(array.number_at(i)), ", expected an id of int32.");
    reinterpret_cast<int32_t*>(out.data())[i] = static_cast<int32_t>(*id);
  }
  return out;
}

Samples samples_of(std::string_view where, const std::string& what, data::ByteSource& source, bool ids) {
  data::NpyHeader header = data::read_npy_header(where, what, source);
  if (header.shape.empty())
    fail_with(ErrorCode::kData, where, what, ": shape: got one value without axes, expected [n, ...].");
  NpyArray array = data::read_npy_array(where, what, source, std::move(header));
  if (array.header.text()) array.refuse("descr: got '", array.header.descr, "', expected numbers.");
  std::vector<int64_t> inner = array.header.inner();
  if (inner.empty()) inner = {1};
  Samples out{what, StoredAs::kUint8, Shape(std::move(inner)), array.header.count(), {}};
  if (array.bytes()) {
    out.bytes = std::move(array.raw);
    return out;
  }
  out.stored = ids ? StoredAs::kInt32 : StoredAs::kFloat;
  out.bytes = ids ? ids_of(array) : array.floats(MemoryKind::kDataset);
  return out;
}

}  // namespace

Samples read_npy_samples(const std::string& path, InputFile& file, bool ids) {
  return samples_of("data.npy", path, *data::file_source(file), ids);
}

Samples read_npz_samples(const std::string& path, InputFile& file, bool ids) {
  constexpr std::string_view kNpz = "data.npz";
  const data::ZipArchive archive(kNpz, path, file);
  const std::vector<std::string>& members = archive.names();
  std::optional<size_t> found;
  if (members.size() == 1) found = 0;
  std::string names;
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] == "images.npy") found = i;
    constexpr size_t kMostShown = 400;
    if (names.size() < kMostShown) names += concat(names.empty() ? "" : ", ", printable(members[i]));
  }
  if (!found)
    fail_with(ErrorCode::kData, kNpz, path, ": got the members ", names,
              ", expected one array, or one that is named 'images'.");
  return samples_of(kNpz, concat(path, " array '", printable(members[*found]), '\''), *archive.open(*found), ids);
}

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
