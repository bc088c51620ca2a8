#include "data/token_dataset.h"

#include <algorithm>
#include <array>

#include "bitgrad/base/error.h"

namespace bitgrad::data {
namespace {

constexpr std::string_view kShardFile = "data.tokens";
constexpr int64_t kMostRecordBytes = int64_t{1} << 28;
constexpr int64_t kTokensFormat = 1;

// llm.c's files: a header of 256 little-endian int32, whose first three are a magic number, a version, and the number
// of ids that follow (karpathy/llm.c, dev/data/data_common.py).
constexpr int64_t kHeaderBytes = 1024;
struct ShardKind {
  int32_t magic, version;
  int64_t id_bytes;
};
constexpr ShardKind kShards[] = {{20240520, 1, 2}, {20240801, 7, 4}};

TokenFile shard_form(const std::string& path, InputFile& file) {
  std::array<int32_t, 3> head{};
  const bool there = file.size() >= kHeaderBytes && file.read_at(0, head.data(), sizeof(head)) == sizeof(head);
  const auto* const kind = std::find_if(std::begin(kShards), std::end(kShards), [&](const ShardKind& k) {
    return there && k.magic == head[0] && k.version == head[1];
  });
  if (kind == std::end(kShards))
    fail_with(ErrorCode::kData, kShardFile, path, ": stored: shard: got a file that begins with ", head[0], ", ",
              head[1],
              ", expected a header of llm.c: 20240520, 1 (uint16) or 20240801, 7 (uint32). Ids without a header are "
              "stored: uint16 or uint32.");
  TokenFile form;
  form.offset = kHeaderBytes;
  form.id_bytes = kind->id_bytes;
  form.ids = head[2];
  const int64_t bytes = kHeaderBytes + form.ids * form.id_bytes;
  if (head[2] < 0 || bytes != file.size())
    fail_with(ErrorCode::kData, kShardFile, path, ": the header counts ", head[2], " ids, which end at byte ", bytes,
              ", the file has ", file.size(), " bytes.");
  return form;
}

TokenFile raw_form(const std::string& path, const InputFile& file, int64_t id_bytes) {
  if (file.size() % id_bytes != 0)
    fail_with(ErrorCode::kData, kShardFile, path, ": got ", file.size(), " bytes, expected a multiple of ", id_bytes,
              ", the bytes of an id.");
  TokenFile form;
  form.id_bytes = id_bytes;
  form.ids = file.size() / id_bytes;
  return form;
}

// * matches any characters, ? one.
bool fits(std::string_view name, std::string_view pattern) {
  std::vector<bool> fitting(name.size() + 1);  // whether the pattern so far fits the first n characters
  fitting[0] = true;
  for (const char c : pattern) {
    for (size_t n = 1; c == '*' && n <= name.size(); ++n) fitting[n] = fitting[n] || fitting[n - 1];
    if (c == '*') continue;
    for (size_t n = name.size(); n > 0; --n) fitting[n] = fitting[n - 1] && (c == '?' || c == name[n - 1]);
    fitting[0] = false;
  }
  return fitting.back();
}

}  // namespace

TokensRecord read_tokens_record(const std::string& path) {
  constexpr int kDepth = 16;
  const std::vector<uint8_t> bytes = read_file(path, kMostRecordBytes);
  try {
    const Json record = Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                    {.depth = kDepth, .unique_names = true});
    const auto version = record.at("format_version").get<int64_t>();
    if (version != kTokensFormat)
      fail_with(ErrorCode::kData, kShardFile, "format version ", version, ", this program reads ", kTokensFormat);
    TokensRecord out{load_tokenizer(record.at("tokenizer"))};
    if (record.contains("end")) out.end = record.at("end").get<int64_t>();
    if (out.end < -1 || out.end >= out.tokenizer->vocabulary())
      fail_with(ErrorCode::kData, kShardFile, "end: got ", out.end, ", expected -1 or an id below ",
                out.tokenizer->vocabulary());
    return out;
  } catch (const JsonError& e) {
    fail_with(ErrorCode::kData, kShardFile, path, ": ", e.what());
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kData) throw;
    fail_with(ErrorCode::kData, kShardFile, path, ": ", e.what());
  }
}

std::string tokens_record_of(const std::string& shard) {
  const size_t folder = shard.rfind('/') == std::string::npos ? 0 : shard.rfind('/') + 1;
  for (const char* mark : {"_train_", "_val_"}) {
    const size_t at = shard.rfind(mark);
    if (at == std::string::npos || at < folder) continue;
    std::string path = concat(shard.substr(0, at), kTokensEnd);
    if (file_system().exists(path)) return path;
  }
  return "";
}

std::vector<std::string> matching_files(std::string_view where, const std::string& path) {
  const size_t name = path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1;
  if (path.find_first_of("*?", name) == std::string::npos) return {path};
  const std::string folder = path.substr(0, name), pattern = path.substr(name);
  std::vector<std::string> files;
  if (folder.empty() || file_system().is_directory(folder))
    for (const std::string& file : file_system().list(folder.empty() ? "." : folder))
      if (fits(file, pattern)) files.push_back(folder + file);
  if (files.empty())
    fail_with(ErrorCode::kData, where, "'", path, "': got no file, expected at least one that fits ", pattern, '.');
  std::sort(files.begin(), files.end());
  return files;
}

std::unique_ptr<TokenSource> open_token_file(const std::string& path, std::unique_ptr<InputFile> file,
                                             std::string_view stored, int64_t vocabulary) {
  TokenFile form = stored == "shard" ? shard_form(path, *file) : raw_form(path, *file, stored == "uint16" ? 2 : 4);
  form.name = path;
  form.vocabulary = vocabulary;
  return file_tokens(std::move(file), form);
}

}  // namespace bitgrad::data
