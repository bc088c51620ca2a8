// Included in every page: the style sheet (light, dark, print) and the script (values under the pointer).
#pragma once

namespace bitgrad::html {

extern const char* const kStyle;
extern const char* const kScript;

}  // namespace bitgrad::html
