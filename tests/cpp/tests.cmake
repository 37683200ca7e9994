# The C++ tests: core_tests and cuda_emulation_tests, and each again as NAME_sanitized.
find_package(GTest REQUIRED)

# Code with address and undefined-behaviour sanitizers, for `make sanitize`. Most of that stage is the
# compiler's time. The largest file takes 3.6 s; in brackets, what it takes with the other choice:
# * -Og: the tests are short (-O3: 12.3 s).
# * Line numbers alone in debug information (-g: 5.0 s).
# * No checks for null, which end the process anyway (3.9 s).
# * No checks of a pointer's range: the address sanitizer finds what is read or written (4.1 s).
# * The address sanitizer's checks are calls, not inline code (4.1 s).
# * The oldest instruction set alone, and nothing that must be inlined for one (19.1 s). Rows of halves
#   are then converted in plain C++, whose reads are checked; for the others they are converted in
#   inline assembly, whose operands no sanitizer sees.
add_library(sanitizers INTERFACE)
target_compile_options(sanitizers INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all
  -fno-sanitize=null,object-size,pointer-overflow --param=asan-instrumentation-with-call-threshold=0
  -Og -g1 -ffp-contract=off -fno-math-errno)
target_compile_definitions(sanitizers INTERFACE FE_NATIVE_SIMD)
target_link_options(sanitizers INTERFACE -fsanitize=address,undefined)

# NAME_sanitized, of the same sources and with the same uses.
function(add_sanitized name)
  get_target_property(srcs ${name} SOURCES)
  add_library(${name}_sanitized STATIC EXCLUDE_FROM_ALL ${srcs})
  foreach(property INCLUDE_DIRECTORIES COMPILE_OPTIONS)
    get_target_property(value ${name} INTERFACE_${property})
    if(value)
      set_target_properties(${name}_sanitized PROPERTIES ${property} "${value}"
        INTERFACE_${property} "${value}")
    endif()
  endforeach()
  target_link_libraries(${name}_sanitized PRIVATE sanitizers ${ARGN})
  compile_together(${name}_sanitized 8)
endfunction()
add_sanitized(core)
add_sanitized(cuda_emulation core_sanitized)
if(TARGET cold_store_rocksdb)
  add_cold_store_rocksdb(cold_store_rocksdb_sanitized core_sanitized)
endif()

# TARGET of test sources with LIBRARIES, and TARGET_sanitized with their sanitized twins. The tests
# are compiled once: what is sanitized is the code that they test, which reads and writes memory
# that the sanitizer's malloc gives them.
function(add_tests target srcs libraries)
  add_library(${target}_objects OBJECT ${srcs})
  target_link_libraries(${target}_objects PRIVATE ${libraries} GTest::gtest)
  # Optimized less than core, tests compile in less than half the time, and take about as long to run.
  # Core's headers have arithmetic, which is not contracted here either.
  target_compile_options(${target}_objects PRIVATE -Og -ffp-contract=off)
  target_precompile_headers(${target}_objects PRIVATE tests/cpp/core_testing.h)
  compile_together(${target}_objects 8)
  add_executable(${target} $<TARGET_OBJECTS:${target}_objects>)
  target_link_libraries(${target} PRIVATE ${libraries} GTest::gtest_main)

  add_executable(${target}_sanitized EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${target}_objects>)
  list(TRANSFORM libraries APPEND _sanitized)
  target_link_libraries(${target}_sanitized PRIVATE ${libraries} sanitizers GTest::gtest_main)
  # The whole of the sanitized libraries, and before the tests: these hold inline functions of core's
  # headers as well, and the linker takes the first of each. What no test calls is dropped, and with
  # it what it calls in turn: of a GPU's tables, kernels that core_tests has not.
  list(TRANSFORM libraries REPLACE "(.+)" "$<TARGET_FILE:\\1>")
  target_link_options(${target}_sanitized PRIVATE -Wl,--whole-archive ${libraries}
    -Wl,--no-whole-archive -Wl,--gc-sections)

  set_target_properties(${target} ${target}_sanitized PROPERTIES LINKER_LANGUAGE CXX)
  if(TARGET cold_store_rocksdb)
    add_dependencies(${target} cold_store_rocksdb)
    add_dependencies(${target}_sanitized cold_store_rocksdb_sanitized)
    target_compile_definitions(${target}_objects PRIVATE
      FE_ROCKSDB_LIBRARY="$<TARGET_FILE:cold_store_rocksdb>"
      FE_ROCKSDB_LIBRARY_SANITIZED="$<TARGET_FILE:cold_store_rocksdb_sanitized>")
  endif()
endfunction()

file(GLOB test_srcs CONFIGURE_DEPENDS tests/cpp/*_test.cc)
file(GLOB cuda_test_srcs CONFIGURE_DEPENDS tests/cpp/cuda_*_test.cc)
list(REMOVE_ITEM test_srcs ${cuda_test_srcs})
add_tests(core_tests "${test_srcs}" core)
add_tests(cuda_emulation_tests "${cuda_test_srcs}" "cuda_emulation;core")
