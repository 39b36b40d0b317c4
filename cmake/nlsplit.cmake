# One folder of src/ is one library; one folder of tests/ is one test program.

# GCC 12 sees overlaps in `"x" + string` that are not there (its bug 105651), and guesses about what std::variant leaves uninitialized:
# the first is off, the second only warns, because it has also found a real dangling reference here.
set(NLS_WARNINGS -Wall -Wextra -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND NLS_WARNINGS -Wno-restrict -Wno-error=maybe-uninitialized)
endif()

# AArch64 has fused multiply-adds from the start, x86-64 has not: without them planning and simulating round alike on both.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)

# nlsplit_library(NAME [DEPS other rooms…] [LIBS foreign libraries…]): all *.cc of this folder, not of the folders below it.
# DEPS are public (their types appear in our headers), LIBS private: nobody else may include what they bring.
function(nlsplit_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  list(TRANSFORM ARG_DEPS PREPEND nls_)
  if(NOT sources)
    add_library(nls_${name} INTERFACE)
    return()
  endif()
  add_library(nls_${name} STATIC ${sources})
  target_include_directories(nls_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_compile_options(nls_${name} PRIVATE ${NLS_WARNINGS})
  target_link_libraries(nls_${name} PUBLIC ${ARG_DEPS} PRIVATE fmt::fmt ${ARG_LIBS})
endfunction()

# Tests are compiled for what they say, not for how fast they run: half the time of a build went there. They are checked for addresses
# like the rest, but not for undefined behaviour of their own.
set(NLS_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)
if(CMAKE_CXX_FLAGS MATCHES "sanitize=[a-z,]*undefined")
  list(APPEND NLS_TEST_OPTIONS -fno-sanitize=undefined)
endif()

# nlsplit_test(NAME DEPS rooms… [LIBS …]): all *_test.cc of this folder, one program, one ctest entry per TEST.
function(nlsplit_test name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  if(NOT sources)
    return()
  endif()
  list(TRANSFORM ARG_DEPS PREPEND nls_)
  add_executable(test_${name} ${sources})
  target_include_directories(test_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests ${CMAKE_BINARY_DIR}/generated)
  target_compile_options(test_${name} PRIVATE ${NLS_WARNINGS} ${NLS_TEST_OPTIONS})
  target_link_libraries(test_${name} PRIVATE ${ARG_DEPS} ${ARG_LIBS} fmt::fmt GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND test_${name})
endfunction()
