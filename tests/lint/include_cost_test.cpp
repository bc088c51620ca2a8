// What a change of a header recompiles: how many sources include it, directly or through others.
// scripts/include_cost.py prints the same numbers, and the chains behind them.
#include <filesystem>
#include <map>
#include <set>

#include "lint/source_tree.h"
#include "support/catch.h"

using namespace bitgrad::lint;

namespace {

// The most sources that may depend on a contract of kernels. Whatever only needs an enum, a pointer or a reference
// includes a small header (kernels/quantize_rules.h, kernels/unary_op.h, base/cpu.h) or declares the struct.
const std::map<std::string, size_t> kCeilings = {
    {"src/kernels/elementwise.h", 250},
    {"include/bitgrad/kernels/gemm.h", 200},
    {"include/bitgrad/kernels/kernel.h", 400},
    {"src/kernels/kernel_table.h", 200},
    {"src/kernels/quantize.h", 250},
    {"src/kernels/reduce.h", 250},
    {"include/bitgrad/kernels/unary.inc", 300},
    {"src/kernels/update_rows.h", 200},
};

using Edges = std::map<std::string, std::set<std::string>>;

// Each file, and the files with an #include line for it.
Edges included_by() {
  const std::vector<SourceFile> files = source_files({"include", "src", "cuda", "apps", "tests"});
  std::set<std::string> known;
  for (const SourceFile& file : files) known.insert(file.path);
  Edges edges;
  for (const SourceFile& file : files)
    for (const Include& include : includes_of(file)) {
      if (include.angled) continue;
      const std::string own = std::filesystem::path(file.path).parent_path().string() + "/";
      for (const std::string& folder : {own, std::string("include/"), std::string("src/"), std::string("tests/"),
                                        std::string("apps/"), std::string("apps/bench/"), std::string()})
        if (known.count(folder + include.target)) {
          edges[folder + include.target].insert(file.path);
          break;
        }
    }
  return edges;
}

std::set<std::string> dependents(const std::string& header, const Edges& edges) {
  std::set<std::string> found{header};
  std::vector<std::string> next{header};
  while (!next.empty()) {
    const auto users = edges.find(next.back());
    next.pop_back();
    if (users == edges.end()) continue;
    for (const std::string& user : users->second)
      if (found.insert(user).second) next.push_back(user);
  }
  std::erase_if(found, [](const std::string& file) { return !file.ends_with(".cpp") && !file.ends_with(".cu"); });
  return found;
}

}  // namespace

TEST_CASE("a change of a kernel's contract recompiles the sources that use it, not most of the project") {
  const Edges edges = included_by();
  CHECK(dependents("include/bitgrad/base/error.h", edges).size() > 500);
  for (const auto& [header, ceiling] : kCeilings) {
    std::string direct;
    const auto users = edges.find(header);
    REQUIRE(users != edges.end());
    for (const std::string& user : users->second)
      if (user.ends_with(".h"))
        direct += user + " brings it to " + std::to_string(dependents(user, edges).size()) + "\n";
    INFO(header << "\n" << direct);
    CHECK(dependents(header, edges).size() <= ceiling);
  }
}
