# SPDX-License-Identifier: Apache-2.0
# Writes a C file that holds texts as byte arrays: cmake -DOUTPUT=FILE -DINPUTS=a.cl,b.h -P embed.cmake
string(REPLACE "," ";" inputs "${INPUTS}")
set(arrays "")
set(rows "")
set(count 0)
foreach(input ${inputs})
    get_filename_component(name ${input} NAME_WE)
    file(READ ${input} hex HEX)
    string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
    string(APPEND arrays "static const unsigned char text_${name}[] = {\n${hex}0};\n")
    string(APPEND rows "    {\"${name}\", text_${name}, sizeof text_${name} - 1},\n")
    math(EXPR count "${count} + 1")
endforeach()
file(WRITE ${OUTPUT} "/* Made by embed.cmake from the kernels in backends/opencl. */
#include \"backends/opencl/runtime/cl.h\"

${arrays}
const tx_cl_source tx_cl_sources[] = {
${rows}};
const int32_t tx_cl_source_count = ${count};
")
