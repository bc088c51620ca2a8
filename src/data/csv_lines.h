// Lines of a table that are not what the first one promises: what may be wrong, and the way out.
#pragma once

#include <string>
#include <string_view>

#include "data/csv_rows.h"
#include "data/csv_table.h"

namespace bitgrad::data {

// What stands between fields by the first lines of a text; comma where nothing tells.
const CsvSeparator& likely_separator(std::string_view text);
// Throws Error(kData) for a first line of one field in which something else than form.separator stands between fields,
// as far as the first lines of `text` tell.
void check_separator(const std::string& path, std::string_view text, const CsvRow& first, const CsvForm& form);

// Throws Error(kData) for `row`, the last of `rows`, whose fields are not as many as those of the first line. `second`:
// it is the line after that.
[[noreturn]] void refuse_length(const std::string& path, CsvRows& rows, const CsvRow& first, const CsvRow& row,
                                bool second, const CsvForm& form);

}  // namespace bitgrad::data
