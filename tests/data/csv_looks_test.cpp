// What format csv takes first lines of numbers for, and cells that only look like numbers.
#include <string>
#include <vector>

#include "bitgrad/base/text.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/data/samples.h"
#include "bitgrad/data/table.h"
#include "data/csv_folder.h"
#include "data/csv_table.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;
using bitgrad::data::number_look;

namespace {

std::string warnings_of(const Dataset& data) {
  std::string all;
  for (const std::string& note : data.notes()) all += note + '\n';
  return all;
}

// A column a of such cells, and a target y.
std::string column(const std::vector<std::string>& cells) {
  std::string text = "a;y\n";
  for (size_t i = 0; i < cells.size(); ++i) text += cells[i] + (i % 2 == 0 ? ";0\n" : ";1\n");
  return text;
}

std::string look_of(const std::string& field, char decimal = '.') {
  return number_look(field, decimal).plain.empty() ? std::string() : number_look(field, decimal).text(decimal);
}

}  // namespace

TEST_CASE("a header of years is one where a new name is in it above fractions, else a warning is given") {
  const CsvFolder folder;
  const std::string names = "0.035,0.630,n\n0.472,0.441,y\n0.855,0.250,y\n0.1,0.2,n\n";
  for (const char* const first : {"2018,2019,k\n", "1.0,2.0,k\n", "8,-1,k\n"}) {
    INFO(first);
    const auto data = folder.open(first + names, keys_of({{"target", "3"}}));
    CHECK(data->size() == 4);
    CHECK(data->class_names() == std::vector<std::string>{"n", "y"});
    CHECK(contains(warnings_of(*data), "holds the names of the columns: 'k' is in no line below"));
    CHECK(contains(warnings_of(*data), "set header: no"));
  }
  const auto rare = folder.open("0.5,2.5,rare\n" + names, keys_of({{"target", "3"}}));
  CHECK(rare->size() == 5);
  CHECK(contains(warnings_of(*rare), "is a sample: it has numbers, but 'rare' is in none of the next 4 lines"));
  CHECK(folder.open("2,3,y\n" + names, keys_of({{"target", "3"}}))->size() == 5);
  CHECK(folder.open("0.5,2.5,y\n" + names, keys_of({{"target", "3"}}))->notes().empty());
  CHECK(folder.open("2018,2019,k\n" + names, keys_of({{"target", "3"}, {"header", "no"}}))->size() == 5);
}

TEST_CASE("a first line of numbers that could be names of columns is a sample with a warning") {
  const CsvFolder folder;
  const auto warning = [&](const std::string& text) {
    return warnings_of(*folder.open(text, keys_of({{"target", "4"}})));
  };
  const std::string fractions = "0.25,0.5,0.25,0\n0.5,0.75,2.5,1\n";
  CHECK(contains(warning("2018,2021,2019,1\n" + fractions), "is a sample: it has numbers, but whole ones above"));
  CHECK(
      contains(warning("8,16,32,64\n1,0,4,0\n3,3,1,1\n"), "numbers, which rise evenly. If that is wrong, set header"));
  CHECK(contains(warning("-1,0,1,2\n1,0,4,0\n3,3,1,1\n"), "numbers, which rise evenly"));
  CHECK(warning("0,0,0,1\n" + fractions).empty());    // no names: the same twice
  CHECK(warning("5,0.5,3,1\n" + fractions).empty());  // no names: a fraction
  CHECK(warning("0,2,4,6\n1,3,5,7\n3,3,1,0\n1,1,0,1\n3,0,0,2\n1,1,0,3\n1,2,0,4\n5,2,0,5\n").empty());
  CHECK(warning("5,9,1,0\n7,0,4,0\n3,3,1,1\n").empty());
}

TEST_CASE("a column that a key names makes the first line a header, and an unknown one suggests header: yes") {
  const CsvFolder folder;
  const std::string rows = "1.5,0.5,n\n2.5,1.5,y\n";
  CHECK(folder.open("1.5,2.25,k\n" + rows, keys_of({{"target", "k"}}))->size() == 2);
  CHECK(folder.open("2019,2020,2021\n1,2,0\n3,4,1\n", keys_of({{"target", "2021"}}))->size() == 2);
  CHECK(
      contains(folder.error("1.5,2.25,n\n" + rows, keys_of({{"target", "k"}})),
               "or its number 1 .. 3. Its columns have no names, as the first line is a sample: it has numbers. If it "
               "holds them, set header: yes."));
}

TEST_CASE("texts that people read as numbers are reported with the plain number") {
  CHECK(look_of("5%") == "a percent sign: write it as 5");
  CHECK(look_of("-$5.50") == "a currency sign: write it as -5.50");
  CHECK(look_of("12,50 \xE2\x82\xAC") ==
        "a currency sign, and a decimal comma: remove the first and set decimal: comma");
  CHECK(look_of("1'234") == "apostrophes between thousands: write it as 1234");
  CHECK(look_of("1 234 567.5") == "blanks between thousands: write it as 1234567.5");
  CHECK(look_of("1\xC2\xA0"
                "234") == "blanks between thousands: write it as 1234");
  CHECK(look_of("0x1f") == "hexadecimal digits: write it as 31");
  CHECK(look_of("1.2D+00") == "the letter D of an exponent: write it as 1.2e+00");
  CHECK(look_of("\xE2\x88\x92"
                "0.5") == "a minus sign that is not that of ASCII: write it as -0.5");
  CHECK(look_of("(7.5)") == "parentheses for a minus sign: write it as -7.5");
  CHECK(look_of("1,234.5") == "commas between thousands: write it as 1234.5");
  CHECK(look_of("1,234,567") == "commas between thousands: write it as 1234567");
  CHECK(look_of("0,5") == "a decimal comma: set decimal: comma");
  CHECK(look_of("1,234") ==
        "a decimal comma: set decimal: comma; or with commas between thousands: remove them (1234)");
  CHECK(look_of("1.000", ',') ==
        "a decimal point: set decimal: point; or with points between thousands: remove them (1000)");
  CHECK(look_of("1.000,5", ',') == "points between thousands: write it as 1000,5");
  CHECK(look_of("1.000,5") == "points between thousands, and a decimal comma: remove the first and set decimal: comma");
  for (const char* const name : {"abc", "", "$$", "12 kg", "1.2.3", "2020-01-02", "12:30", "5'11", "1/2", "1 23", "A1",
                                 "0x", "10%-20%", "1_2", "12D", "- 5", "<5"}) {
    INFO(name);
    CHECK(look_of(name).empty());
  }
}

TEST_CASE("a column of texts that look like numbers is an error with line and column, or holds names by wish") {
  const CsvFolder folder;
  const Attributes keys = keys_of({{"target", "y"}, {"separator", "semicolon"}});
  CHECK(folder.error(column({"high", "5%", "10%"}), keys) ==
        "[data.csv] x.csv:3: column 1 (a): got '5%', which looks like a number with a percent sign: write it as 5. If "
        "these are names: names: a.");
  CHECK(
      contains(folder.error(column({"0.5", "2.5",
                                    "\xE2\x88\x92"
                                    "1.5"}),
                            keys),
               "expected a number, as 2 of the 3 cells of this column are. It looks like a number with a minus sign"));
  CHECK(
      folder.open(column({"5%", "10%", "5%"}), keys_of({{"target", "y"}, {"separator", "semicolon"}, {"names", "a"}}))
          ->features() == 2);
  CHECK(folder.open(column({"5%", "low", "high"}), keys)->features() == 3);
  const Attributes values = keys_of({{"target", "a"}, {"target_is", "values"}, {"separator", "semicolon"}});
  CHECK(
      contains(folder.error(column({"$5.50", "$6"}), values),
               "got '$5.50', expected a finite number that fp32 holds, but it has a currency sign: write it as 5.50"));
}

TEST_CASE("ways out of missing values can be typed, and a class may have a word for them as its name") {
  const CsvFolder folder;
  CHECK(contains(folder.error("a,y\n1,0\n2,1\n*,0\n", keys_of({{"target", "y"}})),
                 R"(missing: ["*"] with fill: mean (on a command line 'data.train.missing=["*"]'))"));
  const std::string text = "a,k\n0.5,NA\n1.5,EU\n2.5,US\n3.5,NA\n";
  CHECK(contains(folder.error(text, keys_of({{"target", "k"}})), "If 'NA' is the name of a class: names: k."));
  const auto data = folder.open(text, keys_of({{"target", "k"}, {"names", "k"}}));
  CHECK(data->class_names() == std::vector<std::string>{"EU", "NA", "US"});
  CHECK(row_of(*data, 3) == std::vector<float>{3.5f, 1});
  CHECK(contains(folder.error("a,k\n1,x\n2,\n", keys_of({{"target", "k"}, {"names", "k"}})),
                 "got '', expected a target"));
}

TEST_CASE("a table for a prediction names what can be done to it, as no key changes how it is read") {
  const CsvFolder folder;
  const auto data = folder.open("a;b;y\n1;2;0\n3;4;1\n", keys_of({{"target", "y"}, {"separator", "semicolon"}}));
  const auto error = [&](const std::string& text) {
    return error_of([&] { read_table_samples("p.csv", text, *data->table(), nullptr); });
  };
  CHECK(contains(error("a;b\n1;\n"), "got '', expected a value: the model has no replacement for missing"));
  CHECK(contains(error("a\tb\n1\t2\n"), "If these separate fields, write the file with the separator of the"));
}

TEST_CASE("classes by number without 0 are warned of once") {
  const CsvFolder folder;
  const auto data = folder.open("a,k\n0.5,1\n1.5,2\n", keys_of({{"target", "k"}}));
  CHECK(data->classes() == 3);
  CHECK(contains(warnings_of(*data), "x.csv: column 2 (k): no sample has class 0: classes are numbered from 0"));
  CHECK(folder.open("a,k\n0.5,0\n1.5,1\n", keys_of({{"target", "k"}}))->notes().empty());
}
