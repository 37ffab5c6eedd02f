# What each library may see: a layer links the ones before it, and only the libraries it is built on.
set(proto ${CMAKE_SOURCE_DIR}/frontend/onnx.proto)
if(EXISTS ${proto})
  set(generated ${CMAKE_BINARY_DIR}/generated)
  add_custom_command(
    OUTPUT ${generated}/onnx.pb-c.c ${generated}/onnx.pb-c.h
    COMMAND ${CMAKE_COMMAND} -E make_directory ${generated}
    COMMAND ${PROTOC_C} --c_out=${generated} --proto_path=${CMAKE_SOURCE_DIR}/frontend ${proto}
    DEPENDS ${proto})
  add_library(onnx_proto STATIC ${generated}/onnx.pb-c.c ${generated}/onnx.pb-c.h)
  target_include_directories(onnx_proto SYSTEM PUBLIC ${generated})
  target_compile_options(onnx_proto PRIVATE -w)
  target_link_libraries(onnx_proto PUBLIC PkgConfig::PROTOBUF_C)
  target_link_libraries(frontend PUBLIC onnx_proto)
endif()

target_link_libraries(base PUBLIC m)
target_link_libraries(ir PUBLIC base PkgConfig::JANSSON)
target_link_libraries(frontend PUBLIC ir)
target_link_libraries(passes PUBLIC ir PkgConfig::JANSSON ZLIB::ZLIB ${CMAKE_DL_LIBS})
target_include_directories(backend SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS})
target_link_libraries(backend PUBLIC passes ir PkgConfig::JANSSON ${CMAKE_DL_LIBS} PRIVATE LLVM)
target_include_directories(runtime SYSTEM PRIVATE ${DNNL_INCLUDE})
target_link_libraries(runtime PUBLIC base PkgConfig::JANSSON OpenMP::OpenMP_C Threads::Threads ${CMAKE_DL_LIBS}
                              PRIVATE ${DNNL_LIBRARY} MPI::MPI_C)

# Inner loops over short vectors, which -O2 leaves scalar.
set_source_files_properties(passes/partition/intra/eliminate.c passes/partition/intra/messages.c runtime/comm/host.c PROPERTIES COMPILE_OPTIONS -O3)
