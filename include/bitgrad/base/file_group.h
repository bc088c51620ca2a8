// Several files of one result: all of them are replaced, or none.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace bitgrad {

// While one exists, write_file_atomically in this thread leaves its files, complete and on disk, under their temporary
// names; commit() renames them in the order in which they were written. Without commit(), or if one of its calls fails,
// they are removed, and every old file is as it was. Not nested: an inner group leaves its files to the outer one.
class FileGroup {
 public:
  FileGroup();
  ~FileGroup();
  FileGroup(const FileGroup&) = delete;
  FileGroup& operator=(const FileGroup&) = delete;
  void commit();
  void add(const std::string& temporary, const std::string& path) { files_.emplace_back(temporary, path); }

 private:
  FileGroup* const outer_;
  std::vector<std::pair<std::string, std::string>> files_;  // temporary name, path
};

}  // namespace bitgrad
