// Every key of the shipped configurations, in the first places of each, spoilt in every way that the schema refuses:
// the finding must be the only one and stand at the exact line and column. Where things stand is found by a scanner of
// this file, not by the reader under test.
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "bitgrad/config/config.h"
#include "config/schema.h"
#include "support/catch.h"
#include "support/paths.h"
#include "train/bad_values.h"

namespace bitgrad {
namespace {

using config::KeySpec;

struct Position {
  int line, col;
  friend bool operator==(const Position&, const Position&) = default;
};

Position position_of(const std::string& text, size_t offset) {
  Position p{1, 1};
  for (size_t i = 0; i < offset; ++i) {
    ++p.col;
    if (text[i] == '\n') p = {p.line + 1, 1};
  }
  return p;
}

// One key of a text. Offsets are bytes; [value, value_end) is the value, [key, entry_end) the whole entry.
struct FoundKey {
  std::string path;
  size_t key, key_size, value, value_end, entry_end;
  size_t enclosing;  // offset of the enclosing key, npos at the top
  bool flow;         // inside {...}
  bool nested;       // the value is a block on the following lines
};

// Reads the style of the shipped files: block maps and lists by indentation, flow maps and lists of scalars inside
// lines.
class Scanner {
 public:
  explicit Scanner(const std::string& text) : text_(text) { block(0, 0, "", std::string::npos); }
  std::vector<FoundKey> keys;

 private:
  size_t line_end(size_t at) const { return std::min(text_.find('\n', at), text_.size()); }
  static bool space(char c) { return c == ' '; }
  size_t indent_of(size_t line) const { return text_.find_first_not_of(' ', line) - line; }
  bool blank(size_t line) const {
    const size_t first = text_.find_first_not_of(' ', line);
    return first == std::string::npos || text_[first] == '\n' || text_[first] == '#';
  }

  // Keys at exactly this indentation from `line` on; returns the start of the first line that is less indented.
  size_t block(size_t line, size_t indent, const std::string& path, size_t enclosing) {
    int item = -1;
    while (line < text_.size()) {
      if (blank(line)) {
        line = line_end(line) + 1;
        continue;
      }
      if (indent_of(line) < indent) break;
      size_t key = line + indent;
      std::string here = path;
      if (text_[key] == '-') {
        here = path + '.' + std::to_string(++item);
        key += 2;
        if (text_[key] == '{') {
          flow_map(key, here, key);
          line = line_end(key) + 1;
          continue;
        }
      }
      // A layer has no key around it but the list's.
      line = entry(key, key - line, here, enclosing);
    }
    return line;
  }

  // One block entry; returns where the next line starts.
  size_t entry(size_t key, size_t column, const std::string& path, size_t enclosing) {
    const size_t colon = text_.find(':', key);
    FoundKey found{path + (path.empty() ? "" : ".") + text_.substr(key, colon - key),
                   key,
                   colon - key,
                   0,
                   0,
                   0,
                   enclosing,
                   false,
                   false};
    size_t end = line_end(key);
    const size_t comment = text_.find(" #", colon);
    if (comment < end) end = comment;
    size_t value = colon + 1;
    while (value < end && space(text_[value])) ++value;
    if (value < end) {
      while (space(text_[end - 1])) --end;
      found.value = value;
      found.value_end = found.entry_end = end;
      keys.push_back(found);
      if (text_[value] == '{') flow_map(value, found.path, key);
      return line_end(key) + 1;
    }
    const size_t index = keys.size();
    keys.push_back(found);
    size_t first = line_end(key) + 1;
    while (blank(first)) first = line_end(first) + 1;
    const size_t next = block(first, std::max(indent_of(first), column), found.path, key);
    keys[index].value = colon + 1;
    keys[index].value_end = keys[index].entry_end = next - 1;
    keys[index].nested = true;
    return next;
  }

  size_t flow_map(size_t open, const std::string& path, size_t enclosing) {
    size_t at = open + 1;
    while (true) {
      while (space(text_[at]) || text_[at] == ',') ++at;
      if (text_[at] == '}') return at + 1;
      const size_t colon = text_.find(':', at);
      FoundKey found{
          path + "." + text_.substr(at, colon - at), at, colon - at, colon + 2, 0, 0, enclosing, true, false};
      const size_t index = keys.size();
      keys.push_back(found);
      size_t end = found.value;
      if (text_[end] == '{') {
        end = flow_map(end, found.path, at);
      } else {
        int depth = 0;
        while (depth > 0 || (text_[end] != ',' && text_[end] != '}')) {
          depth += text_[end] == '[' || text_[end] == '(';
          depth -= text_[end] == ']' || text_[end] == ')';
          ++end;
        }
      }
      keys[index].value_end = keys[index].entry_end = end;
      at = end;
    }
  }

  const std::string& text_;
};

const KeySpec* spec_of(const std::string& path) {
  std::string_view group;
  const KeySpec* spec = nullptr;
  for (const std::string& part : config::split(path, '.')) {
    if (part.find_first_not_of("0123456789") == std::string::npos) continue;
    spec = config::find_key(group, part);
    if (!spec) return nullptr;
    group = spec->range;
  }
  return spec;
}

std::vector<std::pair<std::string, std::string>> shipped() {
  std::vector<std::pair<std::string, std::string>> files;
  std::set<std::filesystem::path> paths;
  for (const auto& file : std::filesystem::directory_iterator(test::source_path("configs")))
    if (file.path().extension() == ".yaml") paths.insert(file.path());
  for (const auto& path : paths) {
    std::ifstream in(path);
    std::stringstream text;
    text << in.rdbuf();
    files.emplace_back(path.string(), text.str());
  }
  return files;
}

// "" when the text is refused with one finding, at `wanted`, that contains `part`; else what happened.
std::string complaint(const std::string& text, Position wanted, const std::string& part) {
  try {
    parse_config(text, "spoilt.yaml");
  } catch (const ConfigError& error) {
    const auto& found = error.diagnostics();
    const bool right = found.size() == 1 && Position{found[0].mark.line, found[0].mark.col} == wanted &&
                       found[0].message.find(part) != std::string::npos && error.code() == ErrorCode::kUsage;
    const std::string head = concat("spoilt.yaml:", wanted.line, ':', wanted.col, ": error: ");
    if (right && std::string(error.what()).starts_with(head)) return "";
    return concat("wanted ", head, "...", part, ", got\n", error.what());
  }
  return concat("wanted an error at ", wanted.line, ':', wanted.col, ", got none");
}

std::string replaced(const std::string& text, size_t begin, size_t end, const std::string& by) {
  return text.substr(0, begin) + by + text.substr(end);
}

// Text and position after a value is replaced.
std::string with_value(const std::string& text, const FoundKey& key, const std::string& value, Position& at) {
  const std::string lead = key.nested ? " " : "";
  std::string out = replaced(text, key.value, key.value_end, lead + value);
  at = position_of(out, key.value + lead.size());
  return out;
}

std::string without(const std::string& text, const FoundKey& key) {
  if (!key.flow) {
    const size_t begin = text.rfind('\n', key.key) == std::string::npos ? 0 : text.rfind('\n', key.key) + 1;
    return replaced(text, begin, text.find('\n', key.entry_end) + 1, "");
  }
  size_t end = key.entry_end;
  if (text[end] == ',') return replaced(text, key.key, text.find_first_not_of(' ', end + 1), "");
  const size_t comma = text.find_last_not_of(' ', key.key - 1);
  return replaced(text, text[comma] == ',' ? comma : key.key, end, "");
}

// Names below model.blocks and model.keys are free: blocks_test.cpp and the tests of presets have their errors.
bool in_block(const FoundKey& key) {
  return key.path.starts_with("model.blocks") || key.path.starts_with("model.keys.");
}
bool is_use_of_block(const FoundKey& key) {
  const size_t dot = key.path.rfind('.');
  return dot != std::string::npos && key.path.find(".unit") != std::string::npos;
}

// Many files have the same keys. Whether a key, whatever its index in a list, is in one of its first places of all
// files.
class FirstPlaces {
 public:
  bool take(const FoundKey& key) {
    if (in_block(key) || is_use_of_block(key)) return false;
    std::string general = key.path;
    std::erase_if(general, [](unsigned char c) { return std::isdigit(c) != 0; });
    return ++places_[general] <= kPlaces;
  }

 private:
  static constexpr int kPlaces = 4;
  std::map<std::string, int> places_;
};

}  // namespace

TEST_CASE("a changed letter in any key of a shipped configuration is found at that key", "[slow]") {
  FirstPlaces first;
  for (const auto& [name, text] : shipped()) {
    const Scanner scanner(text);
    REQUIRE(scanner.keys.size() > 20);
    // Every letter in the smallest networks' files, one letter of each key in the others.
    const bool every_letter = name.find("digits") != std::string::npos;
    size_t turn = 0;
    for (const FoundKey& key : scanner.keys) {
      ++turn;
      if (!first.take(key)) continue;
      for (size_t i = every_letter ? 0 : turn % key.key_size; i < key.key_size; i += every_letter ? 1 : key.key_size) {
        const char letter = text[key.key + i] == 'q' ? 'w' : 'q';
        INFO(name << ": " << key.path << ", letter " << i);
        CHECK(complaint(replaced(text, key.key + i, key.key + i + 1, std::string(1, letter)),
                        position_of(text, key.key), "unknown ") == "");
      }
    }
  }
}

TEST_CASE("a duplicate of any key of a shipped configuration is found at its second place", "[slow]") {
  FirstPlaces first;
  for (const auto& [name, text] : shipped()) {
    for (const FoundKey& key : Scanner(text).keys) {
      if (!first.take(key)) continue;
      INFO(name << ": " << key.path);
      const std::string entry = text.substr(key.key, key.entry_end - key.key);
      const size_t line = text.rfind('\n', key.key) == std::string::npos ? 0 : text.rfind('\n', key.key) + 1;
      const std::string glue = key.flow ? ", " : "\n" + std::string(key.key - line, ' ');
      // A comment at the end of a line stays behind the first one.
      const size_t at = key.flow ? key.entry_end : std::min(text.find('\n', key.entry_end), text.size());
      const std::string spoilt = replaced(text, at, at, glue + entry);
      CHECK(complaint(spoilt, position_of(spoilt, at + glue.size()), "duplicate key") == "");
    }
  }
}

TEST_CASE("a value of the wrong type in any key of a shipped configuration is found at the value", "[slow]") {
  FirstPlaces first;
  for (const auto& [name, text] : shipped()) {
    for (const FoundKey& key : Scanner(text).keys) {
      if (!first.take(key)) continue;
      INFO(name << ": " << key.path);
      const KeySpec* spec = spec_of(key.path);
      REQUIRE(spec);
      Position at{};
      const std::string spoilt = with_value(text, key, wrong_type(*spec), at);
      CHECK(complaint(spoilt, at, "expected") == "");
    }
  }
}

TEST_CASE("a value out of range in any key of a shipped configuration is found at the value", "[slow]") {
  int tried = 0;
  FirstPlaces first;
  for (const auto& [name, text] : shipped()) {
    for (const FoundKey& key : Scanner(text).keys) {
      if (!first.take(key)) continue;
      const KeySpec* spec = spec_of(key.path);
      REQUIRE(spec);
      for (const std::string& value : out_of_range(*spec)) {
        INFO(name << ": " << key.path << " = " << value);
        Position at{};
        const std::string spoilt = with_value(text, key, value, at);
        CHECK(complaint(spoilt, at, key.path.substr(0, key.path.find('.'))) == "");
        ++tried;
      }
    }
  }
  CHECK(tried > 500);
}

TEST_CASE("a required key that is removed from a shipped configuration is reported at the enclosing key", "[slow]") {
  const std::set<std::string> must_be_seen{"version", "data.train", "model", "optim.name", "optim.lr", "train.stop"};
  for (const auto& [name, text] : shipped()) {
    std::set<std::string> seen;
    for (const FoundKey& key : Scanner(text).keys) {
      if (in_block(key) || is_use_of_block(key)) continue;
      const KeySpec* spec = spec_of(key.path);
      REQUIRE(spec);
      if (!spec->required()) continue;
      INFO(name << ": " << key.path);
      seen.insert(key.path);
      const Position at = key.enclosing == std::string::npos ? Position{1, 1} : position_of(text, key.enclosing);
      CHECK(complaint(without(text, key), at, "missing required key '" + key.path + "'") == "");
    }
    for (const std::string& path : must_be_seen) CHECK(seen.count(path) == 1);
  }
}

TEST_CASE("a bad value of any key of the registry is refused from the command line too") {
  // Where each group can stand.
  const std::map<std::string_view, std::string> places{{"", ""},
                                                       {"run", "run."},
                                                       {"device", "device."},
                                                       {"data", "data."},
                                                       {"normalize", "data.normalize."},
                                                       {"chat", "data.chat."},
                                                       {"role", "data.chat.user."},
                                                       {"dataset", "data.test."},
                                                       {"augment", "data.train.augment."},
                                                       {"model", "model."},
                                                       {"layer", "model.layers.0."},
                                                       {"block", "model.blocks.x."},
                                                       {"layer.dropout", "model.layers.1.dropout."},
                                                       {"layer.embedding", "model.layers.0.embedding."},
                                                       {"layer.linear", "model.layers.2.linear."},
                                                       {"layer.head", "model.layers.2.head."},
                                                       {"layer.sequence", "model.layers.2.sequence."},
                                                       {"layer.residual", "model.layers.2.residual."},
                                                       {"layer.branches", "model.layers.2.branches."},
                                                       {"layer.repeat", "model.layers.2.repeat."},
                                                       {"backward", "quant.backward."},
                                                       {"quantize_gradient", "model.layers.0.quantize_gradient."},
                                                       {"learned", "quant.activations.learned."},
                                                       {"observer", "quant.activations.observer."},
                                                       {"bop", "optim.bop."},
                                                       {"aux", "optim.aux."},
                                                       {"rule", "quant.rules.1."},
                                                       {"phase", "quant.phases.2."},
                                                       {"budget", "quant.budget."},
                                                       {"adapters", "adapters."},
                                                       {"layer.batch_norm", "model.layers.3.batch_norm."},
                                                       {"quant", "quant."},
                                                       {"weights", "quant.weights."},
                                                       {"activations", "quant.activations."},
                                                       {"batch", "batch."},
                                                       {"ranks", "ranks."},
                                                       {"optim", "optim."},
                                                       {"schedule", "schedule."},
                                                       {"train", "train."},
                                                       {"eval", "train.eval."},
                                                       {"best", "train.best."},
                                                       {"early_stop", "train.early_stop."},
                                                       {"transform", "data.train.transforms.0."},
                                                       {"transform.noise", "data.train.transforms.0.noise."},
                                                       {"checkpoint", "checkpoint."},
                                                       {"log", "log."}};
  const std::string plain = test::source_path("configs/mnist_mlp4096_w1a1.yaml"),
                    phases = test::source_path("configs/digits_mlp_qat_phases.yaml");
  for (const KeySpec* key : config::all_keys()) {
    const KeySpec& spec = *key;
    INFO(spec.group << '.' << spec.name);
    const auto place_of = [&]() -> std::string {
      if (const auto at = places.find(spec.group); at != places.end()) return at->second;
      const size_t dot = spec.group.find('.');
      const std::string kind(spec.group.substr(0, dot)), name(spec.group.substr(dot + 1));
      for (const auto& [of, where] :
           {std::pair{"layer", "model.layers.2."}, {"loss", "loss."}, {"metrics", "train.metrics."}})
        if (kind == of) return concat(where, name, '.');
      return "?";
    };
    const std::string place = place_of();
    REQUIRE(place != "?");
    std::vector<std::string> values = out_of_range(spec);
    values.emplace_back(wrong_type(spec));
    for (const std::string& value : values) {
      const std::string argument = place + std::string(spec.name) + '=' + value;
      INFO(argument);
      try {
        load_config(spec.group == "rule" || spec.group == "phase" ? phases : plain, {"run.seed=3", argument});
        CHECK(argument == "refused");
      } catch (const ConfigError& error) {
        CHECK(std::string(error.what()).starts_with("command line, argument 2: error: "));
        for (const ConfigDiagnostic& diagnostic : error.diagnostics()) CHECK(diagnostic.mark.argument == 2);
      }
    }
  }
}

}  // namespace bitgrad
