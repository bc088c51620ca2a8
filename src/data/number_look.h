// Texts that people read as numbers and programs do not: 5%, $5.50, 1 234, 0x1f, 1.2D+00.
#pragma once

#include <string>
#include <string_view>

namespace bitgrad::data {

struct NumberLook {
  std::string with;         // what is no part of a plain number: "a percent sign"; may be empty beside other_mark
  std::string plain;        // the number as read_number reads it, with '.'; empty: looks like no number
  bool other_mark = false;  // the decimal mark is the other one
  bool grouped = false;     // other_mark may as well stand between thousands; plain is then the number without it
  // "a percent sign: write it as 5".
  std::string text(char decimal) const;
};
// Of a field that is no number with the mark `decimal`.
NumberLook number_look(std::string_view field, char decimal);

}  // namespace bitgrad::data
