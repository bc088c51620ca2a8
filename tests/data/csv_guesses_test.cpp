// What format csv takes lines, columns and cells for. Expected values are those of pandas.read_csv.
#include <string>
#include <vector>

#include "bitgrad/base/file.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/data/table.h"
#include "data/csv_folder.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const Attributes kY = keys_of({{"target", "y"}});

// A column b of 59 numbers and one odd cell, in line 19.
std::string odd(const std::string& cell) {
  std::string text = "a,b,y\n";
  for (int i = 2; i < 62; ++i) text += concat(i * 0.5, ',', i == 19 ? cell : concat(i * 0.25), ',', i % 2, '\n');
  return text;
}

std::string warnings_of(const Dataset& data) {
  std::string all;
  for (const std::string& note : data.notes()) all += note + '\n';
  return all;
}

std::string about(const Dataset& data) {
  std::string all;
  for (const std::string& line : data.table()->about) all += line + '\n';
  return all;
}

}  // namespace

TEST_CASE("one odd cell in a column of numbers is an error with line, column and text, a missing value is filled") {
  const CsvFolder folder;
  for (const char* const cell : {"None", "#N/A", "n/a", "<NA>", "NULL", ""}) {
    INFO(cell);
    CHECK(contains(folder.error(odd(cell), kY), concat("x.csv:19: column 2 (b): got '", cell, "', expected a value")));
    const auto filled = folder.open(odd(cell), keys_of({{"target", "y"}, {"missing", "0"}}));
    CHECK(filled->features() == 2);
    CHECK(row_of(*filled, 17) == std::vector<float>{9.5f, 0, 1});
  }
  for (const char* const cell : {"-", "#DIV/0!", "12 kg", "abc", "1.2.3", "0x10"}) {
    INFO(cell);
    CHECK(contains(folder.error(odd(cell), keys_of({{"target", "y"}, {"missing", "0"}})),
                   concat("x.csv:19: column 2 (b): got '", cell, "', expected a number, as 59 of the 60 cells")));
  }
  CHECK(contains(folder.error(odd("1e400"), kY), "x.csv:19: column 2 (b): got '1e400', expected a finite number"));
  CHECK(row_of(*folder.open(odd("1e-60"), kY), 17) == std::vector<float>{9.5f, 0, 1});
  // Words of one's own replace the list, and names may be numbers.
  CHECK(folder.open(odd("-"), keys_of({{"target", "y"}, {"missing", "-"}, {"fill", "0"}}))->features() == 2);
  CHECK(contains(folder.error(odd("None"), keys_of({{"target", "y"}, {"missing", "-"}, {"fill", "0"}})), "got 'None'"));
  CHECK(folder.open(odd("-"), keys_of({{"target", "y"}, {"names", "b"}}))->features() == 61);
  CHECK(contains(folder.error(odd("1"), keys_of({{"target", "y"}, {"missing", "-,x"}})),
                 "missing: got '-,x', expected error"));
}

TEST_CASE("mean, median and a number fill gaps, by column") {
  const CsvFolder folder;
  const std::string text = "a,b,c,d,y\n1,10,x,5,0\n,,,,1\n2,20,z,6,0\n6,60,x,7,1\n";
  // pandas: mean of a: 3, median of b: 20.
  const auto data = folder.open(text, keys_of({{"target", "y"}, {"fill", "mean,b=median,d=-1"}}));
  CHECK(row_of(*data, 1) == std::vector<float>{3, 20, 0, 0, -1, 1});
  CHECK(row_of(*data, 2) == std::vector<float>{2, 20, 0, 1, 6, 0});
  CHECK(contains(folder.error(text, keys_of({{"target", "y"}, {"fill", "mean,b=error"}})),
                 "x.csv:3: column 2 (b): got ''"));
  CHECK(contains(folder.error(text, keys_of({{"target", "y"}, {"fill", "often"}})),
                 "fill: got 'often', expected a number"));
  CHECK(contains(folder.error(text, keys_of({{"target", "y"}, {"fill", "e=1"}})),
                 "fill: got 'e', expected the name of a column"));
}

TEST_CASE("a first line of numbers is a header where it counts up or a name is above numbers, and it is reported") {
  const CsvFolder folder;
  const std::string rows = "0.5,-0.5,0.25,1\n0.25,2.5,-1,0\n";
  const auto pandas = folder.open("0,1,2,3\n" + rows, keys_of({{"target", "4"}}));
  CHECK(pandas->size() == 2);
  CHECK(contains(warnings_of(*pandas), "the first line holds the names of the columns: it counts up from 0"));
  const auto named = folder.open("0,1,2,target\n" + rows, keys_of({{"target", "target"}}));
  CHECK(named->size() == 2);
  CHECK(named->classes() == 2);
  CHECK(contains(warnings_of(*named), "'target' is above numbers"));
  const auto plain = folder.open("1.5,2.5,3.5,1\n" + rows, keys_of({{"target", "4"}}));
  CHECK(plain->size() == 3);
  CHECK(plain->notes().empty());
  CHECK(contains(about(*plain), "the first line is a sample: it has numbers"));
  const auto ones = folder.open("1,2,3,4\n" + rows, keys_of({{"target", "4"}}));
  CHECK(ones->size() == 3);
  CHECK(contains(warnings_of(*ones), "the first line is a sample: it has numbers, which count up"));
  CHECK(folder.open("0,1,2,3\n" + rows, keys_of({{"target", "4"}, {"header", "no"}}))->size() == 3);
  CHECK(folder.open("1,2,3,4\n" + rows, keys_of({{"target", "4"}, {"header", "yes"}}))->size() == 2);
  CHECK(contains(warnings_of(*folder.open("red,cat\nblue,dog\n", keys_of({{"target", "2"}}))),
                 "neither have the lines below"));
}

TEST_CASE("a decimal comma is read where it is configured, and named where it is not") {
  const CsvFolder folder;
  const std::string text = "a;b;y\n0,126;-1,5;1\n0,25;3;0\n";
  const auto data = folder.open(text, keys_of({{"target", "y"}, {"separator", "semicolon"}, {"decimal", "comma"}}));
  CHECK(table_of(*data) == std::vector<float>{0.126f, -1.5f, 1, 0.25f, 3, 0});
  CHECK(contains(
      folder.error(text, keys_of({{"target", "y"}, {"separator", "semicolon"}})),
      "x.csv:2: column 1 (a): got '0,126', which looks like a number with a decimal comma: set decimal: comma"));
  CHECK(contains(folder.error("a;y\n0.5;1\n0.25;0\n",
                              keys_of({{"target", "y"}, {"separator", "semicolon"}, {"decimal", "comma"}})),
                 "looks like a number with a decimal point"));
  CHECK(contains(folder.error(text, kY), "x.csv: the first line is one field with semicolons: 'a;b;y'"));
  CHECK(contains(folder.error("0.5 1 0\n1.5  2 1\n", keys_of({{"target", "3"}})), "set separator: blank"));
  CHECK(table_of(*folder.open("  0.5 1\t0\n 1.5  2 1  \n", keys_of({{"target", "3"}, {"separator", "blank"}}))) ==
        std::vector<float>{0.5f, 1, 0, 1.5f, 2, 1});
}

TEST_CASE("numbers that are one in fp32, ids and columns of too many names are reported") {
  const CsvFolder folder;
  const auto ids = folder.open("id,a,y\n16777216,1,0\n16777217,2,1\n16777219,3,0\n", kY);
  CHECK(contains(warnings_of(*ids),
                 "x.csv: column 1 (id): 1 of 3 different values are equal to their neighbor in fp32, such as 16777216 "
                 "and 16777217"));
  std::string text = "id,a,y\n";
  for (int i = 0; i < 1200; ++i) text += concat("k", i, ',', i * 0.5, ',', i % 2, '\n');
  CHECK(contains(
      folder.error(text, kY),
      "x.csv: column 1 (id): got more than 1000 different names in 1200 rows, the last in line 1002: 'k1000'"));
  const auto codes = folder.open(text, keys_of({{"target", "y"}, {"categories", "codes"}}));
  CHECK(codes->features() == 2);
  CHECK(contains(warnings_of(*codes), "1200 different names in 1200 rows: an id or a text"));
  CHECK(contains(about(*codes), "column 1 (id): 1200 names, one feature, their number (no cell is a number): k0, k1,"));
  CHECK(contains(about(*codes), "column 2 (a): numbers\n"));
  CHECK(contains(about(*codes), "column 3 (y): target, classes by number, 2 classes"));
  CHECK(contains(warnings_of(*folder.open(",a,y\n0,1.5,0\n1,2.5,1\n", kY)), "column 1 has no name"));
}

TEST_CASE("files of other kinds and texts of other codes are named with the way out") {
  const CsvFolder folder;
  CHECK(contains(folder.error("PAR1\x15", kY), "x.csv: got no text table: it is a table in Parquet. Write it as CSV"));
  CHECK(contains(folder.error(std::string("\xFF\xFE"
                                          "a\0,\0",
                                          6),
                              kY),
                 "it is a text in UTF-16"));
  CHECK(contains(folder.error("a,y\r1,0\r2,1\r", kY), "lines end with carriage returns alone"));
  CHECK(contains(folder.error("a,y\nK\xF6ln,0\n", kY), "x.csv:2: got bytes that are not UTF-8"));
}

TEST_CASE("fields in quotes may hold line ends, and quotes within a field are text") {
  const CsvFolder folder;
  const auto data =
      folder.open("a,\"b, c\",y\n\"x\ny\",1,0\n5\" pipe,2,1\n\"\",3,1\n", keys_of({{"target", "y"}, {"fill", "0"}}));
  CHECK(data->size() == 3);
  CHECK(data->feature_names() == std::vector<std::string>{"a=5\" pipe", "a=x\ny", "b, c"});
  CHECK(contains(folder.error("a,y\n\"x\ny\",1\n\"z,0\n", kY), "x.csv:4: column 1: got a quote that does not end"));
}

TEST_CASE("a table for evaluation is read by name, in any order, and skipped columns are reported") {
  const CsvFolder folder;
  const std::string training = "a,c,y\n1,red,0\n2,blue,1\n4,red,1\n";
  const auto test = folder.open("y,extra,c,a\n1,9,blue,\n", keys_of({{"target", "y"}, {"fill", "mean"}}), training);
  CHECK(table_of(*test) == std::vector<float>{7.0f / 3, 1, 0, 1});
  CHECK(contains(warnings_of(*test), "1 column that the training table does not have: not read: extra"));
  CHECK(contains(folder.error("b,c,y\n1,red,0\n", kY, training), "x.csv: got no column a, expected every feature"));
  CHECK(contains(folder.error("y,c,a\n1,red,2\n", keys_of({{"target", "3"}}), training),
                 "target: got '3' in x.csv, the training table has 'y'"));
}

TEST_CASE("the plan of named columns: numbers by name, targets of classes or values, names that differ") {
  const TablePlan plan = named_table({"b", "a", "target"}, {}, 1, 3);
  REQUIRE(plan.columns.size() == 4);
  CHECK(plan.columns[3].name == "target_");
  CHECK(plan.targets == std::vector<int64_t>{3});
  CHECK(feature_names(plan) == std::vector<std::string>{"b", "a", "target"});
  const TablePlan back = load_table(table_record(plan));
  CHECK(table_record(back) == table_record(plan));
  const Samples rows = read_table_samples("x", "a,b,target,more\n1,2,3,x\n4,NaN,6,x\n", [&] {
    TablePlan filled = plan;
    filled.columns[0].fill = 0.5f;
    return filled;
  }());
  const auto* x = reinterpret_cast<const float*>(rows.bytes.data());
  CHECK(std::vector<float>(x, x + 6) == std::vector<float>{2, 1, 3, 0.5f, 4, 6});
  CHECK(named_table({"a"}, {}, 2, 0).columns[2].name == "target 2");
  CHECK(named_table({"a"}, {"u", "v"}, 2, 0).values);
  CHECK(contains(error_of([] { named_table({}, {}, 1, 2); }), "got 0 features"));
  CHECK(contains(error_of([] { named_table({"a", ""}, {}, 1, 2); }), "expected a name in UTF-8"));
  CHECK(contains(error_of([] { named_table({"a"}, {"a"}, 1, 2); }), "got 'a' twice"));
}
