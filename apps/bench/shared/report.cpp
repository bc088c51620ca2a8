#include "shared/report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <utility>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"

namespace bitgrad::bench {

namespace {

// Vendor, family and model number: virtual machines hide the model name.
std::string cpu_family() {
  std::ifstream info("/proc/cpuinfo");
  std::string vendor, family, model;
  const auto take = [](const std::string& line, const char* key, std::string& out) {
    const size_t colon = line.find(':');
    if (!out.empty() || colon == std::string::npos || colon + 2 > line.size()) return;
    if (line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1) == key) out = line.substr(colon + 2);
  };
  for (std::string line; std::getline(info, line) && (vendor.empty() || family.empty() || model.empty());) {
    take(line, "vendor_id", vendor);
    take(line, "cpu family", family);
    take(line, "model", model);
  }
  return vendor.empty() ? "unknown" : vendor + " " + family + "/" + model;
}

using Ratios = std::vector<std::pair<std::string, double>>;

// Ratios by key, in the order of the report. Rows without the ratio (the rival is not built in) are left out.
Ratios ratios_of(const Json& report, const CompareRule& rule) {
  Ratios ratios;
  for (const Json& row : report.at("rows")) {
    if (!row.contains(rule.ratio) || !row[rule.ratio].is_number()) continue;
    std::string key;
    for (const std::string& field : rule.key) {
      if (!row.contains(field)) continue;
      if (!key.empty()) key += ' ';
      key += row[field].is_string() ? row[field].get<std::string>() : row[field].dump();
    }
    ratios.emplace_back(key, row[rule.ratio].get<double>());
  }
  return ratios;
}

const double* find_ratio(const Ratios& ratios, const std::string& key) {
  for (const auto& [name, ratio] : ratios)
    if (name == key) return &ratio;
  return nullptr;
}

// `all`: an old row that is missing from the new report also counts as a loss.
bool compare(const Ratios& now, const Ratios& before, const CompareRule& rule, bool all) {
  int compared = 0, lost = 0;
  std::cout << "\n" << rule.ratio << ": old, new, new / old (a loss below " << rule.slack << ")\n";
  for (const auto& [key, is] : now) {
    const double* was = find_ratio(before, key);
    if (was == nullptr) {
      std::cout << "  " << key << ": new\n";
      continue;
    }
    const bool loss = !(is >= *was * rule.slack);
    ++compared;
    lost += loss;
    std::cout << "  " << key << std::fixed << std::setprecision(3) << ": " << *was << " " << is << " " << is / *was
              << (loss ? "  LOST" : "") << '\n';
  }
  for (const auto& [key, was] : before)
    if (find_ratio(now, key) == nullptr) {
      lost += all;
      std::cout << "  " << key << ": recorded, but missing now" << (all ? "  LOST\n" : "\n");
    }
  std::cout << compared << " results compared, " << lost << " lost\n";
  if (compared == 0)
    std::cout << "nothing was compared: the old report has " << before.size() << " results with " << rule.ratio
              << ", this one " << now.size() << ", and none of them has the same " << joined(rule.key, " and ") << '\n';
  return compared > 0 && lost == 0;
}

Json read_json(const std::string& path) {
  std::ifstream file(path);
  require(file.good(), "compare", "cannot read '", path, "'.");
  Json report;
  try {
    report = Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  } catch (const JsonError&) {  // leaves null, which is rejected below
  }
  require(report.is_object(), "compare", "'", path, "' is not a report: expected a JSON object.");
  return report;
}

// A line for each member and for each row.
std::string report_text(const Json& report) {
  std::string text;
  for (const auto& [key, value] : report.members()) {
    text += concat(text.empty() ? "{\n " : ",\n ", Json(key), ": ");
    if (!value.is_array() || value.empty()) {
      text += value.dump();
      continue;
    }
    const char* separator = "[\n  ";
    for (const Json& row : value) text += concat(std::exchange(separator, ",\n  "), row);
    text += "\n ]";
  }
  return text + "\n}\n";
}

bool same_machine(const Json& a, const Json& b) {
  return a.value("cpu", "") == b.value("cpu", "") && a.value("isa", "") == b.value("isa", "");
}

}  // namespace

Json new_report(int threads) {
  return {{"machine", cpu_model_name()},
          {"cpu", cpu_family()},
          {"isa", isa_names(cpu_isa())},
          {"threads", threads},
          {"rows", Json::array()}};
}

void check_writable(const std::string& option, const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  require(std::filesystem::is_directory(folder) && !std::filesystem::is_directory(path), "bench", option,
          ": cannot write '", path, "', expected a file in a folder that exists.");
}

void write_report(const std::string& path, const Json& report) {
  if (!path.empty()) write_file_atomically(path, report_text(report));
}

bool compare_with_file(const Json& now, const std::string& path, const CompareRule& rule) {
  const Json before = read_json(path);
  require(before.contains("rows") && before["rows"].is_array(), "compare", "'", path,
          "' is not a report: it has no list 'rows'.");
  return compare(ratios_of(now, rule), ratios_of(before, rule), rule, /*all=*/false);
}

bool guard(const Json& now, const std::string& path, const CompareRule& rule) {
  const Json file = read_json(path);
  require(file.contains("machines") && file["machines"].is_array(), "guard", "'", path,
          "' is not a file of the guard: it has no list 'machines'.");
  const Ratios ratios = ratios_of(now, rule);
  for (const Json& machine : file["machines"]) {
    if (!same_machine(machine, now)) continue;
    if (ratios.empty()) {
      std::cout << "\nguard: built without the rival, so nothing is compared\n";
      return true;
    }
    Ratios before;
    for (const auto& [key, ratio] : machine.at("ratios").members()) before.emplace_back(key, ratio.get<double>());
    return compare(ratios, before, rule, /*all=*/true);
  }
  std::cout << "\nguard: no results of this machine (" << now.at("cpu").get<std::string>() << ", "
            << now.at("isa").get<std::string>() << ") in " << path << ", so nothing is compared\n";
  return true;
}

void record(const Json& now, const std::string& path, const CompareRule& rule) {
  Json file{{"machines", Json::array()}};
  if (std::filesystem::exists(path)) file = read_json(path);
  Json machine{{"machine", now.at("machine")}, {"cpu", now.at("cpu")}, {"isa", now.at("isa")}};
  for (const auto& [key, ratio] : ratios_of(now, rule)) machine["ratios"][key] = std::round(ratio * 1000) / 1000;
  require(machine.contains("ratios"), "record", "no result has a rival, so there is nothing to record.");
  Json& machines = file["machines"];
  Json kept = Json::array();
  for (const Json& m : machines)
    if (!same_machine(m, now)) kept.push_back(m);
  kept.push_back(machine);
  machines = kept;
  write_file_atomically(path, file.dump(1) + "\n");  // a line for each ratio
}

}  // namespace bitgrad::bench
