#include "shared/report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"

namespace bitgrad::bench {

namespace {

// Vendor, family and model: virtual machines hide the model's name.
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

std::string key_of(const Json& row, const CompareRule& rule) {
  std::string key;
  for (const std::string& field : rule.key) {
    if (!row.contains(field)) continue;
    key += (key.empty() ? "" : " ") + (row[field].is_string() ? row[field].get<std::string>() : row[field].dump());
  }
  return key;
}

const Json* find_row(const Json& rows, const std::string& key, const CompareRule& rule) {
  for (const Json& row : rows)
    if (key_of(row, rule) == key) return &row;
  return nullptr;
}

bool has_ratio(const Json& row, const CompareRule& rule) { return row.contains(rule.ratio) && row[rule.ratio].is_number(); }

Json read_json(const std::string& path) {
  std::ifstream file(path);
  require(file.good(), "compare", "cannot read '", path, "'.");
  const Json report = Json::parse(file, nullptr, false);
  require(report.is_object(), "compare", "'", path, "' is not a report: expected a JSON object.");
  return report;
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
  if (!path.empty()) write_file_atomically(path, report.dump(1) + "\n");
}

bool compare_reports(const Json& now, const Json& old_report, const CompareRule& rule) {
  int compared = 0, lost = 0;
  std::cout << "\n" << rule.ratio << ": old, new, new / old (a loss below " << rule.slack << ")\n";
  for (const Json& row : now.at("rows")) {
    const std::string key = key_of(row, rule);
    const Json* before = find_row(old_report.at("rows"), key, rule);
    if (before == nullptr || !has_ratio(*before, rule) || !has_ratio(row, rule)) {
      std::cout << "  " << key << ": not in both\n";
      continue;
    }
    const double was = (*before)[rule.ratio].get<double>(), is = row[rule.ratio].get<double>();
    const bool loss = !(is >= was * rule.slack);
    ++compared;
    lost += loss;
    std::cout << "  " << key << std::fixed << std::setprecision(3) << ": " << was << " " << is << " " << is / was
              << (loss ? "  LOST" : "") << '\n';
  }
  if (rule.all)
    for (const Json& row : old_report.at("rows"))
      if (has_ratio(row, rule) && find_row(now.at("rows"), key_of(row, rule), rule) == nullptr) {
        ++lost;
        std::cout << "  " << key_of(row, rule) << ": was measured before and is gone  LOST\n";
      }
  std::cout << compared << " rows compared, " << lost << " lost\n";
  return compared > 0 && lost == 0;
}

bool compare_with_file(const Json& now, const std::string& path, const CompareRule& rule) {
  const Json old_report = read_json(path);
  require(old_report.contains("rows") && old_report["rows"].is_array(), "compare", "'", path,
          "' is not a report: it has no list 'rows'.");
  return compare_reports(now, old_report, rule);
}

bool guard(const Json& now, const std::string& path, CompareRule rule) {
  rule.all = true;
  const Json file = read_json(path);
  require(file.contains("machines") && file["machines"].is_array(), "guard", "'", path,
          "' is not a file of the guard: it has no list 'machines'.");
  const bool rival = std::any_of(now.at("rows").begin(), now.at("rows").end(),
                                 [&](const Json& row) { return has_ratio(row, rule); });
  for (const Json& report : file["machines"])
    if (same_machine(report, now)) {
      if (!rival) std::cout << "\nguard: built without the rival, so nothing is compared\n";
      return !rival || compare_reports(now, report, rule);
    }
  std::cout << "\nguard: no figures of this machine (" << now.at("cpu").get<std::string>() << ", "
            << now.at("isa").get<std::string>() << ") in " << path << ", so nothing is compared\n";
  return true;
}

void record(const Json& now, const std::string& path, const CompareRule& rule) {
  Json file{{"machines", Json::array()}};
  if (std::filesystem::exists(path)) file = read_json(path);
  Json report = now;
  report["rows"] = Json::array();
  for (const Json& row : now.at("rows")) {
    if (!has_ratio(row, rule)) continue;
    Json kept = Json::object();
    for (const std::string& field : rule.key)
      if (row.contains(field)) kept[field] = row[field];
    kept[rule.ratio] = std::round(row[rule.ratio].get<double>() * 1000) / 1000;
    report["rows"].push_back(kept);
  }
  require(!report["rows"].empty(), "record", "no row has a rival, so there is nothing to record.");
  Json& machines = file["machines"];
  const auto same = std::find_if(machines.begin(), machines.end(), [&](const Json& r) { return same_machine(r, now); });
  if (same != machines.end()) {
    *same = report;
  } else {
    machines.push_back(report);
  }
  write_report(path, file);
}

}  // namespace bitgrad::bench
