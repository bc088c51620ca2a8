// BITGRAD_PLAIN_LOOPS before a function of references and emulators whose loops are most of a test's time: it is
// optimized as the library is, and not checked by a sanitizer where its file is. Only for functions whose indices are
// bounded by constants or by their arguments.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
#define BITGRAD_PLAIN_LOOPS __attribute__((optimize("O3"), no_sanitize("address", "undefined")))
#else
#define BITGRAD_PLAIN_LOOPS
#endif
