#include "bitgrad/base/file.h"

#include <unistd.h>

#include <filesystem>

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"

namespace bitgrad {
namespace {

thread_local FileGroup* t_group = nullptr;

}  // namespace

FileGroup::FileGroup() : outer_(t_group) {
  if (outer_ == nullptr) t_group = this;
}

FileGroup::~FileGroup() {
  if (outer_ != nullptr) return;
  t_group = nullptr;
  for (const auto& [temporary, path] : files_) try {
      file_system().remove(temporary);
    } catch (...) {  // the error that ended the writing is already on its way
    }
}

namespace {

// A second name for the file that is about to be replaced, so that it is there at every moment; where the file system
// has no such names it moves. "": there is no file.
std::string keep_old(const std::string& path) {
  if (!file_system().exists(path)) return {};
  if (file_system().is_directory(path))
    fail_with(ErrorCode::kData, "file", "'", printable(path), "' is a directory, expected the place of a file.");
  std::string old = detail::temporary_name(path + ".old");
  file_system().remove(old);
  if (::link(path.c_str(), old.c_str()) != 0) file_system().rename(path, old);
  return old;
}

void restore(const std::string& path, const std::string& old) {
  try {
    if (old.empty()) return file_system().remove(path);
    if (!file_system().exists(old)) return;
    file_system().rename(old, path);
    file_system().remove(old);  // of two names of one file rename keeps both
  } catch (const Error& error) {
    log(LogLevel::kWarning,
        concat("'", printable(path), "' is new, other files of the same result are old",
               old.empty() ? std::string() : concat("; its old content is in '", printable(old), "'"), ": ",
               error.what()));
  }
}

}  // namespace

void FileGroup::commit() {
  if (outer_ != nullptr) return;
  t_group = nullptr;
  std::vector<std::string> old;
  try {
    for (const auto& [temporary, path] : files_) {
      old.push_back(keep_old(path));
      detail::commit_file(temporary, path);
    }
  } catch (...) {
    for (size_t i = old.size(); i-- > 0;) restore(files_[i].second, old[i]);
    throw;
  }
  files_.clear();
  for (const std::string& name : old) try {
      if (!name.empty()) file_system().remove(name);
    } catch (...) {  // all files are new
    }
}

void detail::commit_file(const std::string& temporary, const std::string& path) {
  if (t_group != nullptr) return t_group->add(temporary, path);
  file_system().rename(temporary, path);
  const std::string parent = std::filesystem::path(path).parent_path().string();
  file_system().sync_directory(parent.empty() ? "." : parent);
}

}  // namespace bitgrad
