// A library that shows that it was loaded: its constructor makes the file $BITGRAD_TEST_MARK.
#include <cstdio>
#include <cstdlib>

namespace {

struct Mark {
  Mark() {
    const char* const path = std::getenv("BITGRAD_TEST_MARK");
    if (path == nullptr) return;
    if (std::FILE* const file = std::fopen(path, "w")) std::fclose(file);
  }
} const mark;

}  // namespace
