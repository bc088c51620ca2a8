# The C interface (bitgrad/c.h) as a shared library that shows nothing else: C programs, and what the Python package loads.
# Libraries that it needs are looked for beside it first.
if(NOT BITGRAD_BUILD_C_LIBRARY OR BUILD_SHARED_LIBS OR BITGRAD_SANITIZE)
  return()
endif()
set(symbols ${CMAKE_CURRENT_SOURCE_DIR}/src/capi/exports.map)
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/src/empty.cpp CONTENT "// All of libbitgrad_c.so comes from libbitgrad.a.\n")
add_library(bitgrad_c SHARED ${CMAKE_CURRENT_BINARY_DIR}/src/empty.cpp)
add_library(bitgrad::c ALIAS bitgrad_c)
target_link_libraries(bitgrad_c PRIVATE $<BUILD_INTERFACE:bitgrad>)
target_include_directories(bitgrad_c INTERFACE $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
                                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_options(bitgrad_c PRIVATE -Wl,--version-script=${symbols} -Wl,--disable-new-dtags)
# Its version is BITGRAD_ABI_VERSION.
file(STRINGS include/bitgrad/c.h abi REGEX "^#define BITGRAD_ABI_VERSION [0-9]+")
string(REGEX REPLACE ".* " "" abi "${abi}")
set_target_properties(bitgrad_c PROPERTIES EXPORT_NAME c SOVERSION ${abi} LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,bitgrad"
                                           BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN" LINK_DEPENDS ${symbols}
                                           LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

# The wheel of the Python package: build/<preset>/wheel/.
find_program(BITGRAD_WHEEL_PYTHON python3)
mark_as_advanced(BITGRAD_WHEEL_PYTHON)
if(BITGRAD_WHEEL_PYTHON)
  add_custom_target(wheel COMMAND ${BITGRAD_WHEEL_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/apps/python/build_wheel.py --library $<TARGET_LINKER_FILE:bitgrad_c>
                                  --version ${PROJECT_VERSION} --out ${CMAKE_BINARY_DIR}/wheel
                    DEPENDS bitgrad_c VERBATIM)
endif()
