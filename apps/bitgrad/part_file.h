// Files that are written under a temporary name and renamed when complete.
#pragma once

#include <memory>
#include <string>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"

namespace bitgrad::cli {

// Writes path + ".part", which finish() renames to path. Without finish() it is removed.
class PartFile {
 public:
  explicit PartFile(std::string path) : path_(std::move(path)), file_(file_system().create(path_ + ".part")) {}
  ~PartFile() {
    if (file_ == nullptr) return;
    file_.reset();
    try {
      file_system().remove(path_ + ".part");
    } catch (const Error&) {  // the error that ended the writing is already propagating
    }
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  void write(const void* data, size_t bytes) { file_->write(data, bytes); }
  void write(const std::string& text) { write(text.data(), text.size()); }
  void finish() {
    file_->flush_to_disk();
    file_->close();
    file_.reset();
    detail::commit_file(path_ + ".part", path_);
  }

 private:
  const std::string path_;
  std::unique_ptr<OutputFile> file_;
};

}  // namespace bitgrad::cli
