// Output files of commands.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"

namespace bitgrad::cli {

// Throws Error if `path` cannot be a new file: because it is a folder, its folder is missing, or it exists and `force`
// is not set. Regardless of `force`, also throws for a device or a pipe, a file that a run keeps in its folder, and any
// of `inputs`, the files that the command reads.
void require_writable(const std::string& path, bool force, std::initializer_list<std::string> inputs = {});
// The same for `path` as a new folder that will contain `file`: throws Error if it exists and `force` is not set, or if
// it is a file, the folder of a run, or the folder that holds an input under that name.
void require_writable_folder(const std::string& path, const std::string& file, bool force,
                             std::initializer_list<std::string> inputs = {});
int64_t file_bytes(const std::string& path);

// Files that are written under a temporary name and renamed when complete.

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
