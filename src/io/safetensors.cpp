#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/base/text.h"
#include "bitgrad/io/safetensors.h"
#include "io/safetensors_format.h"

namespace bitgrad {
namespace {

using namespace safetensors;

template <typename... Parts>
[[noreturn]] void fail_data(const std::string& path, const Parts&... parts) {
  fail_with(ErrorCode::kData, "safetensors", printable(concat("'", path, "': ", parts...)));
}

// The first bytes of a file that is no safetensors say what it is.
void refuse_foreign(InputFile& input, const std::string& path) {
  std::string begin(size_t{1} << 16, '\0');
  begin.resize(input.read_at(0, reinterpret_cast<uint8_t*>(begin.data()), begin.size()));
  if (const std::string why = why_no_model(begin); !why.empty())
    fail_data(path, "got another kind of file, expected safetensors: it is ", why);
}

// The length of the JSON text, checked against the file size. `front`: up to kLengthBytes first bytes of the file.
size_t header_length(std::span<const uint8_t> front, InputFile& input, const std::string& path) {
  const auto file_bytes = static_cast<uint64_t>(input.size());
  uint64_t length = 0;
  for (size_t i = 0; i < front.size(); ++i) length |= uint64_t{front[i]} << (8 * i);
  // The length of a header may look like the beginning of another kind: 640 is that of a pickle.
  const bool fits = front.size() == kLengthBytes && length <= kMaxHeaderBytes && length + kLengthBytes <= file_bytes;
  uint8_t first = 0;
  const bool more = input.read_at(kLengthBytes, &first, 1) == 1, text = more && first == '{';
  const bool cut = text && length <= kMaxHeaderBytes;  // a file of this kind whose header has no end
  if ((!fits && !cut) || (more && !text)) refuse_foreign(input, path);
  if (front.size() < kLengthBytes)
    fail_data(path, "the file is too short: got ", front.size(), " bytes, expected at least ", kLengthBytes, '.');
  if (length > kMaxHeaderBytes)
    fail_data(path, "the header is too long: bytes 0 to 7 say ", length, ", at most ", kMaxHeaderBytes,
              " are allowed. The file is damaged or of another kind.");
  if (!fits)
    fail_data(path, "the file ends inside the header: got ", file_bytes, " bytes, expected at least ",
              length + kLengthBytes, '.');
  return static_cast<size_t>(length);
}

// Sorts the tensors by offset and checks that they cover the data without gaps.
void check_offsets(std::vector<SafetensorsEntry>& entries, int64_t data_bytes, const std::string& path) {
  std::stable_sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  int64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.offset != end)
      fail_data(path, "the data has ", entry.offset > end ? "a hole before" : "an overlap at", " tensor '", entry.name,
                "': it begins at ", entry.offset, ", expected ", end, '.');
    end += entry.bytes;  // cannot overflow: offset + bytes was an int64 in the file
  }
  if (end != data_bytes)
    fail_data(path, "the length of the file does not fit: the tensors need ", end, " bytes of data, the file has ",
              data_bytes, '.');
}

constexpr std::string_view kHint =
    " The file is damaged, or another program has changed it and kept our metadata (then remove both checksums).";

// Returns whether the file has checksums; throws if it has only one, or that of the header does not match. `front`:
// the bytes before the data.
bool check_header(std::string_view front, const std::map<std::string, std::string>& metadata, const std::string& path) {
  const auto data_crc = metadata.find(std::string(kDataCrcKey)), own_crc = metadata.find(std::string(kHeaderCrcKey));
  if (data_crc == metadata.end() && own_crc == metadata.end()) return false;
  if (data_crc == metadata.end() || own_crc == metadata.end())
    fail_data(path, "of the metadata ", kDataCrcKey, " and ", kHeaderCrcKey, " one is missing.", kHint);
  const size_t place = header_crc_place(front.substr(kLengthBytes));
  if (place == std::string_view::npos) fail_data(path, "the metadata ", kHeaderCrcKey, " is not in its form.", kHint);
  const std::string header_now = header_crc(front, place);
  if (header_now != own_crc->second)
    fail_data(path, "the checksum of the header (bytes 0 to ", front.size(), ") is wrong: got ", header_now,
              ", the file says ", own_crc->second, '.', kHint);
  return true;
}

// Throws if the checksum of the data is not `crc`.
void check_data_crc(uint32_t crc, size_t data_begin, const std::map<std::string, std::string>& metadata,
                    const std::string& path) {
  const std::string now = crc_text(crc);
  if (const std::string& said = metadata.at(std::string(kDataCrcKey)); now != said)
    fail_data(path, "the checksum of the data (from byte ", data_begin, ") is wrong: got ", now, ", the file says ",
              said, '.', kHint);
}

// Appends the bytes of the file up to `end`.
void read_to(size_t end, InputFile& input, const std::string& path, std::vector<uint8_t>& bytes) {
  const size_t begin = bytes.size();
  try {
    bytes.resize(end);
  } catch (const std::bad_alloc&) {
    fail_with(ErrorCode::kMemory, "safetensors", "'", path, "': no memory for its ", end, " bytes.");
  }
  if (input.read_at(static_cast<int64_t>(begin), bytes.data() + begin, end - begin) != end - begin)
    fail_data(path, "the file became shorter while it was read.");
}

}  // namespace

SafetensorsFile SafetensorsFile::read(const std::string& path) { return read(*file_system().open_read(path), path); }

SafetensorsFile SafetensorsFile::parse(std::vector<uint8_t> bytes, const std::string& path) {
  return read(*memory_file(std::move(bytes)), path);
}

// Reads and allocates only what the part read so far has justified.
SafetensorsFile SafetensorsFile::read_header(InputFile& input, const std::string& path, std::vector<uint8_t>& front) {
  front.resize(kLengthBytes);
  front.resize(input.read_at(0, front.data(), front.size()));
  const size_t json_bytes = header_length(front, input, path);
  SafetensorsFile file;
  file.data_begin_ = kLengthBytes + json_bytes;
  read_to(file.data_begin_, input, path, front);
  const std::string_view text(reinterpret_cast<const char*>(front.data()), front.size());
  Header header = parse_header(text.substr(kLengthBytes), path);
  check_offsets(header.entries, input.size() - static_cast<int64_t>(file.data_begin_), path);
  file.has_checksums_ = check_header(text, header.metadata, path);
  file.path_ = path;
  file.metadata_ = std::move(header.metadata);
  file.entries_ = std::move(header.entries);
  for (size_t i = 0; i < file.entries_.size(); ++i) file.index_.emplace(file.entries_[i].name, i);
  return file;
}

SafetensorsFile SafetensorsFile::read(InputFile& input, const std::string& path) {
  std::vector<uint8_t> bytes;
  SafetensorsFile file = read_header(input, path, bytes);
  read_to(static_cast<size_t>(input.size()), input, path, bytes);
  const size_t begin = file.data_begin_;
  if (file.has_checksums_)
    check_data_crc(crc32c(bytes.data() + begin, bytes.size() - begin), begin, file.metadata_, path);
  file.bytes_ = std::move(bytes);
  return file;
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  std::shared_ptr<InputFile> input = file_system().open_read(path);
  std::vector<uint8_t> front;
  SafetensorsFile file = read_header(*input, path, front);
  file.input_ = std::move(input);
  return file;
}

void SafetensorsFile::check_data() const {
  constexpr int64_t kBlock = int64_t{1} << 20;
  if (input_ == nullptr || !has_checksums_) return;
  std::vector<uint8_t> block(kBlock);
  uint32_t crc = 0;
  for (auto at = static_cast<int64_t>(data_begin_); at < input_->size(); at += kBlock) {
    const auto count = static_cast<size_t>(std::min(kBlock, input_->size() - at));
    if (input_->read_at(at, block.data(), count) != count)
      fail_data(path_, "the file became shorter while it was read.");
    crc = crc32c(block.data(), count, crc);
  }
  check_data_crc(crc, data_begin_, metadata_, path_);
}

const SafetensorsEntry& SafetensorsFile::entry(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) fail_data(path_, "no such tensor: '", name, "' in the file.");
  return entries_[found->second];
}

const uint8_t* SafetensorsFile::data(std::string_view name) const {
  ensure(input_ == nullptr, "safetensors", '\'', path_, "' is held open, not in memory: copy reads its tensors");
  return bytes_.data() + data_begin_ + entry(name).offset;
}

void SafetensorsFile::copy(std::string_view name, int64_t begin, int64_t bytes, void* to) const {
  const SafetensorsEntry& of = entry(name);
  ensure(begin >= 0 && bytes >= 0 && begin <= of.bytes - bytes, "safetensors", "bytes ", begin, " to ", begin + bytes,
         " of tensor '", name, "', which has ", of.bytes);
  if (bytes == 0) return;
  if (input_ == nullptr) {
    std::memcpy(to, data(name) + begin, static_cast<size_t>(bytes));
    return;
  }
  const int64_t at = static_cast<int64_t>(data_begin_) + of.offset + begin;
  if (input_->read_at(at, to, static_cast<size_t>(bytes)) != static_cast<size_t>(bytes))
    fail_data(path_, "the file became shorter while it was read.");
}

namespace {

constexpr std::string_view kWhere = "write_safetensors";

// A JSON string literal with its quotes.
std::string json_string(std::string_view text) {
  try {
    return Json(text).dump();
  } catch (const JsonError&) {
    fail(kWhere, "a name or metadata text is not valid UTF-8.");
  }
}

void check_items(const std::vector<SafetensorsItem>& items, const std::map<std::string, std::string>& metadata) {
  std::set<std::string_view> names;
  for (const SafetensorsItem& item : items) {
    require(item.name != kMetadataName, kWhere, "a tensor cannot be named ", kMetadataName, '.');
    require(names.insert(item.name).second, kWhere, "two tensors are named '", item.name, "'.");
    const auto bits = dtype_bits(item.dtype);
    if (!bits)
      fail(kWhere, "tensor '", item.name, "': got dtype '", item.dtype, "', expected one of ", dtype_list(), '.');
    require(item.shape.size() <= kMaxRank, kWhere, "tensor '", item.name, "': got ", item.shape.size(),
            " dimensions, expected at most ", kMaxRank, '.');
    const auto bytes = tensor_bytes(*bits, item.shape);
    require(bytes.has_value(), kWhere, "tensor '", item.name,
            "': the shape is negative, too large or does not fill whole bytes.");
    require(*bytes == item.bytes, kWhere, "tensor '", item.name, "': got ", item.bytes, " bytes, dtype and shape need ",
            *bytes, '.');
    require(item.data != nullptr || item.bytes == 0, kWhere, "tensor '", item.name, "' has no data.");
  }
  for (std::string_view key : {kDataCrcKey, kHeaderCrcKey})
    require(metadata.count(std::string(key)) == 0, kWhere, "the metadata key ", key,
            " is written by the library itself.");
}

std::string json_text(const std::vector<SafetensorsItem>& items, const std::map<std::string, std::string>& metadata,
                      const std::string& data_crc) {
  std::string json = concat('{', json_string(kMetadataName), ":{", json_string(kDataCrcKey), ":\"", data_crc, "\",",
                            json_string(kHeaderCrcKey), ":\"", kNoCrc, '"');
  for (const auto& [key, value] : metadata) json += concat(',', json_string(key), ':', json_string(value));
  json += '}';
  int64_t offset = 0;
  for (const SafetensorsItem& item : items) {
    json += concat(',', json_string(item.name), ":{\"dtype\":", json_string(item.dtype), ",\"shape\":[");
    for (size_t i = 0; i < item.shape.size(); ++i) json += concat(i == 0 ? "" : ",", item.shape[i]);
    json += concat("],\"data_offsets\":[", offset, ',', offset + item.bytes, "]}");
    offset += item.bytes;
  }
  json += '}';
  json.append((kDataAlignment - (kLengthBytes + json.size()) % kDataAlignment) % kDataAlignment, ' ');
  require(json.size() <= kMaxHeaderBytes, kWhere, "the header is too long: got ", json.size(), " bytes, at most ",
          kMaxHeaderBytes, " are allowed.");
  return json;
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<SafetensorsItem>& items,
                       const std::map<std::string, std::string>& metadata) {
  check_items(items, metadata);
  uint32_t data_crc = 0;
  for (const SafetensorsItem& item : items) data_crc = crc32c(item.data, static_cast<size_t>(item.bytes), data_crc);
  const std::string json = json_text(items, metadata, crc_text(data_crc));
  std::string front;
  for (size_t i = 0; i < kLengthBytes; ++i) front.push_back(static_cast<char>(uint64_t{json.size()} >> (8 * i)));
  front += json;
  const size_t place = header_crc_place(json);
  ensure(place != std::string::npos, kWhere, "the header has no place for its checksum.");
  front.replace(kLengthBytes + place, kNoCrc.size(), header_crc(front, place));
  write_file_atomically(path, [&](OutputFile& file) {
    file.write(front.data(), front.size());
    for (const SafetensorsItem& item : items) file.write(item.data, static_cast<size_t>(item.bytes));
  });
}

}  // namespace bitgrad
