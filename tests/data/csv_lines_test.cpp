// Lines of tables that are not what the first one promises, and values that are likely not what was meant: what is
// said, and the way out.
#include <string>
#include <utility>

#include "bitgrad/base/json.h"
#include "bitgrad/data/samples.h"
#include "bitgrad/data/table.h"
#include "data/csv_folder.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const Attributes kK = keys_of({{"target", "k"}});

std::string all_notes(const Dataset& data) {
  std::string all;
  for (const std::string& note : data.notes()) all += note + '\n';
  return all;
}

// A table of columns a, b and k.
std::string lines(const std::string& separator, const std::string& first = "") {
  std::string text = first;
  for (const char* const line : {"a b k", "0.5 1 x", "1.5 2 y", "2.5 4 x"})
    for (const char* c = line; *c != '\0' || (text += '\n', false); ++c) *c == ' ' ? text += separator : text += *c;
  return text;
}

}  // namespace

TEST_CASE("a table with another separator names it, by what splits the lines evenly") {
  const CsvFolder folder;
  const std::pair<const char*, const char*> known[] = {{";",
                                                        "one field with semicolons: 'a;b;k'. If these separate "
                                                        "fields, set separator: semicolon"},
                                                       {"|", "one field with pipes: 'a|b|k'"},
                                                       {"|", "set separator: pipe"},
                                                       {" ", "one field with blanks: 'a b k'"},
                                                       {"   ", "set separator: blank"},
                                                       {"\t", "set separator: tab"},
                                                       {"^", "'^' (3 fields in each line)"},
                                                       {":", "read_csv(FILE, sep=':').to_csv(NAME, index=False)"}};
  for (const auto& [separator, text] : known) {
    INFO(separator);
    CHECK(contains(folder.error(lines(separator), kK), text));
  }
  CHECK(contains(folder.error(";a;k\n0;0.5;x\n1;1.5;y\n", kK), "set separator: semicolon"));
  CHECK(contains(folder.error("a b k\n1 2 \"x\n", kK), "set separator: blank"));
  const auto data = folder.open(lines("|"), keys_of({{"target", "k"}, {"separator", "pipe"}}));
  CHECK(table_of(*data) == std::vector<float>{0.5f, 1, 0, 1.5f, 2, 1, 2.5f, 4, 0});
  CHECK(load_table(table_record(*data->table())).separator == '|');
  const auto predict = [&](const std::string& text) {
    return error_of([&] { read_table_samples("p.csv", text, *folder.open(lines(","), kK)->table(), nullptr); });
  };
  CHECK(contains(predict("a;b\n1;2\n"), "write the file with the separator of the training table: ','"));
  CHECK(contains(predict("sep=;\na;b\n1;2\n"), "elsewhere write the file with the separator of the training table"));
}

TEST_CASE("a first line sep=; sets the separator") {
  const CsvFolder folder;
  const auto data = folder.open(lines(";", "sep=;\r\n"), keys_of({{"target", "k"}, {"separator", "semicolon"}}));
  CHECK(data->size() == 3);
  CHECK(contains(folder.error(lines(";", "sep=;\n") + "1;2\n", keys_of({{"target", "k"}, {"separator", "semicolon"}})),
                 "x.csv:6: got 2 fields, expected 3"));
  CHECK(contains(folder.error(lines(";", "sep=;\n"), kK),
                 "x.csv:1: the first line says that ';' separates fields, expected ','. In a training table set "
                 "separator: semicolon"));
  CHECK(folder.open(lines(",", "sep=,\n"), kK)->size() == 3);
}

TEST_CASE("titles, comments, names of rows and notes are named where the lines have other lengths") {
  const CsvFolder folder;
  CHECK(contains(folder.error(lines(",", "# made by hand\n"), kK),
                 "x.csv:2: got 3 fields, expected 1 as in the first line. If the first line is a comment, remove it"));
  CHECK(contains(folder.error(lines(",", "Measured in May\n"), kK), "If the first line is a title, remove it"));
  CHECK(
      contains(folder.error("a,k\n1,0.5,x\n2,1.5,y\n", kK),
               "got 3 fields, expected 2 as in the first line. If each line begins with a name or a number of the row, "
               "as R writes them, write the table without them (row.names=FALSE)"));
  CHECK(contains(folder.error(lines(",") + "# end\n", kK),
                 "x.csv:5: got 1 fields, expected 3 as in the first line. If it "
                 "is a comment, remove it"));
  CHECK(contains(folder.error(lines(",") + "Total\n", kK), "If it is a note or the end of the table, remove it"));
  CHECK(contains(folder.error("a,k\n0,5,1,0\n1,5,2,0\n", kK),
                 "numbers with decimal commas need another field separator"));
  CHECK(contains(folder.error(lines(",") + "1,2,x,y\n", kK), "A field that holds ',' must be in double quotes"));
  CHECK(contains(folder.error("a,a\nb,c\n", keys_of({{"target", "1"}})),
                 "got the name 'a' twice, expected different names. If the first line is a sample, set header: no"));
}

TEST_CASE("a first line 0, 1 .. is the header of pandas for any number of columns, and it is said") {
  const CsvFolder folder;
  const auto two = folder.open("0,1\n0.5,1\n-1.5,0\n", keys_of({{"target", "2"}}));
  CHECK(two->size() == 2);
  CHECK(contains(all_notes(*two),
                 "it counts up from 0, as pandas names columns without names. If that is wrong, set "
                 "header: no"));
  CHECK(folder.open("0,1\n0.5,1\n-1.5,0\n", keys_of({{"target", "2"}, {"header", "no"}}))->size() == 3);
  CHECK(folder.open("1,0\n0.5,1\n-1.5,0\n", keys_of({{"target", "2"}}))->size() == 3);
  std::vector<std::string> notes;
  CHECK(read_csv_samples("p.csv", "0\n0.5\n-1.5\n", false, &notes).count == 2);
  REQUIRE(notes.size() == 1);
  CHECK(contains(notes[0],
                 "it counts up from 0, as pandas names columns without names. If that is wrong, add a line of "
                 "names above it"));
}

TEST_CASE("numbers too small for fp32, classes without samples and saved numbers of rows are warned of") {
  const CsvFolder folder;
  const auto tiny = folder.open("a,b,k\n1e-50,1,0\n-2e-400,2,1\n0,3,1\n0.0e-99,4,0\n1e-30,5,0\n", kK);
  CHECK(contains(all_notes(*tiny),
                 "x.csv: column 1 (a): 2 of 5 cells are too small for fp32 and become 0, the first in "
                 "line 2: 1e-50"));
  const auto gap = folder.open("a,k\n0.5,0\n1.5,5\n", kK);
  CHECK(gap->classes() == 6);
  CHECK(contains(all_notes(*gap),
                 "column 2 (k): no sample has the classes 1, 2, 3, 4: classes are numbered from 0, so the "
                 "model gets 6"));
  CHECK(contains(all_notes(*folder.open("Unnamed: 0,a,k\n0,0.5,0\n1,1.5,1\n", kK)),
                 "column 1 (Unnamed: 0) is named as pandas names a column without a name, as the numbers of rows that "
                 "pandas writes; it is a feature. ignore: 1 leaves it out"));
}

TEST_CASE("a line break in the name of a table does not end the line of a message") {
  const CsvFolder folder;
  write_file_atomically(folder.temp.file("a\nb.csv"), "a,k\n1,x,y\n");
  DatasetSpec spec;
  spec.format = "csv";
  spec.root = folder.temp.path();
  spec.file = "a\nb.csv";
  spec.keys = kK;
  CHECK(contains(error_of([&] { make_dataset(spec); }), "a\\nb.csv:2: got 3 fields"));
}
