// Json: values, texts, and the errors of both.
#include "bitgrad/base/json.h"

#include <cmath>
#include <limits>

#include "support/catch.h"
#include "support/expect_error.h"

using bitgrad::Json;
using bitgrad::JsonError;
using bitgrad::JsonLimits;

namespace {

template <typename F>
std::string json_error(F&& f) {
  try {
    f();
  } catch (const JsonError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a JSON value keeps the order of its members, and equality does not ask for it") {
  const Json a{{"z", 1}, {"a", Json::array({1, 2.5, "x", nullptr, true})}, {"deep", {{"k", "v"}}}};
  CHECK(a.dump() == R"({"z":1,"a":[1,2.5,"x",null,true],"deep":{"k":"v"}})");
  CHECK(Json::parse(a.dump()) == a);
  CHECK(Json::parse(R"({"a":[1,2.5,"x",null,true],"deep":{"k":"v"},"z":1.0})") == a);
  CHECK_FALSE(Json::parse(R"({"a":[1,2.5,"x",null],"deep":{"k":"v"},"z":1})") == a);
  CHECK(a.dump(2) == Json::parse(a.dump()).dump(2));
  CHECK(Json{{"a", 1}}.is_object());
  CHECK(Json{"a", 1}.is_array());
  CHECK(Json::object().dump() == "{}");
  CHECK(Json(std::vector<int>{}).dump() == "[]");
}

TEST_CASE("numbers of a JSON text come back as they were written") {
  for (const double x : {0.1, -1e300, 5e-324, 1.0 / 3, 123456789.125})
    CHECK(Json::parse(Json(x).dump()).get<double>() == x);
  CHECK(Json(std::numeric_limits<int64_t>::min()).dump() == "-9223372036854775808");
  CHECK(Json::parse("-9223372036854775808").get<int64_t>() == std::numeric_limits<int64_t>::min());
  CHECK(Json(std::numeric_limits<uint64_t>::max()).dump() == "18446744073709551615");
  CHECK(Json::parse("18446744073709551615").get<uint64_t>() == std::numeric_limits<uint64_t>::max());
  CHECK(Json::parse("18446744073709551615") == std::numeric_limits<uint64_t>::max());
  CHECK_FALSE(Json::parse("18446744073709551615") == Json(int64_t{-1}));
  CHECK(Json(std::nan("")).dump() == "null");
  CHECK(Json::parse("[1,2]").get<std::vector<float>>() == std::vector<float>{1, 2});
}

TEST_CASE("a number that the type asked for does not hold is an error, never another number") {
  CHECK(json_error([] { Json(300).get<uint8_t>(); }) == "JSON: got 300, expected 0 .. 255");
  CHECK(json_error([] { Json(-129).get<int8_t>(); }) == "JSON: got -129, expected -128 .. 127");
  CHECK(Json(-128).get<int8_t>() == -128);
  CHECK(json_error([] { Json(-1).get<uint64_t>(); }) == "JSON: got -1, expected 0 .. 18446744073709551615");
  CHECK_FALSE(json_error([] { Json::parse("18446744073709551615").get<int64_t>(); }).empty());
  CHECK(json_error([] { Json(2.0).get<int>(); }) == "JSON: got a number, expected a whole number");
  CHECK(json_error([] { Json("2").get<double>(); }) == "JSON: got a string, expected a number");
  CHECK(json_error([] { Json(1).get<bool>(); }) == "JSON: got a whole number, expected a boolean");
}

TEST_CASE("members and elements that are not there are named") {
  const Json j{{"list", Json::array({1})}};
  CHECK(json_error([&] { j.at("none"); }) == "JSON: no member 'none'");
  CHECK(json_error([&] { j.at("list").at(1); }) == "JSON: element 1 of an array of 1");
  CHECK(json_error([&] { j.at("list").members(); }) == "JSON: got an array, expected an object");
  CHECK(j.value("none", 7) == 7);
  CHECK(j.value("none", "text") == "text");
  Json changed = j;
  changed["list"][0] = 5;
  changed["new"]["deep"] = true;
  changed.update(Json{{"list", 2}, {"last", nullptr}});
  CHECK(changed.dump() == R"({"list":2,"new":{"deep":true},"last":null})");
  changed.erase("new");
  changed.erase("never");
  CHECK(changed.dump() == R"({"list":2,"last":null})");
}

TEST_CASE("a JSON text that is wrong, cut or nested without end is an error with its place") {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "nul", "1 2", "\"\xff\"", "[1e999]"}) {
    INFO(text);
    CHECK_FALSE(json_error([&] { Json::parse(text); }).empty());
  }
  CHECK(json_error([] { Json::parse("[1, x]"); }).find("column 5") != std::string::npos);
  const std::string deep(1 << 20, '[');
  CHECK(json_error([&] { Json::parse(deep); }) == "more than 200 collections inside one another");
  const std::string edge = std::string(JsonLimits().depth, '[') + std::string(JsonLimits().depth, ']');
  CHECK(Json::parse(edge).dump() == edge);
  CHECK_FALSE(json_error([] { Json("\xff").dump(); }).empty());
  CHECK(Json::parse(R"({"a":1,"b":2,"a":3})").dump() == R"({"a":3,"b":2})");
  CHECK(json_error([] { Json::parse(R"({"a":1,"b":2,"a":3})", {.unique_names = true}); }) ==
        "the key 'a' twice in one object");
  CHECK(json_error([] { Json::parse("[[[]]]", {.depth = 2}); }) == "more than 2 collections inside one another");
  CHECK(Json::parse("[[]]", {.depth = 2}).size() == 1);
  CHECK(json_error([] { Json::parse(std::string_view("{}\0{", 4)); }) == "a byte 0 at 2");
}
