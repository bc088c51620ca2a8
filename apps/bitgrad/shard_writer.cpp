#include "shard_writer.h"

#include <array>
#include <bit>
#include <iomanip>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "output_file.h"

namespace bitgrad::cli {
namespace {

static_assert(std::endian::native == std::endian::little);

}  // namespace

ShardWriter::ShardWriter(std::string prefix, int64_t vocabulary, int64_t shard_ids, bool force)
    : prefix_(std::move(prefix)), id_bytes_(vocabulary <= 65536 ? 2 : 4), shard_ids_(shard_ids), force_(force) {
  require_writable(prefix_ + "000000.bin", force_);
}

void ShardWriter::add(std::span<const int32_t> ids) {
  for (const int32_t id : ids) {
    bytes_.append(reinterpret_cast<const char*>(&id), id_bytes_);
    ++ids_;
    if (++open_ == shard_ids_) write();
  }
}

const std::vector<std::string>& ShardWriter::finish() {
  if (open_ > 0 || paths_.empty()) write();
  return paths_;
}

void ShardWriter::remove_further() const {
  for (size_t i = paths_.size(); force_ && file_system().exists(path_of(i)); ++i) file_system().remove(path_of(i));
}

std::string ShardWriter::path_of(size_t shard) const {
  return concat(prefix_, std::setw(6), std::setfill('0'), shard, ".bin");
}

void ShardWriter::write() {
  const std::string path = path_of(paths_.size());
  require_writable(path, force_);
  std::array<int32_t, 256> head{id_bytes_ == 2 ? 20240520 : 20240801, id_bytes_ == 2 ? 1 : 7,
                                static_cast<int32_t>(open_)};
  write_file_atomically(path, [&](OutputFile& file) {
    file.write(head.data(), sizeof head);
    file.write(bytes_.data(), bytes_.size());
  });
  paths_.push_back(path);
  bytes_.clear();
  open_ = 0;
}

}  // namespace bitgrad::cli
