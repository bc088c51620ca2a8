// Builds the tree from yaml-cpp's events rather than its nodes, which drop duplicate keys, anchors, tags and the marks
// of keys.
#include "config/steps.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>

#include "bitgrad/base/error.h"

namespace bitgrad::config {
namespace {

constexpr const char* kAlias =
    "alias '*': aliases are not used here; write the value out, in quotes where a text starts with '*'";

// Thrown to leave the parser after a finding that makes the rest meaningless; the report holds the finding.
struct Abandon {};

class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const SourceText& source, Report& report, Node& root) : source_(source), report_(report), root_(root) {}

  bool refused() const { return refused_; }
  // Mark of the innermost open collection, or nullptr.
  const SourceMark* open() const { return stack_.empty() ? nullptr : &stack_.back().node->mark; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1)
      abandon(at(mark),
              "text after the end of the document; a configuration is one document, and its top-level keys start in "
              "one column");
  }
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    refuse(at(mark), concat("anchor '&", name, "': anchors are not used here; write the value out"));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(at(mark), kAlias);
    place(Node::Kind::kNull, mark);
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    Node* node = place(Node::Kind::kNull, mark);
    if (!node) return;
    // A missing value has no place of its own, so it gets that of its key.
    const char c = source_.byte_at(mark.line, mark.column);
    if (c != '~' && c != 'n' && c != 'N' && has_key_mark_) node->mark = key_mark_;
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& text) override {
    check_tag(mark, tag);
    check_quote(mark);
    if (text.size() > kMaxScalarBytes)
      abandon(at(mark), concat("a value of ", text.size(), " bytes; at most ", kMaxScalarBytes, " are read"));
    std::string value = text;
    std::replace(value.begin(), value.end(), kProtectedComma, ',');
    if (wants_key()) {
      take_key(mark, std::move(value));
      return;
    }
    Node* node = place(Node::Kind::kScalar, mark);
    node->text = std::move(value);
    node->quoted = tag == "!";
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    push(mark, tag, Node::Kind::kList);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, YAML::EmitterStyle::value) override {
    push(mark, tag, Node::Kind::kMap);
  }
  void OnSequenceEnd() override { stack_.pop_back(); }
  void OnMapEnd() override { stack_.pop_back(); }

 private:
  struct Frame {
    Node* node;
    bool wants_key;
  };

  SourceMark at(const YAML::Mark& mark) const { return source_.mark(mark.line, mark.column); }
  void refuse(SourceMark mark, std::string message) {
    report_.error(mark, std::move(message));
    refused_ = true;
  }
  [[noreturn]] void abandon(SourceMark mark, std::string message) {
    refuse(mark, std::move(message));
    throw Abandon{};
  }
  void check_tag(const YAML::Mark& mark, const std::string& tag) {
    // Quoted text also has the tag "!", so the source decides.
    const char c = source_.byte_at(mark.line, mark.column);
    if (c == '!' || (!tag.empty() && tag != "?" && tag != "!"))
      refuse(at(mark), "tag '!': tags are not used here; the schema knows the type of each key");
  }
  // yaml-cpp 0.7 treats an unclosed quote as closed by the end of the text.
  void check_quote(const YAML::Mark& mark) {
    const char c = source_.byte_at(mark.line, mark.column);
    if ((c == '"' || c == '\'') && !source_.quote_is_closed(mark.line, mark.column))
      abandon(at(mark), "broken YAML: this quote is not closed");
  }
  bool wants_key() const { return !stack_.empty() && stack_.back().wants_key; }

  void take_key(const YAML::Mark& mark, std::string key) {
    Frame& frame = stack_.back();
    if (key == "<<") refuse(at(mark), "merge key '<<': maps are not merged here; write the keys out");
    frame.node->entries.push_back({std::move(key), at(mark), {}});
    frame.wants_key = false;
    key_mark_ = frame.node->entries.back().key_mark;
    has_key_mark_ = true;
  }

  // The node for the next value. Rejects a value in the place of a key.
  Node* place(Node::Kind kind, const YAML::Mark& mark) {
    if (++nodes_ > kMaxNodes) abandon(at(mark), concat("more than ", kMaxNodes, " values"));
    if (wants_key())
      abandon(at(mark), "a key must be a word, got a list, a map or nothing (or a bracket is not closed)");
    Node* node = &root_;
    if (!stack_.empty()) {
      Frame& frame = stack_.back();
      if (frame.node->kind == Node::Kind::kMap) {
        node = &frame.node->entries.back().node;
        frame.wants_key = true;
      } else {
        node = &frame.node->items.emplace_back();
        has_key_mark_ = false;
      }
    }
    node->kind = kind;
    node->mark = at(mark);
    return node;
  }
  void push(const YAML::Mark& mark, const std::string& tag, Node::Kind kind) {
    check_tag(mark, tag);
    Node* node = place(kind, mark);
    if (static_cast<int>(stack_.size()) >= kMaxDepth)
      abandon(at(mark), concat("more than ", kMaxDepth, " collections inside one another"));
    stack_.push_back({node, kind == Node::Kind::kMap});
    has_key_mark_ = false;
  }

  const SourceText& source_;
  Report& report_;
  Node& root_;
  std::vector<Frame> stack_;
  SourceMark key_mark_;
  bool has_key_mark_ = false;
  bool refused_ = false;
  int documents_ = 0;
  int64_t nodes_ = 0;
};

// yaml-cpp's messages are short and sometimes at the wrong place. For an unclosed bracket, the opening one is the
// better place.
void report_syntax_error(const YAML::Exception& error, const TreeBuilder& builder, const SourceText& source,
                         Report& report) {
  const bool unclosed = error.msg.find("flow not found") != std::string::npos;
  SourceMark mark = error.mark.is_null() ? source.mark(source.line_count() - 1, 1 << 30)
                                         : source.mark(error.mark.line, error.mark.column);
  if (unclosed && builder.open()) {
    const SourceMark open = *builder.open();
    const bool map = error.msg.find("map") != std::string::npos;
    // At the end of the text the parser reports its last line, or 1:1.
    if ((error.mark.line == 0 && error.mark.column == 0) || source.ends_after(error.mark.line, error.mark.column))
      mark = open;
    report.error(mark, concat("broken YAML: the ", map ? "'{'" : "'['", " of line ", open.line, ", column ", open.col,
                              " is not closed, or a comma before this is missing"));
    return;
  }
  if (error.msg.find("anchor is not defined") != std::string::npos)
    report.error(mark, kAlias);
  else if (error.msg.find("alias not found") != std::string::npos)
    report.error(mark, "a text that starts with '*' needs quotes");
  else
    report.error(mark, concat("broken YAML: ", error.msg));
}

}  // namespace

std::string describe(const Node& node) {
  constexpr size_t kShown = 60;
  switch (node.kind) {
    case Node::Kind::kNull:
      return "nothing";
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kMap:
      return "a map";
    case Node::Kind::kScalar:
      break;
  }
  const std::string text = node.text.size() > kShown ? node.text.substr(0, kShown) + "..." : node.text;
  return node.quoted ? concat("the text \"", text, '"') : concat('\'', text, '\'');
}

bool read_yaml(const SourceText& source, Report& report, Node& tree) {
  tree = Node{};
  const std::vector<ConfigDiagnostic> bad = source.bad_bytes();
  for (const ConfigDiagnostic& diagnostic : bad) report.add(diagnostic);
  if (!bad.empty()) return false;
  TreeBuilder builder(source, report, tree);
  TextReader in(source.prepared());
  try {
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Abandon&) {
    return false;
  } catch (const YAML::Exception& error) {
    report_syntax_error(error, builder, source, report);
    return false;
  }
  return !builder.refused();
}

}  // namespace bitgrad::config
