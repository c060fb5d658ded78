# The parts of the Python wheel that are no Python: the shared library, the bundled model and characters, the importer, and the licences of the libraries that wheel.sh puts beside it.
set(KAIJU_PYTHON_LIBRARY "" CACHE FILEPATH "A libkaiju.so for the wheel that is built already; empty: build it")
if(KAIJU_PYTHON_LIBRARY)
  add_custom_target(kaiju_python)
  get_filename_component(library ${KAIJU_PYTHON_LIBRARY} REALPATH)  # a link would be installed as one
else()
  add_custom_target(kaiju_python DEPENDS kaiju_shared)
  set(library $<TARGET_FILE:kaiju_shared>)
endif()
install(PROGRAMS ${library} DESTINATION kaiju/lib RENAME libkaiju.so COMPONENT python)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/chat/characters ${PROJECT_SOURCE_DIR}/examples/chat/model DESTINATION kaiju/data COMPONENT python
        PATTERN samples.py EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/import/ DESTINATION kaiju/importer COMPONENT python
        PATTERN __pycache__ EXCLUDE PATTERN *.cpp EXCLUDE PATTERN *.md EXCLUDE)
foreach(package libfmt-dev libxxhash-dev libsentencepiece-dev libutf8proc-dev libssl-dev)
  install(FILES /usr/share/doc/${package}/copyright DESTINATION kaiju/lib/licenses RENAME ${package} COMPONENT python OPTIONAL)
endforeach()
