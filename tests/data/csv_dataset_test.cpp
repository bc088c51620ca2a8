// Format csv: tables of text with a target column.
#include "bitgrad/data/dataset.h"
#include "data/csv_folder.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const char* const kPeople =
    "\xEF\xBB\xBF"
    "age, city ,\"height, cm\",kind\r\n"
    "30,Rome,170.5,dog\r\n"
    "\r\n"
    "+41,\"New \"\"York\"\"\",180,cat\r\n"
    "25,Rome,NA,dog\r\n";

}  // namespace

TEST_CASE("a table gives numbers, categories and classes by the names of its columns") {
  const CsvFolder folder;
  const auto people = folder.open(kPeople, keys_of({{"target", "kind"}, {"missing", "-1"}}));
  CHECK(people->size() == 3);
  CHECK(people->features() == 4);
  CHECK(people->classes() == 2);
  // age, New "York", Rome, height; classes cat, dog
  CHECK(table_of(*people) == std::vector<float>{30, 0, 1, 170.5f, 1, 41, 1, 0, 180, 0, 25, 0, 1, -1, 1});
  const auto codes = folder.open(kPeople, keys_of({{"target", "4"}, {"categories", "codes"}, {"ignore", "3"}}));
  CHECK(table_of(*codes) == std::vector<float>{30, 1, 1, 41, 0, 0, 25, 1, 1});
  const auto values =
      folder.open("1;2;3\n4;5;6\n", keys_of({{"target", "3,1"}, {"target_is", "values"}, {"separator", "semicolon"}}));
  CHECK(values->classes() == 0);
  CHECK(values->target_form().shape == Shape{2});
  CHECK(table_of(*values) == std::vector<float>{2, 3, 1, 5, 6, 4});
  const auto numbers = folder.open("a\tb\n0.5\t2\n1\t0\n", keys_of({{"target", "b"}, {"separator", "tab"}}));
  CHECK(numbers->classes() == 3);
  CHECK(numbers->stored().form == StoredAs::kFloat);
}

TEST_CASE("what the columns hold follows from the training file") {
  const CsvFolder folder;
  const auto test = folder.open("c,y\nblue,1\n", keys_of({{"target", "y"}}), "c,y\nred,0\nblue,1\ngreen,2\n");
  CHECK(test->classes() == 3);
  CHECK(table_of(*test) == std::vector<float>{1, 0, 0, 1});
  CHECK(folder.error("c,y\npink,1\n", keys_of({{"target", "y"}}), "c,y\nred,0\nblue,1\n") ==
        "[data.csv] x.csv:2: column 1 (c): got 'pink', expected one of the 2 values in the training file (blue, red).");
  std::string days = "day,y\n";
  for (int i = 0; i < 60; ++i) days += concat("2024-", 10 + i / 28, '-', 10 + i % 28, ',', i % 2, '\n');
  CHECK(contains(folder.error("day,y\n2025-01-01,1\n", keys_of({{"target", "y"}}), days),
                 " ...). Leave a column of dates or ids out, of both tables: ignore: day"));
  CHECK(contains(folder.error("c,z\nred,1\n", keys_of({{"target", "y"}}), "c,y\nred,0\nblue,1\n"),
                 "x.csv: got no column y, expected every feature and target of the training table: c. Is it 'z'?"));
  CHECK(contains(folder.error("c,y\nred,2\n", keys_of({{"target", "y"}}), "c,y\nred,0\nblue,1\n"),
                 "x.csv:2: column 2 (y): got '2', expected a class, a whole number 0 .. 1."));
}

TEST_CASE("a table that cannot be read is an error with line and column") {
  const CsvFolder folder;
  const Attributes y = keys_of({{"target", "y"}});
  CHECK(folder.error("a,y\n1,0\n\n,1\n", y) ==
        "[data.csv] x.csv:4: column 1 (a): got '', expected a value. To allow missing values, set missing to "
        "their replacement (a number, mean or median), or ignore the column.");
  CHECK(contains(folder.error("a,y\n1,0\n2,NA\n", y), "x.csv:3: column 2 (y): got 'NA', expected a target"));
  CHECK(contains(folder.error("a,y\n1,0\n2\n", y), "x.csv:3: got 1 fields, expected 2 as in the first line."));
  CHECK(contains(folder.error("a,y\n\"1,0\n", y), "x.csv:2: column 1: got a quote that does not end with the field"));
  CHECK(contains(folder.error("a,a\n1,0\n", y), "x.csv:1: column 2: got the name 'a' twice"));
  CHECK(contains(folder.error("a,y\n", y), "x.csv: got no row"));
  CHECK(contains(folder.error("", y), "x.csv: got no row"));
  CHECK(contains(folder.error("a,y\n1e99,0\n", y), "x.csv:2: column 1 (a): got '1e99', expected a finite number"));
  CHECK(contains(folder.error("a,yy\n1,0\n", y),
                 "target: got 'y', expected the name of a column of x.csv, or its number"));
  CHECK(contains(folder.error("a,y\n1,0.5\n", y), "x.csv:2: column 2 (y): got '0.5', expected a class"));
  CHECK(contains(folder.error("a,y\n1,-1\n", y), "got '-1', expected a class"));
  CHECK(contains(folder.error("y\n1\n", y), "got no column beside target and ignore"));
  CHECK(contains(folder.error("a,y\n1,0\n", keys_of({{"target", "a,y"}})), "got 2 columns of classes"));
  CHECK(contains(folder.error("a,y\n1,0\n", keys_of({{"target", "y"}, {"missing", "x"}})), "missing: got 'x'"));
}

TEST_CASE("categories of a target name its classes, several targets are named by their columns") {
  const CsvFolder folder;
  using Names = std::vector<std::string>;
  const std::string table = "x,kind,n,a,b\n1,dog,0,1,2\n2,cat,1,3,4\n";
  const auto names = [&](std::initializer_list<std::pair<const char*, const char*>> keys) {
    return folder.open(table, keys_of(keys))->class_names();
  };
  CHECK(names({{"target", "kind"}}) == Names{"cat", "dog"});
  CHECK(names({{"target", "n"}, {"ignore", "kind"}}).empty());
  CHECK(names({{"target", "a,b"}, {"target_is", "values"}, {"ignore", "kind"}}) == Names{"a", "b"});
  // Of a test table those of the training table.
  CHECK(folder.open("x,kind\n1,dog\n", keys_of({{"target", "kind"}}), "x,kind\n1,dog\n1,cat\n")->class_names() ==
        Names{"cat", "dog"});
  CHECK(folder.open("1,2\n3,4\n", keys_of({{"target", "2"}, {"target_is", "values"}}))->class_names().empty());
  DatasetSpec room;
  room.format = "csv";
  room.root = folder.temp.path();
  room.file = "x.csv";
  room.classes = 5;
  folder.open(table, keys_of({{"target", "kind"}}));
  room.keys = keys_of({{"target", "kind"}});
  CHECK(make_dataset(room)->class_names().empty());
}

TEST_CASE("a table of more columns than a model file describes is refused before its cells are read") {
  const CsvFolder folder;
  std::string row;
  for (int i = 0; i <= 100000; ++i) row += "x,";  // no number
  CHECK(folder.error(row + "1\n", keys_of({{"target", "1"}, {"header", "no"}})) ==
        "[data.csv] x.csv: got 100002 columns, expected at most 100000. Save tables of this width as an array "
        "(numpy.save) and read it by format: npy.");
}
