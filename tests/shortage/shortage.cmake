# Calls that tests/shortage can make fail: see wrapped.cpp.
target_sources(test_shortage PRIVATE ${CMAKE_CURRENT_LIST_DIR}/../heap.cpp)
foreach(call calloc XXH3_createState open stat fstat readlink mmap pread fallocate ftruncate pwrite
     fsync close rename
    _ZN13sentencepiece22SentencePieceProcessor23LoadFromSerializedProtoESt17basic_string_viewIcSt11char_traitsIcEE
    _ZNK13sentencepiece22SentencePieceProcessor6EncodeESt17basic_string_viewIcSt11char_traitsIcEEPSt6vectorIiSaIiEE)
  target_link_options(test_shortage PRIVATE -Wl,--wrap=${call})
endforeach()
