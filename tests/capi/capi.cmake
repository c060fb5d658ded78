# What the test of the C interface needs beside its sources: the header as C99, every function by name, the shared library, the programs.
list(TRANSFORM KAIJU_SYMBOLS PREPEND "KAIJU_SYMBOL(" OUTPUT_VARIABLE symbols)
list(TRANSFORM symbols APPEND ")\n")
list(JOIN symbols "" symbols)
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/generated/kaiju_symbols.inc CONTENT "${symbols}")
target_sources(test_capi PRIVATE ${CMAKE_CURRENT_LIST_DIR}/header_c99.c)
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/header_c99.c PROPERTIES COMPILE_OPTIONS "-std=c99;-pedantic-errors;-Wall;-Wextra;-Werror;-I${CMAKE_CURRENT_BINARY_DIR}/generated")
target_compile_definitions(test_capi PRIVATE KAIJU_SHARED_LIBRARY="$<TARGET_FILE:kaiju_shared>")
add_dependencies(test_capi kaiju_shared kaiju-chat host_loop minimal)
