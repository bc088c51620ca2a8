// Shards of ids in llm.c's format: 256 little-endian int32 (20240520, 1 for uint16 or 20240801, 7 for uint32; the
// number of ids), then the ids (karpathy/llm.c, dev/data/data_common.py).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bitgrad::cli {

// Keeps one shard in memory. Each file appears only when it is complete.
class ShardWriter {
 public:
  // Files are named prefix000000.bin, prefix000001.bin and so on. Ids are below `vocabulary`, and stored as uint16 if
  // that is at most 65536.
  ShardWriter(std::string prefix, int64_t vocabulary, int64_t shard_ids, bool force);
  void add(std::span<const int32_t> ids);
  // Writes the last shard and returns the paths of all, at least one.
  const std::vector<std::string>& finish();
  // Removes further shards of an earlier, longer call, which a file name pattern would match: when the new ones are in
  // place.
  void remove_further() const;
  int64_t ids() const { return ids_; }
  int64_t shards() const { return static_cast<int64_t>(paths_.size()); }

 private:
  std::string path_of(size_t shard) const;
  void write();
  std::string prefix_;
  size_t id_bytes_;
  int64_t shard_ids_;
  bool force_;
  int64_t ids_ = 0, open_ = 0;
  std::string bytes_;
  std::vector<std::string> paths_;
};

}  // namespace bitgrad::cli
