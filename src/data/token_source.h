// A sequence of ids, in memory or read by position from a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/file.h"
#include "bitgrad/data/dataset.h"

namespace bitgrad::data {

// Const member functions may be called from several threads concurrently.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t size() const = 0;
  // Writes ids begin .. begin+n-1, which must exist, to `to`. Throws Error(kData) for an id that is not below the
  // vocabulary.
  virtual void read(int64_t begin, int64_t n, int32_t* to) const = 0;
  // The ids in memory, dense; nullptr if they are read from a file.
  virtual const void* data() const { return nullptr; }
  virtual StoredAs form() const { return StoredAs::kInt32; }
  int64_t memory_bytes() const { return data() == nullptr ? 0 : size() * element_bytes(form()); }
};

// `n` ids in memory, of the size of the form (kUint8, kUint16 or kInt32).
std::unique_ptr<TokenSource> memory_tokens(TrackedBytes ids, StoredAs form);

// Little-endian ids of 2 or 4 bytes, starting at byte `offset` of a file; `name` is for messages. Nothing is kept in
// memory.
struct TokenFile {
  std::string name = {};
  int64_t offset = 0;
  int64_t id_bytes = 2;
  int64_t ids = 0;
  int64_t vocabulary = 0;
};
std::unique_ptr<TokenSource> file_tokens(std::unique_ptr<InputFile> file, const TokenFile& form);

// Concatenation of at least one source.
std::unique_ptr<TokenSource> joined_tokens(std::vector<std::unique_ptr<TokenSource>> parts);
// View of ids begin .. begin+n-1 of a source that reads from files.
std::unique_ptr<TokenSource> part_of_tokens(std::unique_ptr<TokenSource> all, int64_t begin, int64_t n);

}  // namespace bitgrad::data
