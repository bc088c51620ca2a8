// Debian packages, and what finds an installed bitgrad: pkg-config, components of find_package.
#include <filesystem>
#include <fstream>

#include "apps/cli.h"
#include "bitgrad/base/text.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"

using namespace bitgrad::test;

namespace {

std::string run(const std::vector<std::string>& arguments, const Process::Environment& environment = {}) {
  const ProcessResult r = run_program(arguments, environment);
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  return r.out;
}

bool has(const std::string& program) { return run_program({"/bin/sh", "-c", "command -v " + program}).code == 0; }

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (!entry.is_directory()) out.push_back(std::filesystem::relative(entry.path(), folder));
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

TEST_CASE("Debian packages install, run and are removed cleanly in a root of their own", "[slow]") {
  if (!has("dpkg-deb") || !has("dpkg-shlibdeps") || !has("cpack") || !has("pkg-config")) {
    WARN("skipped: no dpkg-deb, dpkg-shlibdeps, cpack or pkg-config");
    return;
  }
  const TempDir temp;
  run({"/bin/sh", "-c",
       "cd " + build_path() + " && cpack -G DEB -D CPACK_DEBIAN_COMPRESSION_TYPE=none -B " + temp.file("packages")});
  const std::string root = temp.file("root");
  std::filesystem::create_directories(root + "/var/lib/dpkg/info");
  std::filesystem::create_directories(root + "/var/lib/dpkg/updates");
  std::ofstream(root + "/var/lib/dpkg/status");
  std::vector<std::string> install{"dpkg",
                                   "--root=" + root,
                                   "--force-depends",
                                   "--force-not-root",
                                   "--force-script-chrootless",
                                   "--log=" + temp.file("log"),
                                   "-i"};
  for (const auto& entry : std::filesystem::directory_iterator(temp.file("packages")))
    if (entry.path().extension() == ".deb") install.push_back(entry.path());
  std::vector<std::string> packages{"bitgrad-dev", "bitgrad"};
  if (std::filesystem::exists(build_path("bin/bitgrad_mpi.so"))) packages.insert(packages.begin(), "bitgrad-mpi");
  REQUIRE(install.size() == 7 + packages.size());
  run(install);
  CHECK(contains(run({root + "/usr/bin/bitgrad", "version"}), "bitgrad 0.1.0"));
  CHECK(std::filesystem::exists(root + "/usr/share/doc/bitgrad/copyright"));

  // The first result after the installation: a model that comes with the program, and no file of the build.
  std::ofstream(temp.file("digit.csv")) << bitgrad::joined(std::vector<int>(784, 255), ",") << '\n';
  const ProcessResult predicted =
      run_program({root + "/usr/bin/bitgrad", "predict", "models/tfc_w1a1", "digit.csv", "--pixels"}, {}, temp.path());
  INFO(predicted.err);
  CHECK(predicted.code == 0);
  CHECK(contains(predicted.out, "class"));
  CHECK(contains(run({root + "/usr/bin/bitgrad", "models"}), "\ntfc_w1a1 "));

  // A C program by pkg-config, which finds the files where they are.
  const Process::Environment pc{{"PKG_CONFIG_PATH", root + "/usr/lib/pkgconfig"}};
  const std::string flags = run({"pkg-config", "--cflags", "--libs", "bitgrad_c"}, pc);
  run({"/bin/sh", "-c",
       "cc -std=c99 " + source_path("tests/apps/c_interface.c") + " -o " + temp.file("c") + " " +
           flags.substr(0, flags.find('\n')) + " -lm -Wl,-rpath," + root + "/usr/lib"});
  CHECK(run({temp.file("c"), temp.file("")}).size() == 65);
  CHECK(contains(run({"pkg-config", "--libs", "bitgrad"}, pc), "-lbitgrad -lyaml-cpp -lz"));

  // Components that there are, one that is not built, and one that nobody knows.
  std::filesystem::create_directory(temp.file("find"));
  const auto find = [&](const std::string& components) {
    std::ofstream(temp.file("find/CMakeLists.txt")) << "cmake_minimum_required(VERSION 3.25)\nproject(find LANGUAGES "
                                                       "CXX)\nfind_package(bitgrad 0.1 REQUIRED COMPONENTS "
                                                    << components
                                                    << ")\nif(NOT TARGET bitgrad::c OR NOT TARGET bitgrad::bitgrad)\n  "
                                                       "message(FATAL_ERROR \"no target\")\nendif()\n";
    return run_program({"cmake", "-S", temp.file("find"), "-B", temp.file("find/build"), "--fresh",
                        "-DCMAKE_PREFIX_PATH=" + root + "/usr"});
  };
  const ProcessResult there = find("c");
  INFO(there.err);
  CHECK(there.code == 0);
  const ProcessResult unknown = find("nothing");
  CHECK(unknown.code != 0);
  CHECK(contains(unknown.err, "bitgrad has no component nothing"));

  std::vector<std::string> purge{
      "dpkg", "--root=" + root, "--force-not-root", "--force-script-chrootless", "--log=" + temp.file("log"), "-P"};
  purge.insert(purge.end(), packages.begin(), packages.end());
  run(purge);
  for (const std::string& file : files_below(root)) {
    INFO(file);
    CHECK(file.starts_with("var/lib/dpkg/"));
  }
}
