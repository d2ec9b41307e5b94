# What our own targets are compiled with: autosp_flags, linked privately so that nothing reaches
# nanobind's or GoogleTest's sources.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
# Lines and functions are enough for a backtrace; full debug information doubles the build time.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")

add_library(autosp_flags INTERFACE)
target_compile_options(autosp_flags INTERFACE -Wall -Wextra $<$<BOOL:${AUTOSP_WERROR}>:-Werror>)

# Set for the whole build: code with and without a sanitizer must not be linked together.
if(AUTOSP_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -fno-omit-frame-pointer")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()
