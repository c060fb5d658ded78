# Every way of linking, from an install tree and from the sources; the headers by themselves. All have the label packaging.
set(folder ${CMAKE_CURRENT_LIST_DIR})
set(prefix ${CMAKE_CURRENT_BINARY_DIR}/installed)

add_test(NAME headers_alone_and_twice COMMAND sh ${folder}/headers.sh ${CMAKE_CXX_COMPILER} ${PROJECT_SOURCE_DIR}/include)
add_test(NAME c_header_in_every_standard COMMAND sh ${folder}/c_header.sh ${PROJECT_SOURCE_DIR}/capi gcc g++ clang clang++)
set_tests_properties(headers_alone_and_twice c_header_in_every_standard PROPERTIES LABELS packaging)

# A sanitizer in the library would have to be in its hosts too; these tests are not about that.
if(NOT KAIJU_INSTALL OR KAIJU_ASAN OR KAIJU_TSAN)
  return()
endif()
add_test(NAME install COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --prefix ${prefix})
set_tests_properties(install PROPERTIES FIXTURES_SETUP installed)
add_test(NAME install_pkg_config COMMAND sh ${folder}/pkg_config.sh ${prefix} ${folder} ${CMAKE_CURRENT_BINARY_DIR}/pkg_config ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER})
set_tests_properties(install_pkg_config PROPERTIES FIXTURES_REQUIRED installed)

add_test(NAME install_wrong_component COMMAND ${CMAKE_COMMAND} -S ${folder}/core -B ${CMAKE_CURRENT_BINARY_DIR}/wrong_component -G ${CMAKE_GENERATOR}
  -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DKAIJU_COMPONENT=statik)
set_tests_properties(install_wrong_component PROPERTIES FIXTURES_REQUIRED installed
  PASS_REGULAR_EXPRESSION "no component \"statik\":[ \n]+the[ \n]+components[ \n]+are[ \n]+core,[ \n]+static[ \n]+and[ \n]+shared")
add_test(NAME installed_docs COMMAND ${KAIJU_PYTHON} ${PROJECT_SOURCE_DIR}/tests/docs/links.py ${prefix}/${CMAKE_INSTALL_DOCDIR})
set_tests_properties(installed_docs PROPERTIES FIXTURES_REQUIRED installed)

if(TARGET kaiju-server)
  add_test(NAME server_unit COMMAND sh ${PROJECT_SOURCE_DIR}/tests/server/unit.sh ${prefix})
  set_tests_properties(server_unit PROPERTIES FIXTURES_REQUIRED installed SKIP_RETURN_CODE 77 LABELS packaging)
endif()

# Configures, builds and runs a project of packaging/.
function(add_consumer name project program)
  add_test(NAME ${name} COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${folder}/${project} ${CMAKE_CURRENT_BINARY_DIR}/${name} --build-generator ${CMAKE_GENERATOR}
    --build-options -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER} -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} ${ARGN} --test-command ${program})
endfunction()
foreach(project c cpp core)
  add_consumer(install_find_package_${project} ${project} consumer)
  set_tests_properties(install_find_package_${project} PROPERTIES FIXTURES_REQUIRED installed)
endforeach()
# A few large files instead of many small ones, which is sooner built.
add_consumer(add_subdirectory subdirectory consumer_kaiju -DKAIJU_SOURCE_DIR=${PROJECT_SOURCE_DIR} -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=16)
set_tests_properties(install install_pkg_config install_find_package_c install_find_package_cpp install_find_package_core add_subdirectory
                     install_wrong_component installed_docs PROPERTIES LABELS packaging)
