// Texts that a configuration comes from (the file, the command line's arguments) and reports about places in them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/train/config.h"

namespace bitgrad::config {

// SourceMark::argument of what a preset says (model.preset).
inline constexpr int kPreset = -1;
// Of two places that contradict each other, findings name the one nearer to the user: the preset, the file, the command
// line have -1, 0, 1.
inline int nearness(SourceMark mark) { return mark.argument > 0 ? 1 : mark.argument; }

inline constexpr size_t kMaxBytes = size_t{1} << 20;        // of a file or argument
inline constexpr size_t kMaxScalarBytes = size_t{1} << 16;  // of one value or key
inline constexpr int kMaxDepth = 32;
inline constexpr int64_t kMaxNodes = 100'000;
inline constexpr size_t kMaxReported = 200;  // findings that a report prints; a last line counts the others

// Stands for a comma inside parentheses, so that `init: uniform(-1,1)` is one value in {...} too. Control bytes are
// refused in texts, so it cannot occur otherwise.
inline constexpr char kProtectedComma = '\x01';

// One text, as lines. Columns count characters (UTF-8 code points).
class SourceText {
 public:
  // argument 0: a file of this name. N: the N-th argument, whose value starts at byte `value_begin`. kPreset: a preset.
  SourceText(std::string_view text, int argument, size_t value_begin = 0);

  // The text for the YAML parser: no BOM, LF only, commas in parentheses protected, what precedes an argument's value
  // blanked. Same positions.
  const std::string& prepared() const { return prepared_; }
  // 1-based mark of a byte column of a line, both from 0; past the end is clamped.
  SourceMark mark(int line, int byte_column) const;
  // Byte column of a mark's column, from 0.
  size_t byte_column(SourceMark mark) const;
  char byte_at(int line, int byte_column) const;  // 0 past the end
  // For a quote at this place: whether the text closes it.
  bool quote_is_closed(int line, int byte_column) const;
  // Whether nothing but blanks and line ends follows.
  bool ends_after(int line, int byte_column) const;
  std::string_view line(int number) const;  // from 0, without its end
  int line_count() const { return static_cast<int>(line_starts_.size()); }
  // First byte that no configuration may hold: bad UTF-8, NUL and other control characters, a tab as indentation, too
  // long. Empty when there is none.
  std::vector<ConfigDiagnostic> bad_bytes() const;

 private:
  void protect_commas();
  int argument_;
  std::string text_;  // no BOM, LF only
  std::string prepared_;
  std::string refusal_;  // of the whole text
  std::vector<size_t> line_starts_;
  std::vector<uint32_t> characters_before_;  // per byte and for the end: characters of the text that start before it
};

// Collects findings and renders them.
class Report {
 public:
  // of_user: a text that somebody writes, not one that a run or a file remembers.
  Report(std::string name, const SourceText& file, bool of_user = true)
      : name_(std::move(name)), file_(&file), of_user_(of_user) {}
  bool of_user() const { return of_user_; }
  void add_argument(SourceText text) { arguments_.push_back(std::move(text)); }
  // `name`: as it stands before ":line:col".
  void set_preset(std::string name, SourceText text) { preset_.emplace(std::move(name), std::move(text)); }
  const SourceText& source(int argument) const {
    if (argument == kPreset) return preset_.value().second;
    return argument == 0 ? *file_ : arguments_.at(argument - 1);
  }
  // "14:7", "argument 2, 1:5", "preset cnv:8:3".
  std::string place(SourceMark mark) const;
  void error(SourceMark mark, std::string message, size_t length = 1);
  // Whether a finding stands there.
  bool has_error(SourceMark mark) const;
  // Findings until the scope ends say so: "(in block 'unit', used at 14:7)". Empty: nothing.
  class Within {
   public:
    Within(Report& report, std::string where) : report_(report), outer_(report.where_) {
      if (!where.empty()) report_.where_ = std::move(where);
    }
    ~Within() { report_.where_ = std::move(outer_); }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

   private:
    Report& report_;
    std::string outer_;
  };
  // A key that has no effect: accepted, and said on the screen. Of a preset nothing is said.
  void warning(SourceMark mark, std::string message);
  // Each "a.yaml:5:3: message" or "command line, argument 2: message".
  const std::vector<std::string>& warnings() const { return warnings_; }
  // A value of `key` that is accepted, and is written in another way now.
  void old_word(SourceMark mark, std::string_view key, std::string_view old, std::string_view now);
  // One line about them all; empty: there are none. `of_file`: also about those of the file, not of arguments alone.
  std::string old_words(bool of_file) const;
  void add(const ConfigDiagnostic& diagnostic) { error(diagnostic.mark, diagnostic.message); }
  bool empty() const { return findings_.empty(); }
  // Throws ConfigError when there are findings, sorted: the preset, the file by line and column, the command line.
  void throw_if_any();

 private:
  struct Finding {
    ConfigDiagnostic diagnostic;
    size_t length;
  };
  std::string render(const Finding& finding) const;
  std::string name_;
  const SourceText* file_;
  bool of_user_;
  std::optional<std::pair<std::string, SourceText>> preset_;
  std::vector<SourceText> arguments_;
  std::vector<Finding> findings_;
  std::string where_;
  struct OldWord {
    bool of_file;
    std::string text;
  };
  std::vector<OldWord> old_words_;
  std::vector<std::string> warnings_;
};

}  // namespace bitgrad::config
