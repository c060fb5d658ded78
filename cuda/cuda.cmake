# The CUDA backend: objects that become part of the library. CMAKE_CUDA_ARCHITECTURES chooses what is compiled; PTX of the oldest serves everything newer that is not listed.
# 9.0 wants its own set, 90a: the kernels for Hopper are in no other.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80;86-real;89-real;90a-real" CACHE STRING "GPU architectures the CUDA kernels are compiled for" FORCE)
endif()
if("${CMAKE_CUDA_ARCHITECTURES}" MATCHES "(^|;)(90(-real|-virtual)?|native|all|all-major)(;|$)" AND NOT "${CMAKE_CUDA_ARCHITECTURES}" MATCHES "90a")
  message(WARNING "CMAKE_CUDA_ARCHITECTURES is ${CMAKE_CUDA_ARCHITECTURES}, without 90a-real: H100 and H200, whose kernels are in that alone, would be served by the slower ones for every chip")
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know how to ask nvcc for C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
endif()

# Of the kernels for Hopper, only that set has more than empty bodies: they are compiled for it alone. With KAIJU_CUDA_SM90A they are so whatever the
# list says, which makes a library that no Hopper can use, but that compiles every kernel once (tests/run.sh).
set(KAIJU_CUDA_HOPPER_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES})
if("${CMAKE_CUDA_ARCHITECTURES}" MATCHES "90a" OR KAIJU_CUDA_SM90A)
  set(KAIJU_CUDA_HOPPER_ARCHITECTURES 90a-real)
endif()
file(GLOB_RECURSE KAIJU_CUDA_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp ${CMAKE_CURRENT_LIST_DIR}/*.cu)
set(KAIJU_CUDA_HOPPER_SOURCES ${KAIJU_CUDA_SOURCES})
list(FILTER KAIJU_CUDA_HOPPER_SOURCES INCLUDE REGEX "kernels/sm90_[a-z0-9_]*[.]cu$")
list(REMOVE_ITEM KAIJU_CUDA_SOURCES ${KAIJU_CUDA_HOPPER_SOURCES})
add_library(kaiju_cuda OBJECT ${KAIJU_CUDA_SOURCES})
add_library(kaiju_cuda_hopper OBJECT ${KAIJU_CUDA_HOPPER_SOURCES})
set_target_properties(kaiju_cuda_hopper PROPERTIES CUDA_ARCHITECTURES "${KAIJU_CUDA_HOPPER_ARCHITECTURES}")
foreach(target kaiju_cuda kaiju_cuda_hopper)
  set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_EXTENSIONS OFF)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_LIST_DIR})
  target_link_libraries(${target} PRIVATE kaiju_core kaiju_flags fmt::fmt CUDA::cudart_static)
  # The contract allows no contraction; nothing of CUDA's fast mathematics either.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false -Xcompiler=-ffp-contract=off,-Wall,-Wextra>)
  if("${KAIJU_CUDA_HOPPER_ARCHITECTURES}" MATCHES "90a")
    target_compile_definitions(${target} PRIVATE KAIJU_CUDA_SM90A=1)  # the kernels sm90_* are compiled in
  endif()
endforeach()

# Chips without tiles of their own multiply by cuBLASLt where a process finds it: its header is wanted here, and nothing when linking.
find_path(KAIJU_CUBLASLT_INCLUDE_DIR cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
mark_as_advanced(KAIJU_CUBLASLT_INCLUDE_DIR)
if(KAIJU_CUBLASLT AND KAIJU_CUBLASLT_INCLUDE_DIR)
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/launch/cublaslt.cpp PROPERTIES COMPILE_DEFINITIONS KAIJU_CUBLASLT=1)
endif()

target_include_directories(kaiju_objects PRIVATE ${CMAKE_CURRENT_LIST_DIR})
target_compile_definitions(kaiju_objects PRIVATE KAIJU_CUDA=1)
list(APPEND KAIJU_OBJECTS $<TARGET_OBJECTS:kaiju_cuda> $<TARGET_OBJECTS:kaiju_cuda_hopper>)
list(APPEND KAIJU_LIBRARIES CUDA::cudart_static)
set(KAIJU_CUDA_PC_LIBS " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt -ldl")
