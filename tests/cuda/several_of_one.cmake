# show_several_gpus(PROGRAM): CUDA's calls there may show one GPU as several (several_of_one.hpp).
function(show_several_gpus program)
  target_sources(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests/cuda/several_of_one.cpp)
  foreach(call GetDeviceCount GetDeviceProperties$<$<VERSION_LESS:${CUDAToolkit_VERSION},13>:_v2> DeviceGetAttribute DeviceGetPCIBusId GetDevice SetDevice DeviceEnablePeerAccess LaunchKernelExC)
    target_link_options(${program} PRIVATE -Wl,--wrap=cuda${call})
  endforeach()
endfunction()
