# One folder of src/ is one library; one folder of tests/ is one test program.

# Sources of a module are compiled eight at a time, their headers once for all of them: half the processor time on the modules measured. Who
# changes one file again and again is quicker with -DNLSPLIT_UNITY=OFF. (A name in an anonymous namespace is then seen by the files of a module.)
option(NLSPLIT_UNITY "Compile the sources of a module in groups" ON)

# GCC 12 sees overlaps in `"x" + string` that are not there (its bug 105651), and guesses about what std::variant leaves uninitialized:
# the first is off, the second only warns, because it has also found a real dangling reference here.
set(NLS_WARNINGS -Wall -Wextra -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND NLS_WARNINGS -Wno-restrict -Wno-error=maybe-uninitialized)
endif()

# A grouped source is included by another, which GCC takes for a header whose types should not be a file's own.
if(NLSPLIT_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND NLS_WARNINGS -Wno-subobject-linkage)
endif()

# AArch64 has fused multiply-adds from the start, x86-64 has not: without them planning and simulating round alike on both.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)

# So that a module of kernels takes of a library what it calls, not the sources that were compiled with it.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffunction-sections>)

function(nlsplit_grouped target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${NLSPLIT_UNITY} UNITY_BUILD_BATCH_SIZE 8)
endfunction()

# What reads options and files and writes reports is compiled for a short build: at -O3 its JSON and its option parsers take as long as the
# rest.
set(NLS_COLD_OPTIONS $<$<CONFIG:Release>:-O1>)

# nlsplit_library(NAME [COLD] [FOLDERS folders…] [DEPS other modules…] [LIBS foreign libraries…]): all *.cc of this folder and of FOLDERS below
# it, not of other folders.
# DEPS are public (their types appear in our headers), LIBS private: nobody else may include what they bring.
function(nlsplit_library name)
  cmake_parse_arguments(ARG "COLD" "" "FOLDERS;DEPS;LIBS" ${ARGN})
  list(TRANSFORM ARG_FOLDERS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE folders)
  list(TRANSFORM folders APPEND /*.cc)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc ${folders})
  list(TRANSFORM ARG_DEPS PREPEND nls_)
  if(NOT sources)
    add_library(nls_${name} INTERFACE)
    return()
  endif()
  add_library(nls_${name} STATIC ${sources})
  nlsplit_grouped(nls_${name})
  target_include_directories(nls_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_compile_options(nls_${name} PRIVATE ${NLS_WARNINGS} $<$<BOOL:${ARG_COLD}>:${NLS_COLD_OPTIONS}>)
  target_link_libraries(nls_${name} PUBLIC ${ARG_DEPS} PRIVATE fmt::fmt ${ARG_LIBS})
endfunction()

# Tests are compiled for what they say, not for how fast they run: half the time of a build went there. They are checked for addresses
# like the rest, but not for undefined behaviour of their own. Instrumented, they take two fifths less to compile at -O0 than at -O1.
set(NLS_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)
if(CMAKE_CXX_FLAGS MATCHES "sanitize=")
  list(APPEND NLS_TEST_OPTIONS -O0)
endif()
if(CMAKE_CXX_FLAGS MATCHES "sanitize=[a-z,]*undefined")
  list(APPEND NLS_TEST_OPTIONS -fno-sanitize=undefined)
endif()

# nlsplit_test(NAME [COMPUTES] DEPS modules… [LIBS …]): all *_test.cc of this folder, one program. COMPUTES: its own loops take more of a
# run under a sanitizer than compiling them at -O1 does.
function(nlsplit_test name)
  cmake_parse_arguments(ARG "COMPUTES" "" "DEPS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  if(NOT sources)
    return()
  endif()
  list(TRANSFORM ARG_DEPS PREPEND nls_)
  add_executable(test_${name} ${sources} ${CMAKE_SOURCE_DIR}/tests/testing/no_code_cache.cc)
  nlsplit_grouped(test_${name})
  target_include_directories(test_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests ${CMAKE_BINARY_DIR}/generated)
  target_compile_options(test_${name} PRIVATE ${NLS_WARNINGS} ${NLS_TEST_OPTIONS} $<$<BOOL:${ARG_COMPUTES}>:-O1>)
  target_link_libraries(test_${name} PRIVATE ${ARG_DEPS} ${ARG_LIBS} fmt::fmt GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND test_${name})
endfunction()
