# What is installed: headers, both libraries, the programs with the bundled model, and the files by which find_package and pkg-config find them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(KAIJU_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/kaiju)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kaiju DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/capi/kaiju.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# One export set each, so that who links one library needs nothing of the other's: the components of find_package.
set_target_properties(kaiju_core PROPERTIES EXPORT_NAME core)
set_target_properties(kaiju_shared PROPERTIES EXPORT_NAME shared)
foreach(component_and_target core:kaiju_core static:kaiju shared:kaiju_shared)
  string(REPLACE ":" ";" pair ${component_and_target})
  list(GET pair 0 component)
  list(GET pair 1 target)
  install(TARGETS ${target} EXPORT kaiju-${component} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT kaiju-${component} NAMESPACE kaiju:: DESTINATION ${KAIJU_CMAKE_DIR})
endforeach()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/kaiju-config.cmake.in ${PROJECT_BINARY_DIR}/kaiju-config.cmake INSTALL_DESTINATION ${KAIJU_CMAKE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kaiju-config-version.cmake COMPATIBILITY SameMinorVersion)  # before 1.0 a minor version may break
install(FILES ${PROJECT_BINARY_DIR}/kaiju-config.cmake ${PROJECT_BINARY_DIR}/kaiju-config-version.cmake DESTINATION ${KAIJU_CMAKE_DIR})

# pkg-config: kaiju is the C interface in the shared library, kaiju-static the whole. The prefix is told from the file's own place.
file(RELATIVE_PATH KAIJU_PREFIX_FROM_PC ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
foreach(name kaiju kaiju-static)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

if(KAIJU_BUILD_PROGRAMS)
  install(TARGETS kaiju-chat kaiju-inspect kaiju-make kaiju-score kaiju-perplexity kaiju-bench)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/chat/characters ${PROJECT_SOURCE_DIR}/examples/chat/model DESTINATION ${CMAKE_INSTALL_DATADIR}/kaiju
          PATTERN samples.py EXCLUDE)
endif()
