#include "bitgrad/base/version.h"

#include "bitgrad/base/commit.h"

namespace bitgrad {

const char* build_commit() { return BITGRAD_GIT; }

}  // namespace bitgrad
