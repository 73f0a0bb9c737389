# SPDX-License-Identifier: Apache-2.0
# The pages of docs/reference and the tables of BENCHMARKS.md agree with the code and the measurements.
# "cmake --build BUILD --target docs" writes them.
tx_tested_program(reference docs/reference.c)
set(renew docs/reference.py ${bin} ${PROJECT_SOURCE_DIR} ${TX_PROGRAMS})
tx_script(reference "" ${renew})
add_custom_target(docs COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/python.sh ${renew} --write
    WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} DEPENDS reference ${TX_PROGRAMS} VERBATIM)
tx_script(man_pages "" docs/man.sh ${bin} ${PROJECT_SOURCE_DIR} ${TX_PROGRAMS})
tx_script(links "" docs/links.py ${PROJECT_SOURCE_DIR})
