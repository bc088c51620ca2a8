// The texts of a configuration (file, preset, command line arguments), and reports about places in them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/base/text.h"
#include "bitgrad/config/config.h"

namespace bitgrad::config {

// SourceMark::argument for the text of a preset (model.preset).
inline constexpr int kPreset = -1;
// Rank of a place: preset -1, file 0, command line 1. Of two places that contradict each other, findings name the one
// with the higher rank, which is nearer to the user.
inline int nearness(SourceMark mark) { return mark.argument > 0 ? 1 : mark.argument; }

inline constexpr size_t kMaxBytes = size_t{1} << 20;        // of a file or argument
inline constexpr size_t kMaxScalarBytes = size_t{1} << 16;  // of one value or key
inline constexpr int kMaxDepth = 32;
inline constexpr int64_t kMaxNodes = 100'000;
inline constexpr size_t kMaxReported = 200;  // findings printed; a last line counts the others

// Replaces commas inside parentheses, so that `init: uniform(-1,1)` is one value in {...} too. Control bytes are
// rejected in texts, so it cannot occur otherwise.
inline constexpr char kProtectedComma = '\x01';

// A text, as lines. Columns count characters (UTF-8 code points).
class SourceText {
 public:
  // argument 0: a file. N: the N-th argument, whose value starts at byte `value_begin`. kPreset: a preset.
  SourceText(std::string_view text, int argument, size_t value_begin = 0);

  // The text for the YAML parser: no BOM, LF only, commas in parentheses replaced, everything before an argument's
  // value blanked. Positions are unchanged.
  const std::string& prepared() const { return prepared_; }
  // The 1-based mark for a line and byte column, both from 0; clamped to the end.
  SourceMark mark(int line, int byte_column) const;
  // Byte column of a mark, from 0.
  size_t byte_column(SourceMark mark) const;
  char byte_at(int line, int byte_column) const;  // 0 past the end
  // Whether the quote at this place is closed.
  bool quote_is_closed(int line, int byte_column) const;
  // Whether only blanks and line ends follow.
  bool ends_after(int line, int byte_column) const;
  std::string_view line(int number) const;  // from 0, without line end
  int line_count() const { return static_cast<int>(line_starts_.size()); }
  // The first byte that is not allowed: bad UTF-8, NUL and other control characters, a tab as indentation, or a text
  // that is too long. Empty if there is none.
  std::vector<ConfigDiagnostic> bad_bytes() const;

 private:
  void protect_commas();
  int argument_;
  std::string text_;  // no BOM, LF only
  std::string prepared_;
  std::string refusal_;  // why the whole text is rejected
  std::vector<size_t> line_starts_;
  std::vector<uint32_t> characters_before_;  // per byte and for the end: number of characters that start before it
};

// Collects findings and renders them.
class Report {
 public:
  // of_user: the text was written by a user, not stored by a run or a file.
  Report(std::string_view name, const SourceText& file, bool of_user = true)
      : name_(printable(name)), file_(&file), of_user_(of_user) {}
  bool of_user() const { return of_user_; }
  void add_argument(SourceText text) { arguments_.push_back(std::move(text)); }
  // `name` is shown before ":line:col".
  void set_preset(std::string_view name, SourceText text) { preset_.emplace(printable(name), std::move(text)); }
  const SourceText& source(int argument) const {
    if (argument == kPreset) return preset_.value().second;
    return argument == 0 ? *file_ : arguments_.at(argument - 1);
  }
  // "14:7", "argument 2, 1:5", "preset cnv:8:3".
  std::string place(SourceMark mark) const;
  void error(SourceMark mark, std::string message, size_t length = 1);
  // Whether an error was reported at this mark.
  bool has_error(SourceMark mark) const;
  // Appends e.g. "(in block 'unit', used at 14:7)" to findings until the scope ends. Empty: nothing.
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
  // Reports a key that is accepted but has no effect. Ignored for presets.
  void warning(SourceMark mark, std::string message);
  // Each is "a.yaml:5:3: message" or "command line, argument 2: message".
  const std::vector<std::string>& warnings() const { return warnings_; }
  void add(const ConfigDiagnostic& diagnostic) { error(diagnostic.mark, diagnostic.message); }
  bool empty() const { return findings_.empty(); }
  // Throws ConfigError if there are findings, sorted: the preset, the file by line and column, the command line.
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
  std::vector<std::string> warnings_;
};

}  // namespace bitgrad::config
