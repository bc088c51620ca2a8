// Format jsonl: conversations, prompts with completions, or texts, one JSON object a line. Samples are windows of
// `context` ids; targets are the next id at every position, where it counts (loss_on). Whole conversations share a
// window (pack), and attention keeps them apart by the id behind each (Dataset::document_end), which stands within
// none of them.
#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "data/conversations.h"
#include "data/data_file.h"
#include "data/formats.h"
#include "data/token_dataset.h"

namespace bitgrad::data {
namespace {

constexpr std::string_view kJsonl = "data.jsonl";

std::shared_ptr<const Tokenizer> tokenizer_of_lines(const DatasetSpec& spec) {
  if (spec.of_model != nullptr) return tokenizer_of_model(kJsonl, spec);
  const bool file = is_tokenizer_file(spec.tokenizer);
  require(file || spec.tokenizer == "bytes", kJsonl, "tokenizer: got ",
          spec.tokenizer.empty() ? "none" : spec.tokenizer,
          ", expected a file (.json, .model) or bytes: a vocabulary is not made from lines of JSON. See bitgrad "
          "tokenizer train.");
  return file ? open_tokenizer(data_path(spec.root, spec.tokenizer)) : make_tokenizer("bytes", "");
}

// The ids that stand within conversations, their last ones left out.
std::vector<bool> inner_ids(const Conversations& all, int64_t vocabulary) {
  std::vector<bool> inner(static_cast<size_t>(vocabulary));
  for (int64_t i = 0; i < all.size(); ++i)
    for (int64_t at = all.begins[static_cast<size_t>(i)]; at + 1 < all.begins[static_cast<size_t>(i) + 1]; ++at)
      inner[static_cast<size_t>(all.ids[static_cast<size_t>(at)])] = true;
  return inner;
}

// The id behind each conversation.
int32_t end_of(const DatasetSpec& spec, const Tokenizer& tokenizer, const Conversations& all, bool pack,
               std::vector<std::string>& notes) {
  const int64_t given = spec.keys.integer("end"), vocabulary = tokenizer.vocabulary();
  require(given < vocabulary, kJsonl, "end: got ", given, ", expected an id below ", vocabulary, '.');
  const int64_t own = given >= 0 ? given : tokenizer.end_id();
  if (!pack) return static_cast<int32_t>(std::max<int64_t>(0, own));
  const std::vector<bool> inner = inner_ids(all, vocabulary);
  const auto stands_inside = [&](int64_t id) { return inner[static_cast<size_t>(id)]; };
  if (own >= 0 && !stands_inside(own)) return static_cast<int32_t>(own);
  require(given < 0, kJsonl, "end: got ", given, ", which a conversation contains: attention would end there. ",
          "Expected an id that no conversation holds.");
  for (int32_t id = 0; id < vocabulary; ++id) {
    if (!tokenizer.special(id) || stands_inside(id)) continue;
    notes.push_back(concat("conversations in a window are kept apart by id ", id, ": ",
                           own < 0 ? std::string("the tokenizer has no token for the end of a text")
                                   : concat("the end of a text, id ", own, ", occurs in them")));
    return id;
  }
  fail(kJsonl, "pack: no special token of ", describe(tokenizer),
       " is free to keep conversations apart. Give end: an id that no conversation holds, or pack: false.");
}

// On a table whose marks the tokenizer does not know.
void note_unknown_marks(const ChatTable& table, const Tokenizer& tokenizer, std::vector<std::string>& notes) {
  if (!table.user.given()) return;
  const std::string mark = answer_end(table);
  bool known = false;
  tokenizer.split_special(mark, [&](std::string_view, int32_t id) { known = known || id >= 0; });
  if (!known)
    notes.push_back(
        concat(describe(tokenizer), " has no special token for ", printable(mark),
               ": the marks of data.chat are read as text, and a message that holds them looks like several"));
}

TooLong too_long_of(const std::string& name) {
  return name == "cut" ? TooLong::kCut : name == "skip" ? TooLong::kSkip : TooLong::kError;
}

}  // namespace

std::vector<Key> jsonl_keys() {
  using Type = Key::Type;
  return {{.name = "pack",
           .type = Type::kBool,
           .standard = "true",
           .doc = "several whole conversations share a window, each in the first one with room for it; attention sees "
                  "the own conversation. false: a window for each"},
          {.name = "loss_on",
           .type = Type::kChoice,
           .doc = "which ids are targets: those of the answers with the mark that ends them, of the last answer, or "
                  "all. Default: answers, of lines with a text all",
           .choices = {"answers", "all", "last_answer"}},
          {.name = "too_long",
           .type = Type::kChoice,
           .standard = "cut",
           .doc = "a conversation of more than `context` ids. cut: loses its first ids; skip: is omitted; error: ends "
                  "the run. The log counts them",
           .choices = {"cut", "skip", "error"}},
          end_key()};
}

std::unique_ptr<Dataset> make_jsonl_dataset(const DatasetSpec& spec) {
  check_text_keys(kJsonl, spec);
  const std::string path = data_path(spec.root, spec.file);
  Packing packing;
  packing.tokenizer = tokenizer_of_lines(spec);
  JsonlReading reading;
  reading.where = kJsonl;
  reading.tokenizer = packing.tokenizer.get();
  reading.chat = resolved(spec.chat.value_or(ChatTable{.name = "none"}));
  if (spec.keys.contains("loss_on")) reading.loss_on = spec.keys.text("loss_on");
  reading.context = spec.context;
  reading.too_long = too_long_of(spec.keys.text("too_long"));
  JsonlReader reader(reading);
  const std::vector<std::string> files = matching_files(kJsonl, path);
  DatasetSpec named = spec;  // files matched by a pattern have a complete path
  if (files[0] != path) named.root = "";
  for (const std::string& file : files) {
    const auto opened = open_data_file(kJsonl, named, "file", files[0] == path ? spec.file : file, "lines of JSON");
    std::string text = ContentReader(file, *opened).rest();
    require_text(kJsonl, file, std::string_view(text).substr(0, size_t{1} << 20));
    reader.read(file, text);
  }
  const Conversations& all = reader.read_so_far();
  packing.notes = reader.notes();
  if (all.size() == 0)
    fail_with(ErrorCode::kData, kJsonl, path, ": got no line with a target",
              packing.notes.empty() ? "" : concat(": ", joined(packing.notes, "; ")), '.');
  packing.name = path;
  packing.context = spec.context;
  packing.vocabulary = packing.tokenizer->vocabulary();
  packing.pack = spec.keys.flag("pack");
  packing.shuffled = spec.split == "train";
  note_unknown_marks(reading.chat, *packing.tokenizer, packing.notes);
  packing.end = end_of(spec, *packing.tokenizer, all, packing.pack, packing.notes);
  return packed_dataset(all, std::move(packing));
}

}  // namespace bitgrad::data
