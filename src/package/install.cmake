# What is installed: headers, both libraries, the programs (KAIJU_BUILD_PROGRAMS, which want CLI11 and libedit), the bundled model, the Python package, the
# docs, and the files by which find_package and pkg-config find the libraries. cpack -G DEB makes a Debian package of it.
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

# The docs, and at the same relative places what their links lead to: the test installed_docs finds a link that leads nowhere.
foreach(path LICENSE README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md Dockerfile cuda/Dockerfile capi/kaiju.h capi/python/README.md
        examples/minimal.cpp examples/host_loop.c examples/yes_or_no.c examples/chat/model/README.md examples/train/README.md examples/server/README.md examples/server/grafana.json examples/server/alerts.yml tests/server/alerts_test.yml
        examples/tools/compare.cpp tests/cuda/tiles.cpp tests/golden/reproduce.py tests/golden/reproduce_2.py tests/import/against_transformers.py
        tests/import/refusals.py tests/import/gemma.py tests/import/gemma_quantizer.py tests/import/w8a8.py examples/train/eval/safety_adversarial.jsonl examples/train/eval/safety_intense.jsonl)
  get_filename_component(folder ${path} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${path} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
endforeach()
foreach(folder docs examples/structured examples/import examples/fleet examples/gate tests/packaging)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder} USE_SOURCE_PERMISSIONS PATTERN __pycache__ EXCLUDE)
endforeach()
foreach(name name_from nearest number_from program standard_streams text_input)  # those that examples/structured includes
  install(FILES ${PROJECT_SOURCE_DIR}/examples/tools/${name}.hpp DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples/tools)
endforeach()
file(RELATIVE_PATH KAIJU_INCLUDE_FROM_DOCS ${CMAKE_INSTALL_FULL_DOCDIR} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
cmake_path(APPEND link "\${CMAKE_INSTALL_PREFIX}" ${CMAKE_INSTALL_DOCDIR} include)  # the prefix that is given when it is installed
install(CODE "file(CREATE_LINK ${KAIJU_INCLUDE_FROM_DOCS} \"\$ENV{DESTDIR}${link}\" SYMBOLIC)")

# The Python package finds the library beside it. Debian's Python looks in /usr/lib/python3/dist-packages; for another prefix, add the folder to PYTHONPATH.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/capi/python/kaiju DESTINATION lib/python3/dist-packages PATTERN __pycache__ EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/import/ DESTINATION lib/python3/dist-packages/kaiju/importer
        PATTERN __pycache__ EXCLUDE PATTERN *.cpp EXCLUDE PATTERN *.md EXCLUDE)

# cpack -G DEB: one package with everything above.
set(CPACK_PACKAGE_NAME kaiju)
set(CPACK_PACKAGE_VENDOR "the authors of kaiju")
set(CPACK_PACKAGE_CONTACT "the authors of kaiju <kaiju@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "int8 language models inside your program, with the same bits everywhere")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA "${CMAKE_CURRENT_LIST_DIR}/triggers")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "g++, cmake, libfmt-dev, libxxhash-dev, libsentencepiece-dev, libutf8proc-dev, libssl-dev")
include(CPack)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/chat/characters ${PROJECT_SOURCE_DIR}/examples/chat/model DESTINATION ${CMAKE_INSTALL_DATADIR}/kaiju
        PATTERN samples.py EXCLUDE)
if(KAIJU_BUILD_PROGRAMS)
  install(TARGETS kaiju-chat kaiju-inspect kaiju-make kaiju-head kaiju-canary kaiju-score kaiju-perplexity kaiju-bench)
  if(TARGET kaiju-server)
    install(TARGETS kaiju-server kaiju-replay)
    # The unit names the program, so it is written when the prefix is known. CPack installs below a folder of its own, which is no part of that.
    install(CODE "
      set(unit \"\${CMAKE_INSTALL_PREFIX}/lib/systemd/system/kaiju-server.service\")
      string(REGEX REPLACE \"^.*/_CPack_Packages/[^/]+/[^/]+/[^/]+\" \"\" prefix \"\${CMAKE_INSTALL_PREFIX}\")
      set(BINDIR \"\${prefix}/${CMAKE_INSTALL_BINDIR}\")
      set(DOCDIR \"\${prefix}/${CMAKE_INSTALL_DOCDIR}\")
      message(STATUS \"Installing: \$ENV{DESTDIR}\${unit}\")
      configure_file(\"${PROJECT_SOURCE_DIR}/examples/server/kaiju-server.service\" \"\$ENV{DESTDIR}\${unit}\" @ONLY)")
  endif()
endif()
