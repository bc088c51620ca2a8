// A module for ranks of this build, but of another MPI than the launcher's. It is refused before it opens anything.
#include "bitgrad/base/commit.h"
#include "bitgrad/base/version.h"
#include "dist/wire.h"

extern "C" const bitgrad::detail::WireModule* bitgrad_wire() {
  static const bitgrad::detail::WireModule module{
      .build = BITGRAD_WIRE_BUILD(BITGRAD_VERSION, BITGRAD_GIT), .kind = "mpich", .version = "MPICH 4.0.2"};
  return &module;
}
