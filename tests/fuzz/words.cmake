# Writes ir.dict and onnx.dict, libFuzzer's dictionaries, and words.inc for fuzz_node.c, from the tables of operators
# and the sources of the handlers.
file(GLOB handlers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/frontend/ops_*.c)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${handlers} ${CMAKE_SOURCE_DIR}/frontend/opset.def
                                       ${CMAKE_SOURCE_DIR}/ir/ops.def)

# (Rows are no list: their brackets would join its elements.)
file(READ ${CMAKE_SOURCE_DIR}/ir/ops.def table)
string(REGEX MATCHALL "\nSN_OP\\([A-Z_0-9]+, \"[a-z_0-9]+\"" rows "${table}")
set(text "\"sennit 1 graph\"\n\"f32[\"\n\"func @\"\n\"return \"\n")
foreach(row ${rows})
  string(REGEX REPLACE ".*, " "" word "${row}")
  string(APPEND text "${word}\n")
endforeach()
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/ir.dict "${text}")

# A string field of a protocol buffer: tag, length, text.
function(append_field tag word)
  string(LENGTH "${word}" length)
  math(EXPR length "${length}" OUTPUT_FORMAT HEXADECIMAL)
  string(REGEX REPLACE "^0x(.)$" "0\\1" length "${length}")
  string(REPLACE "0x" "" length "${length}")
  set(onnx "${onnx}\"\\x${tag}\\x${length}${word}\"\n" PARENT_SCOPE)
endfunction()

set(onnx "")
file(STRINGS ${CMAKE_SOURCE_DIR}/frontend/opset.def rows REGEX "^SN_ONNX_OP\\(")
foreach(row ${rows})
  string(REGEX REPLACE "^SN_ONNX_OP\\(([A-Za-z0-9]+),.*" "\\1" word "${row}")
  append_field(22 ${word}) # NodeProto.op_type
endforeach()

# FUZZ_WORD(file, word, reader): `reader` is the function that a handler gives the word to, "" for other constants.
set(text "")
foreach(path ${handlers})
  get_filename_component(file ${path} NAME)
  file(STRINGS ${path} lines REGEX "^void sn_handle_[a-z0-9_]+\\(")
  foreach(line ${lines})
    string(REGEX REPLACE "^void sn_handle_([a-z0-9_]+)\\(.*" "\\1" name "${line}")
    string(APPEND text "FUZZ_HANDLER(\"${file}\", \"${name}\")\n")
  endforeach()
  file(READ ${path} source)
  string(REGEX MATCHALL "sn_node_[a-z_]+\\([a-z>-]+, \"[A-Za-z_]+\"" reads "${source}")
  set(seen "")
  foreach(read ${reads})
    string(REGEX REPLACE "^(sn_node_[a-z_]+)\\([a-z>-]+, (\"[A-Za-z_]+\")$" "FUZZ_WORD(\"${file}\", \\2, \"\\1\")" row
                         "${read}")
    string(REGEX REPLACE ".*\"([A-Za-z_]+)\"$" "\\1" word "${read}")
    string(APPEND text "${row}\n")
    list(APPEND seen ${word})
    append_field(0a ${word}) # AttributeProto.name
  endforeach()
  string(REGEX MATCHALL "\"[A-Za-z][A-Za-z_0-9]+\"" constants "${source}")
  list(REMOVE_DUPLICATES constants)
  foreach(constant ${constants})
    string(REPLACE "\"" "" word "${constant}")
    if(NOT word IN_LIST seen)
      string(APPEND text "FUZZ_WORD(\"${file}\", \"${word}\", \"\")\n")
    endif()
  endforeach()
endforeach()
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/onnx.dict "${onnx}")
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/words.inc "${text}")
