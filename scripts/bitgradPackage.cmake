# Installing: find_package(bitgrad COMPONENTS ...), pkg-config, and Debian packages by CPack (make package). The components:
# runtime (program, presets, models, libbitgrad_c.so), dev (headers, libbitgrad.a, files of CMake and pkg-config) and mpi (bitgrad_mpi.so).
set(cmake_folder ${CMAKE_INSTALL_LIBDIR}/cmake/bitgrad)
install(TARGETS bitgrad EXPORT bitgradTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
set(BITGRAD_HAS_C_LIBRARY OFF)
if(TARGET bitgrad_c)
  set(BITGRAD_HAS_C_LIBRARY ON)
  install(TARGETS bitgrad_c EXPORT bitgradTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
endif()
install(DIRECTORY include/bitgrad ${CMAKE_CURRENT_BINARY_DIR}/include/bitgrad DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
install(DIRECTORY models DESTINATION ${CMAKE_INSTALL_DATADIR}/bitgrad COMPONENT runtime)
install(DIRECTORY presets DESTINATION ${CMAKE_INSTALL_DATADIR}/bitgrad COMPONENT runtime)
install(EXPORT bitgradTargets NAMESPACE bitgrad:: DESTINATION ${cmake_folder} COMPONENT dev)
configure_package_config_file(${CMAKE_CURRENT_SOURCE_DIR}/scripts/bitgradConfig.cmake.in
                              ${CMAKE_CURRENT_BINARY_DIR}/bitgradConfig.cmake INSTALL_DESTINATION ${cmake_folder})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/bitgradConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/bitgradConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/bitgradConfigVersion.cmake
              scripts/bitgradPlugins.cmake
        DESTINATION ${cmake_folder} COMPONENT dev)

# pkg-config. The paths follow the file, so that an installed tree may be moved. What the static library needs stands in Libs:
# there is no shared one that would bring it along.
set(needs yaml-cpp z)
if(BITGRAD_HAS_ONEDNN)
  list(APPEND needs dnnl)
endif()
list(APPEND needs ${BITGRAD_LINKED_LIBRARIES} ${CMAKE_DL_LIBS})
list(TRANSFORM needs PREPEND "-l")
list(JOIN needs " " needs)
cmake_path(SET pc_folder NORMALIZE "/${CMAKE_INSTALL_LIBDIR}/pkgconfig")
string(REGEX REPLACE "[^/]+" ".." up "${pc_folder}")
function(bitgrad_pc name description libraries)
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc @ONLY CONTENT "prefix=\${pcfiledir}@up@
libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}
includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}

Name: ${name}
Description: ${description}
Version: ${PROJECT_VERSION}
Libs: ${libraries}
Cflags: -I\${includedir}
")
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endfunction()
bitgrad_pc(bitgrad "${PROJECT_DESCRIPTION} (C++20)" "-L\${libdir} -lbitgrad ${needs} -fopenmp -pthread")
if(TARGET bitgrad_c)
  bitgrad_pc(bitgrad_c "${PROJECT_DESCRIPTION} (C)" "-L\${libdir} -lbitgrad_c")
endif()

# Debian packages bitgrad, bitgrad-dev and bitgrad-mpi: make package, or cpack in the build folder.
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME bitgrad)
set(CPACK_PACKAGE_CONTACT "The maintainers of bitgrad <maintainers@bitgrad.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains low-bit neural networks whose weights are the low-bit weights")
set(CPACK_PACKAGE_FILE_NAME bitgrad-${PROJECT_VERSION})
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_CURRENT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime dev)
if(BITGRAD_HAS_MPI)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME bitgrad)
set(CPACK_DEBIAN_MPI_PACKAGE_NAME bitgrad-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "bitgrad (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS "openmpi-bin")
if(BITGRAD_MPI_KIND STREQUAL "mpich")
  set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS "mpich")
endif()
set(CPACK_DEBIAN_DEV_PACKAGE_NAME bitgrad-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "bitgrad (= ${PROJECT_VERSION}), g++, zlib1g-dev, libzip-dev, libyaml-cpp-dev")
if(BITGRAD_HAS_ONEDNN)
  string(APPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS ", libdnnl-dev, ocl-icd-opencl-dev, opencl-headers")
endif()
foreach(part "pcre2-8 libpcre2-dev" "utf8proc libutf8proc-dev" "sentencepiece libsentencepiece-dev" "png libpng-dev"
             "jpeg libjpeg-dev")
  separate_arguments(part)
  list(GET part 0 library)
  list(GET part 1 package)
  if(library IN_LIST BITGRAD_OPTIONAL_LIBRARIES)
    string(APPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS ", ${package}")
  endif()
endforeach()
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "The program bitgrad, its presets and trained models, and the C interface libbitgrad_c.so.")
set(CPACK_COMPONENT_MPI_DESCRIPTION "Training on several machines by MPI: the module bitgrad_mpi.so.")
set(CPACK_COMPONENT_DEV_DESCRIPTION "Headers, the C++ library, and files for CMake and pkg-config.")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/bitgrad RENAME copyright COMPONENT runtime)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/bitgrad-dev RENAME copyright COMPONENT dev)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/bitgrad COMPONENT runtime FILES_MATCHING PATTERN "*.md" PATTERN "results" EXCLUDE)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/bitgrad COMPONENT runtime)
install(DIRECTORY apps/examples DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/bitgrad-dev COMPONENT dev)
include(CPack)
