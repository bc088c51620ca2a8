// Unicode normalization with libutf8proc. This file is its only user.
#include "data/tokenizer_text.h"

#include <algorithm>

#include "bitgrad/base/error.h"

#if BITGRAD_WITH_UTF8PROC
#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#endif

namespace bitgrad::data {
namespace {

#if BITGRAD_WITH_UTF8PROC
std::string mapped(std::string_view text, std::string_view form) {
  const int composed = form.ends_with('C') ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  const int compatible = form.starts_with("NFK") ? UTF8PROC_COMPAT : 0;
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &out, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | composed | compatible));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owned(out, std::free);
  if (bytes < 0) fail_with(ErrorCode::kData, "tokenizer", form, ": ", utf8proc_errmsg(bytes), '.');
  return {reinterpret_cast<const char*>(out), static_cast<size_t>(bytes)};
}
#else
std::string mapped(std::string_view, std::string_view form) {
  fail("tokenizer", "this program was built without libutf8proc, which makes ", form,
       " of a text. Install libutf8proc-dev (scripts/setup.sh) and build it again.");
}
#endif

}  // namespace

std::string normal_form(std::string_view text, std::string_view form) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  if (ascii) return std::string(text);
  std::string out;
  each_utf8_part(text, [&](std::string_view part, bool utf8) { out += utf8 ? mapped(part, form) : std::string(part); });
  return out;
}

}  // namespace bitgrad::data
