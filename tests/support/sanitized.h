// Whether the library is compiled with a sanitizer. The tests need not be (BITGRAD_SANITIZE_TESTS), so their own macros
// cannot tell.
#pragma once

namespace bitgrad::test {

extern const bool kSanitized;  // constant, in paths.cpp

}  // namespace bitgrad::test
