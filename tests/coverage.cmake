# The target coverage: runs the tests of loader and cache, prints which of their lines were executed, and fails below 95%.
find_program(KAIJU_GCOVR gcovr REQUIRED)
add_custom_target(coverage
  COMMAND find ${PROJECT_BINARY_DIR} -name "*.gcda" -delete
  COMMAND test_format "~[sweep]"  # minutes at -O0, and no line of their own
  COMMAND test_engine
  COMMAND test_shortage
  COMMAND cache_model_check 20000 10 5
  COMMAND ${KAIJU_GCOVR} --root ${PROJECT_SOURCE_DIR} --filter src/format/ --filter include/kaiju/format/ --filter include/kaiju/cache/ --fail-under-line 95 ${PROJECT_BINARY_DIR}
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM USES_TERMINAL)
