// Output files of commands.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

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

}  // namespace bitgrad::cli
