# The module autosp._engine from python/src, one file per area of the engine.

find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(
  COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
  OUTPUT_VARIABLE nanobind_DIR
  OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

file(GLOB module_sources CONFIGURE_DEPENDS python/src/*.cc)
# Reading and writing FX graphs is on the way of every compilation: speed, not size.
nanobind_add_module(_engine NB_STATIC NOMINSIZE ${module_sources})
set_target_properties(nanobind-static PROPERTIES CXX_CLANG_TIDY "")
target_link_libraries(_engine PRIVATE autosp_engine autosp_flags)
install(TARGETS _engine LIBRARY DESTINATION autosp COMPONENT python)

if(AUTOSP_MODULE_IN_SOURCE)
  set_target_properties(_engine PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_SOURCE_DIR}/python/autosp)
endif()
