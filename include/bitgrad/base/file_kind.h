// What a file is, by its content: readers that are given a file of another kind name it and say what to do.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace bitgrad {

struct FileKind {
  std::string name = {};     // for messages, such as "a workbook of Excel (.xlsx)"
  std::string way_out = {};  // what makes a file of it that is read as data; a sentence without its end
  bool text = false;         // though it is a text, no table and no picture
};

inline constexpr std::string_view kFromTorch =
    "safetensors.torch.save_file(torch.load('FILE', weights_only=True), 'FILE.safetensors')";

// `begin`: the first bytes of a file, best 64 KiB or more of them. Knows archives, workbooks, tables in binary formats,
// pictures, models, pages and texts in UTF-16 or UTF-32. nullopt: a text in bytes, or nothing that is known.
std::optional<FileKind> known_file_kind(std::string_view begin);
// "it is NAME. WAY_OUT", or a word on zero bytes of an unknown kind; empty for a text.
std::string why_no_text(std::string_view begin);
// Whether no text has this byte: zero, and other control characters than blanks, line and page breaks and escape.
bool is_control_byte(char byte);
// Of a file that is to be read as a text, whatever it says: Error(kData) from `where` with the way out if it is of a
// known kind that is none.
void require_text(std::string_view where, const std::string& path, std::string_view begin);
// What a file that should hold a model holds instead, "NAME. WAY OUT."; empty: unknown. `begin` as above.
std::string why_no_model(std::string_view begin);
// Of a file; empty if there is none, too.
std::string why_no_model_file(const std::string& path);

}  // namespace bitgrad
