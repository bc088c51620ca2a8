# Plugins of bitgrad (docs/adding.md): shared libraries that a program loads.

# bitgrad_add_plugin(name source...): builds name.so. It is compiled with the headers of bitgrad and not linked with it: the
# program that loads it has the one copy of the library.
function(bitgrad_add_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_compile_options(${name} PRIVATE -ffp-contract=off)
  target_include_directories(${name} PRIVATE $<TARGET_PROPERTY:bitgrad::bitgrad,INTERFACE_INCLUDE_DIRECTORIES>)
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX ".so")
endfunction()

# bitgrad_plugin_host(target...): programs that load plugins. All of the library is linked into them, and its symbols are
# exported.
function(bitgrad_plugin_host)
  foreach(target ${ARGN})
    set_target_properties(${target} PROPERTIES ENABLE_EXPORTS ON LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,bitgrad,bitgrad::bitgrad")
  endforeach()
endfunction()
