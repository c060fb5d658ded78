# Instruction sets of the CPU backend's files. Everything else is built for the baseline; which set runs is decided from cpuid when a backend is made.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  # GCC 12's own intrinsics trip -Wuninitialized (GCC PR 105593).
  file(GLOB KAIJU_AVX512_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*_avx512.cpp)
  set_source_files_properties(${KAIJU_AVX512_SOURCES} PROPERTIES COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vnni;-mfma;-Wno-uninitialized;-Wno-maybe-uninitialized")
endif()
# The portable loops are written for the vectoriser, which GCC 12 leaves mostly idle at -O2.
# Traps are masked (base/float_state.hpp); assuming so changes no value and lets conditionals become minima and maxima.
file(GLOB KAIJU_PORTABLE_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*_portable.cpp)
set_source_files_properties(${KAIJU_PORTABLE_SOURCES} PROPERTIES COMPILE_OPTIONS "-O3;-fno-trapping-math")
