# SPDX-License-Identifier: Apache-2.0
# Writes a C file with a text as an array of bytes:
#   cmake -DINPUT=FILE -DHEADER=FILE.h -DNAME=NAME -DOUTPUT=FILE.c -P embed.cmake
# -DPARTS=FILE,FILE... inserts each of these files where INPUT has its name without folders between two @.
file(READ ${INPUT} hex HEX)
string(REPLACE "," ";" parts "${PARTS}")
foreach(part ${parts})
    file(READ ${part} text HEX)
    cmake_path(GET part FILENAME name)
    string(HEX "@${name}@" place)
    string(REPLACE "${place}" "${text}" hex "${hex}")
endforeach()
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
file(WRITE ${OUTPUT} "/* Made by embed.cmake from ${INPUT}. */
#include \"${HEADER}\"

const unsigned char ${NAME}[] = {
${hex}0};
")
