// Gives the precompiled header a source to be built for.
#include "support/catch.h"
