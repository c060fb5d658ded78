# CUDA calls that calls.cpp counts and makes fail.
add_executable(test_cuda_faults)
foreach(part calls faults host intake steps sums)
  target_sources(test_cuda_faults PRIVATE ${CMAKE_CURRENT_LIST_DIR}/${part}.cpp)
endforeach()
target_link_libraries(test_cuda_faults PRIVATE kaiju kaiju_flags kaiju_catch_main fmt::fmt nlohmann_json::nlohmann_json PkgConfig::XXHASH Threads::Threads CUDA::cudart_static)
foreach(call Malloc MallocHost Memset MemsetAsync Memcpy MemcpyAsync MemcpyBatchAsync FuncSetAttribute StreamSynchronize DeviceSynchronize
    StreamCreateWithFlags StreamWaitEvent EventCreateWithFlags EventRecord EventSynchronize GraphInstantiate GraphUpload GraphLaunch
    Free FreeHost StreamDestroy EventDestroy GraphExecDestroy)
  target_link_options(test_cuda_faults PRIVATE -Wl,--wrap=cuda${call})
endforeach()
show_several_gpus(test_cuda_faults)
target_link_options(test_cuda_faults PRIVATE -Wl,--wrap=dlsym)
add_test(NAME cuda_faults COMMAND test_cuda_faults)
add_test(NAME cuda_faults_of_an_older_chip COMMAND test_cuda_faults)
set_tests_properties(cuda_faults_of_an_older_chip PROPERTIES ENVIRONMENT KAIJU_TEST_CAPABILITY=80)
add_test(NAME cuda_fault_of_a_kernel COMMAND test_cuda_faults "[.process]")
