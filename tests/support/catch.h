// Catch2, version 3 if installed, otherwise version 2. Tests use only what both provide.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
