// The source tree as text, for lint tests: files, lines without comments, #include lines.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "support/paths.h"

namespace bitgrad::lint {

struct Line {
  int number;
  std::string text;  // as it is
  std::string code;  // without a // comment and without the content of "strings"
};

struct SourceFile {
  std::string path;  // from the root of the project: src/base/cpu.cpp
  std::vector<Line> lines;
  bool starts_with(const std::string& prefix) const { return path.rfind(prefix, 0) == 0; }
  bool ends_with(const std::string& end) const {
    return path.size() >= end.size() && path.compare(path.size() - end.size(), end.size(), end) == 0;
  }
};

struct Include {
  int line;
  std::string target;
  bool angled;
};

inline std::string code_of(const std::string& text) {
  std::string code;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
      continue;
    }
    if (text[i] == '"' && !(i > 0 && text[i - 1] == '\'')) quoted = !quoted;
    if (!quoted && text[i] == '/' && i + 1 < text.size() && text[i + 1] == '/') break;
    if (!quoted) code.push_back(text[i]);
  }
  return code;
}

// Of a file, by its path from the root of the project.
inline std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream in(std::filesystem::path(bitgrad::test::source_path()) / path);
  for (std::string text; std::getline(in, text);) lines.push_back(text);
  return lines;
}

// Sources below these folders, sorted by path.
inline std::vector<SourceFile> source_files(const std::vector<std::string>& folders) {
  namespace fs = std::filesystem;
  const fs::path root = bitgrad::test::source_path();
  std::vector<SourceFile> files;
  for (const std::string& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cpp" && extension != ".inc" && extension != ".cu") continue;
      SourceFile file{fs::relative(entry.path(), root).string(), {}};
      int number = 0;
      for (const std::string& text : lines_of(file.path)) file.lines.push_back({++number, text, code_of(text)});
      files.push_back(std::move(file));
    }
  }
  std::sort(files.begin(), files.end(), [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

inline std::vector<Include> includes_of(const SourceFile& file) {
  std::vector<Include> includes;
  for (const Line& line : file.lines) {
    const size_t start = line.text.find_first_not_of(" \t");
    if (start == std::string::npos || line.text.compare(start, 8, "#include") != 0) continue;
    const size_t open = line.text.find_first_of("<\"", start + 8);
    if (open == std::string::npos) continue;
    const bool angled = line.text[open] == '<';
    const size_t close = line.text.find(angled ? '>' : '"', open + 1);
    includes.push_back({line.number, line.text.substr(open + 1, close - open - 1), angled});
  }
  return includes;
}

struct Function {
  int line;  // of its first line
  int lines;
};

// Functions that end with a brace in the column of their first line, 0 or 2 (members): as clang-format lays them out.
inline std::vector<Function> functions_of(const SourceFile& file) {
  static const std::regex other(
      R"(^ *(alignas|namespace|class|struct|enum|union|extern|using|public|private|protected)\b)");
  std::vector<Function> functions;
  std::vector<bool> inside(file.lines.size());  // of a function that was found
  for (const size_t indent : {size_t{0}, size_t{2}}) {
    const std::string margin(indent, ' ');
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& first = file.lines[i].code;
      if (inside[i] || first.size() <= indent || first.compare(0, indent, margin) != 0) continue;
      if (std::string(" }#)").find(first[indent]) != std::string::npos || std::regex_search(first, other)) continue;
      std::string head;
      size_t k = i;
      const auto last = [&] {
        const size_t end = file.lines[k].code.find_last_not_of(" \\");
        return end == std::string::npos ? ';' : file.lines[k].code[end];
      };
      for (head = first; k + 1 < file.lines.size() && std::string("{};").find(last()) == std::string::npos;)
        head += file.lines[++k].code;
      if (last() != '{' || head.find('(') == std::string::npos) continue;
      while (k + 1 < file.lines.size() && file.lines[k].code.rfind(margin + "}", 0) != 0) ++k;
      functions.push_back({file.lines[i].number, static_cast<int>(k - i + 1)});
      std::fill(inside.begin() + static_cast<std::ptrdiff_t>(i), inside.begin() + static_cast<std::ptrdiff_t>(k), true);
      i = k;
    }
  }
  return functions;
}

}  // namespace bitgrad::lint
