# Instruction sets of the CPU backend's files. Everything else is built for the baseline; which set runs is decided when a backend is made.
set(KAIJU_CPU_DIR ${CMAKE_CURRENT_LIST_DIR})
function(kaiju_isa file)
  # GCC 12's own intrinsics trip -Wuninitialized (GCC PR 105593).
  set_source_files_properties(${KAIJU_CPU_DIR}/${file} PROPERTIES COMPILE_OPTIONS "${ARGN};-Wno-uninitialized;$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>")
endfunction()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  kaiju_isa(amx.cpp -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mamx-tile -mamx-int8)
  kaiju_isa(avx512.cpp -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma)
  kaiju_isa(avxvnni.cpp -mavx2 -mfma -mavxvnni)
  kaiju_isa(avx2.cpp -mavx2 -mfma)
  set(KAIJU_ISA_FILES amx.cpp avx512.cpp avxvnni.cpp avx2.cpp)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
  kaiju_isa(neon.cpp -march=armv8.2-a+dotprod)
  kaiju_isa(i8mm.cpp -march=armv8.2-a+dotprod+i8mm)
  set(KAIJU_ISA_FILES i8mm.cpp neon.cpp)
endif()
# Files of other processors' instruction sets: kaiju_objects leaves them out.
set(KAIJU_FOREIGN_ISA_FILES amx.cpp avx512.cpp avxvnni.cpp avx2.cpp i8mm.cpp neon.cpp)
list(REMOVE_ITEM KAIJU_FOREIGN_ISA_FILES ${KAIJU_ISA_FILES})
list(TRANSFORM KAIJU_FOREIGN_ISA_FILES PREPEND ${KAIJU_CPU_DIR}/)
# The portable loops are written for the vectoriser, which GCC 12 leaves mostly idle at -O2.
# Traps are masked (base/float_state.hpp); assuming so changes no value and lets conditionals become minima and maxima.
file(GLOB KAIJU_PORTABLE_SOURCES CONFIGURE_DEPENDS ${KAIJU_CPU_DIR}/portable/*.cpp)
set_source_files_properties(${KAIJU_PORTABLE_SOURCES} PROPERTIES COMPILE_OPTIONS "-O3;-fno-trapping-math")
