# KAIJU_QUICK_COMPILE: the headers that most tests and programs read are parsed once for all of them.
find_package(CLI11 REQUIRED)
function(parse_headers_once name optimise headers targets)
  add_library(${name} OBJECT ${PROJECT_SOURCE_DIR}/tests/quick_compile.cpp)
  # The flags of the programs that use them, or the compiler does not take them.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIE ${optimise})
  target_link_libraries(${name} PRIVATE kaiju kaiju_flags kaiju_catch_main CLI11::CLI11 fmt::fmt nlohmann_json::nlohmann_json)
  target_precompile_headers(${name} PRIVATE <algorithm> <cmath> <filesystem> <fstream> <map> <memory> <random> <sstream> <string> <thread> <vector> <fmt/format.h> ${headers})
  foreach(target ${targets})
    if(TARGET ${target})
      target_precompile_headers(${target} REUSE_FROM ${name})
    endif()
  endforeach()
endfunction()

# Headers of others alone: what a test needs of the library it has to include itself.
set(of_tests ${PROJECT_SOURCE_DIR}/tests/catch.hpp)
parse_headers_once(kaiju_test_headers -O0 "${of_tests};<nlohmann/json.hpp>"
  "test_arith;test_format;test_sample;test_text;test_capi;test_floors;test_server_cards;test_server_store")
parse_headers_once(kaiju_test_headers_optimised "" "${of_tests}" "test_cpu;test_conformance;test_replay")
parse_headers_once(kaiju_program_headers -O0 "<CLI/CLI.hpp>;<nlohmann/json.hpp>" "kaiju-inspect;kaiju-make;kaiju-score;kaiju-perplexity;kaiju-batch;kaiju-compare;kaiju-encode;kaiju-chat;kaiju-bench")
set_target_properties(kaiju-chat PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
set_target_properties(kaiju-bench PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 7)
if(TARGET kaiju-server)
  set_target_properties(kaiju_server_cards PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
  set_target_properties(kaiju_server PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)  # most of its time is Boost's headers
  target_compile_options(kaiju_server PRIVATE -O0)
endif()
