#include "data/npy_array.h"

#include <zip.h>

#include <memory>

#include "bitgrad/base/error.h"

namespace bitgrad::data {
namespace {

using Bytes = std::vector<uint8_t>;

void put_number(Bytes& out, uint64_t x, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<uint8_t>(x >> (8 * i)));
}
void put_text(Bytes& out, const std::string& text) { out.insert(out.end(), text.begin(), text.end()); }

// Format version 1.0: the header is padded to a multiple of 64 bytes.
Bytes npy_of(const NpzArray& a) {
  std::string text = concat("{'descr': '", a.descr, "', 'fortran_order': False, 'shape': (");
  for (const int64_t d : a.shape) text += concat(d, ", ");
  text += "), }";
  while ((10 + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  Bytes out;
  put_text(out, std::string("\x93NUMPY\x01\x00", 8));
  put_number(out, text.size(), 2);
  put_text(out, text);
  out.insert(out.end(), a.bytes.begin(), a.bytes.end());
  return out;
}

}  // namespace

std::vector<uint8_t> npz_bytes(const std::vector<NpzArray>& arrays) {
  const auto done = [](bool ok) {
    if (!ok) fail_with(ErrorCode::kMemory, "npz", "no memory for the archive");
  };
  require(arrays.size() < 65535, "npz", "got ", arrays.size(), " arrays, expected fewer than 65535");
  std::vector<Bytes> contents;  // read when the archive is closed
  const std::unique_ptr<zip_source_t, void (*)(zip_source_t*)> out(zip_source_buffer_create(nullptr, 0, 0, nullptr),
                                                                   zip_source_free);
  std::unique_ptr<zip_t, void (*)(zip_t*)> zip(
      out == nullptr ? nullptr : zip_open_from_source(out.get(), ZIP_TRUNCATE, nullptr), zip_discard);
  done(zip != nullptr);
  zip_source_keep(out.get());
  size_t bytes = 0;
  for (const NpzArray& a : arrays) {
    const Bytes& content = contents.emplace_back(npy_of(a));
    bytes += content.size();
    require(bytes < (size_t{1} << 32) - (size_t{1} << 20), "npz", "the arrays have 4 GiB or more. Use safetensors");
    zip_source_t* const source = zip_source_buffer(zip.get(), content.data(), content.size(), 0);
    const zip_int64_t added = zip_file_add(zip.get(), (a.name + ".npy").c_str(), source, ZIP_FL_ENC_UTF_8);
    if (added < 0) zip_source_free(source);
    const auto i = static_cast<zip_uint64_t>(added);
    constexpr zip_uint16_t kFirstDay = 0x21;  // 1980-01-01, so that the same model gives the same file
    done(added >= 0 && zip_set_file_compression(zip.get(), i, ZIP_CM_STORE, 0) == 0 &&
         zip_file_set_dostime(zip.get(), i, 0, kFirstDay, 0) == 0);
  }
  done(zip_close(zip.get()) == 0);
  static_cast<void>(zip.release());
  zip_stat_t stat;
  done(zip_source_stat(out.get(), &stat) == 0 && zip_source_open(out.get()) == 0);
  Bytes archive(stat.size);
  done(zip_source_read(out.get(), archive.data(), archive.size()) == std::ssize(archive));
  return archive;
}

}  // namespace bitgrad::data
