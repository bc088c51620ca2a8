// The name of a parameter in a file: rules of model.rename, and PyTorch's names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bitgrad/config/weight_name.h"

namespace bitgrad::interop {

// The name that a rule gives to a path; nullopt if it does not match.
std::optional<std::string> renamed(const WeightName& rule, const std::string& path);
// Possible names of the parameter; the first that the file has is used. Based on `name` if given, otherwise on the
// path.
std::vector<std::string> candidate_names(const std::string& path, const std::optional<std::string>& name);

// model.ignore: which names of a file are left out.
class IgnoredNames {
 public:
  // Throws Error for a malformed glob.
  explicit IgnoredNames(const std::vector<std::string>& globs);
  bool ignored(const std::string& name);
  // Throws Error for a glob that matched nothing so far.
  void require_used() const;

 private:
  const std::vector<std::string> globs_;
  std::vector<bool> used_;
};

}  // namespace bitgrad::interop
