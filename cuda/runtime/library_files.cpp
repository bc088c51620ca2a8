#include "cuda/runtime/library_files.h"

#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace bitgrad::cuda {
namespace {

// lib/ of the environment of the first python3 on the PATH, activated or not; empty if there is none.
std::string python_lib() {
  const char* const path = std::getenv("PATH");
  std::stringstream folders(path == nullptr ? "" : path);
  std::error_code error;
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty() && std::filesystem::exists(folder + "/python3", error))
      return (std::filesystem::path(folder).parent_path() / "lib").string();
  return {};
}

// Folders of packages of Python.
std::vector<std::filesystem::path> package_folders() {
  std::vector<std::string> roots;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* value = std::getenv(variable)) roots.emplace_back(std::string(value) + "/lib");
  if (const std::string python = python_lib(); !python.empty()) roots.push_back(python);
  if (const char* home = std::getenv("HOME")) roots.emplace_back(std::string(home) + "/.local/lib");
  roots.insert(roots.end(), {"/usr/local/lib", "/usr/lib"});
  std::vector<std::filesystem::path> folders;
  for (const std::string& root : roots) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(root, error))
      if (entry.path().filename().string().starts_with("python3"))
        for (const char* packages : {"site-packages", "dist-packages"}) folders.push_back(entry.path() / packages);
  }
  return folders;
}

}  // namespace

std::vector<std::string> library_candidates(const LibraryFiles& files) {
  const char* const named = std::getenv(files.variable);
  if (named != nullptr && *named != '\0') return {named};
  std::vector<std::string> out = files.names;
  std::error_code error;
  for (const std::filesystem::path& folder : package_folders())
    for (const std::string& file : files.in_wheels)
      if (const auto path = folder / file; std::filesystem::exists(path, error)) out.push_back(path.string());
  std::vector<std::string> toolkits;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* value = std::getenv(variable)) toolkits.emplace_back(value);
  toolkits.emplace_back("/usr/local/cuda");
  for (const std::string& toolkit : toolkits)
    for (const char* folder : {"lib64", "targets/x86_64-linux/lib"})
      for (const std::string& name : files.names)
        if (const auto path = std::filesystem::path(toolkit) / folder / name; std::filesystem::exists(path, error))
          out.push_back(path.string());
  return out;
}

}  // namespace bitgrad::cuda
