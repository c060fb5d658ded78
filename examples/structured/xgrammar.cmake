# The target xgrammar, from the sources in XGRAMMAR_SOURCE that fetch.sh brought.
set(XGRAMMAR_SOURCE "" CACHE PATH "The unpacked source package of xgrammar (examples/structured/fetch.sh)")
if(NOT EXISTS ${XGRAMMAR_SOURCE}/CMakeLists.txt)
  message(FATAL_ERROR "XGRAMMAR_SOURCE is \"${XGRAMMAR_SOURCE}\", which has no sources of xgrammar: run fetch.sh")
endif()
file(WRITE ${CMAKE_BINARY_DIR}/config.cmake "set(XGRAMMAR_BUILD_PYTHON_BINDINGS OFF)\n")  # xgrammar reads that file first
set(own_flags "${CMAKE_CXX_FLAGS}")
string(APPEND CMAKE_CXX_FLAGS " -fno-lto -Wno-error")  # after xgrammar's own: newer compilers have more warnings
if(KAIJU_QUICK_COMPILE)
  string(APPEND CMAKE_CXX_FLAGS " -O0 -g0")
endif()
add_subdirectory(${XGRAMMAR_SOURCE} ${CMAKE_BINARY_DIR}/xgrammar EXCLUDE_FROM_ALL)
set(CMAKE_CXX_FLAGS "${own_flags}")
if(KAIJU_QUICK_COMPILE)
  set_target_properties(xgrammar PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 9)
endif()
