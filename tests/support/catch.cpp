// A source file to build the precompiled header for.
#include "support/catch.h"
