// What every page brings along: its style sheet (light, dark, print) and its script (values under the pointer).
#pragma once

namespace bitgrad::html {

extern const char* const kStyle;
extern const char* const kScript;

}  // namespace bitgrad::html
