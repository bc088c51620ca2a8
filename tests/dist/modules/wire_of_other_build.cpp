// A module for ranks of another build of bitgrad.
#include "dist/wire.h"

extern "C" const bitgrad::detail::WireModule* bitgrad_wire() {
  static const bitgrad::detail::WireModule module{
      .build = "bitgrad 0.0.1 (of yesterday), C++ ABI 1", .kind = "openmpi", .version = "Open MPI 1.0.0"};
  return &module;
}
