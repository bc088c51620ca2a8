#include "dist/wire_module.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/program.h"
#include "bitgrad/base/text.h"
#include "bitgrad/base/version.h"

namespace bitgrad::detail {
namespace {

constexpr const char *kVariable = "BITGRAD_MPI_MODULE", *kFile = "bitgrad_mpi.so";

template <typename... Parts>
[[noreturn]] void refuse(const std::string& path, const Parts&... parts) {
  fail("ranks", path, ": ", parts...);
}

std::string why_not_loaded() {
  const char* const text = dlerror();
  return text != nullptr ? text : "no reason given by the system";
}

}  // namespace

std::string wire_build() {
  return concat("bitgrad ", BITGRAD_VERSION, " (", build_commit(), "), C++ ABI ", __GXX_ABI_VERSION);
}

std::vector<std::string> wire_module_paths() {
  if (const char* const given = std::getenv(kVariable); given != nullptr && *given != '\0') return {given};
  const std::string folder = program_folder();
  std::vector<std::string> paths;
  paths.reserve(4);
  for (const char* const place : {"/", "/../", "/../lib/bitgrad/", "/../" BITGRAD_LIBRARY_FOLDER "/bitgrad/"}) {
    const std::string path = folder + place + kFile;
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
  }
  return paths;
}

const WireModule& load_wire_module() {
  const std::vector<std::string> paths = wire_module_paths();
  const auto found =
      std::find_if(paths.begin(), paths.end(), [](const std::string& path) { return file_system().exists(path); });
  require(found != paths.end(), "ranks", "ranks of several processes need the module ", kFile, ", which is not at ",
          joined(paths, " or "),
          ". Install the package bitgrad-mpi, or libopenmpi-dev and build bitgrad with -DBITGRAD_WITH_MPI=ON, or set ",
          kVariable, " to its path");
  // Its own symbols stay its own; those of MPI are found by the parts that MPI loads itself.
  void* const handle = dlopen(found->c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) refuse(*found, "cannot be loaded: ", why_not_loaded());
  void* const symbol = dlsym(handle, kWireEntryPoint);
  if (symbol == nullptr) refuse(*found, "has no symbol ", kWireEntryPoint, ", so it is not a module for ranks");
  const WireModule* const module = reinterpret_cast<const WireModule* (*)()>(symbol)();
  if (module == nullptr || module->interface != kWireInterface)
    refuse(*found, "is of interface ", module == nullptr ? 0 : module->interface, ", expected ", kWireInterface,
           ". Install the module of this version");
  const std::string build = module->build != nullptr ? module->build : "nothing";
  if (build != wire_build())
    refuse(*found, "was built with ", build, ", expected ", wire_build(), ". Install the module of this version");
  return *module;
}

}  // namespace bitgrad::detail
