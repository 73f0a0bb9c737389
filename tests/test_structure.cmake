# SPDX-License-Identifier: Apache-2.0
#
# The shape of the source tree: which folder may include which, the one home of each third-party header, the length
# of files and their licence line. First the check itself is tried on trees that break one rule each.
#
#   cmake -DROOT=<source tree> -DEXTENSIONS=<comma-separated names> -DWORK=<scratch folder> -P test_structure.cmake
cmake_minimum_required(VERSION 3.25)

set(folders api backends comm models tools tests)
set(max_lines 500)
# Headers that the build writes.
set(generated tests/opencl/matrix_emulated.h)

# "files|allowed includes": the first row whose left side matches the file's path applies.
string(REPLACE "," "|" extensions "${EXTENSIONS}")
# The core includes of an extension its tables, and the header EXTENSION/EXTENSION.h of the functions that they name.
set(extension_rows "api/(${extensions})/([a-z_]+\\.def|(${extensions})\\.h)")
# The installed headers. Programs see nothing else of the library, so that a user can write them.
set(installed "((api/tx[a-z_]*|models/tx_[a-z]+|comm/topology/tx_[a-z]+)\\.h|models/tx_[a-z]+\\.def)")
set(public "api/(tx[a-z_]*\\.h|ops\\.def|optimizers\\.def)|${extension_rows}")
set(basics "${public}|api/graph/op\\.h")
string(APPEND basics "|api/base/(arithmetic|blocks|grow|half|hash|low_rank|file|clock|cores|memory_left|needs")
string(APPEND basics "|number|thread|environment|drivers|gpus|rehearse)\\.h")
set(contracts "backends/(backend|rng|rope|nf4|q8|dynamic_map|experts|scan|adafactor)\\.h|comm/comm\\.h")
set(backend_basics "${basics}|backends/(backend|rng|rope|nf4|q8|dynamic_map|experts|scan|adafactor)\\.h")
set(opencl_core "backends/opencl/[a-z]+\\.def")
foreach(folder attention gemm ops runtime)
    string(APPEND opencl_core "|backends/opencl/${folder}/")
endforeach()
set(backend_rows "[a-z0-9_]+/[a-z0-9_]+\\.(def|cl)$") # of an extension
set(comm_public "comm/(comm|watch|report|topology/(tx_topology|placement))\\.h")
set(directions
    "^api/base/|^((${public}|backends/(nf4|q8|dynamic_map)\\.h)$|api/base/)"
    "^api/model/|^((${public})$|${contracts}$|api/(base|model)/)"
    "^api/graph/|^((${public})$|${contracts}$|api/(base|model|graph)/)"
    "^api/passes/|^((${public})$|${contracts}$|api/(base|model|graph|parallel|passes)/)"
    "^api/plan/|^((${public})$|${contracts}$|api/)"
    "^api/(${extensions})/|^((${public})$|${contracts}$|api/)"
    "^api/left_out\\.c$|^api/"
    "^api/|^(${public})$"
    "^backends/[^/]+$|^(${basics}|backends/[^/]+)$"
    "^backends/tune/|^(${basics}|backends/backend\\.h|backends/tune/.*)$"
    "^backends/cpu/(${extensions})/|^((${backend_basics})$|backends/cpu/)"
    "^backends/cpu/|^((${backend_basics})$|backends/cpu/[a-z0-9_]+\\.|backends/cpu/${backend_rows})"
    # These kernels are the C code of the encoders, compiled for the device.
    "^backends/opencl/packed/[a-z_]+\\.cl$|^api/base/block_[a-z_]+\\.[ch]$"
    "^backends/opencl/(${extensions})/|^((${backend_basics})$|backends/opencl/|backends/tune/)"
    "^backends/opencl/|^((${backend_basics})$|${opencl_core}|backends/opencl/${backend_rows})"
    "^comm/topology/|^((${basics})$|comm/topology/)"
    "^comm/|^((${basics})$|comm/)"
    "^models/|^(api/|models/|comm/(comm|watch|topology/(tx_topology|placement))\\.h$)"
    # Exceptions: txbench, txtune and txcheck measure internals and use the conformance suite of tests/ops; txlaunch
    # reads the reports of the ranks.
    "^tools/bench/|^(api/|models/|tools/(cli|process|bench)/|comm/comm\\.h$|tests/ops/conformance\\.h$)"
    "^tools/launch/|^((${installed}|comm/report\\.h)$|tools/(cli|process|launch)/)"
    "^tools/research/|^(api/|models/|tools/(cli|process|bench|research)/|${comm_public}$|tests/)"
    "^tools/search/|^(${installed}$|tools/(cli|process|train|search)/)"
    "^tools/convert/|^(${installed}$|tools/(cli|convert)/)"
    "^tools/generate/|^(${installed}$|tools/(cli|generate)/)"
    # tx_ptx records the launches of a backend.
    "^tools/ptx/|^(api/|models/|backends/|tools/ptx/)"
    "^tools/memory/|^(${installed}$|tools/(cli|memory)/)"
    "^tools/process/|^(${installed}$|tools/(cli|process)/)"
    "^tools/serve/|^(${installed}$|tools/(cli|serve)/)"
    "^tools/text/|^(${installed}$|tools/(cli|text)/)"
    "^tools/topology/|^(${installed}$|tools/(cli|topology)/)"
    "^tools/train/|^(${installed}$|tools/(cli|train)/)"
    "^tools/cli/|^(${installed}$|tools/cli/)"
    "^tests/|^(api/|models/|tools/|tests/|backends/|comm/)")

# "header|the only files that include it".
set(homes
    "^CL/|^(backends/opencl/|comm/topology/opencl)"
    "^clblast|^backends/opencl/"
    "^(dnnl|oneapi/)|^backends/cpu/"
    "^omp\\.h$|^backends/cpu/"
    "^immintrin\\.h$|^backends/cpu/((random|nf4|blocks|dots)\\.h|amx/gemm_amx\\.c)$"
    "^cpuid\\.h$|^backends/cpu/gemm_dnnl\\.c$"
    "^mpi\\.h$|^comm/mpi\\.c$"
    "^hwloc|^comm/topology/hwloc"
    "^jansson\\.h$|^api/base/json\\.c$"
    "^(pcre2|utf8proc)|^models/tokenizer/"
    "^microhttpd\\.h$|^tools/(serve/http|train/follow)\\.c$"
    "^yaml|^models/options/yaml\\.c$"
    "^openssl/|^models/files/digest\\.c$"
    "^(zlib|zstd|snappy|lz4)|^(models/(parquet/(pages|unpack)|files/(packed|dcp_write))|backends/opencl/shipped/pack|tests/opencl/test_shipped)\\.c$"
    "^malloc\\.h$|^tools/serve/txserve\\.c$"
    "^cmocka\\.h$|^(tools/research/)?tests/"
    "^tx(_[a-z]+)?\\.h$|^tests/install/")

set(standard assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg
    stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype
    dirent dlfcn fcntl glob grp iconv ifaddrs libgen link net/if netdb netinet/in poll pthread sched semaphore spawn strings
    sys/epoll sys/file sys/ioctl sys/mman sys/prctl sys/random sys/resource sys/socket sys/stat sys/statvfs sys/syscall
    sys/time sys/types sys/uio sys/un sys/utsname sys/wait
    termios unistd wordexp)

# The row of `table` that matches `subject`: its right side, or nothing.
function(look_up table subject result)
    set(${result} "" PARENT_SCOPE)
    foreach(row IN LISTS ${table})
        # The separator is the first "|" outside parentheses.
        string(REGEX MATCH "^((\\([^)]*\\)|[^|(])*)\\|(.*)$" parts "${row}")
        set(left "${CMAKE_MATCH_1}")
        set(right "${CMAKE_MATCH_3}")
        if(subject MATCHES "${left}")
            set(${result} "${right}" PARENT_SCOPE)
            return()
        endif()
    endforeach()
endfunction()

# Sets the description of a forbidden include of `file`, or "".
function(check_include root file line problem)
    set(${problem} "" PARENT_SCOPE)
    if(line MATCHES "include[ \t]*\"([^\"]+)\"")
        set(name "${CMAKE_MATCH_1}")
        cmake_path(GET file PARENT_PATH folder)
        set(target "")
        foreach(at "" "${folder}/" "api/" "models/" "comm/topology/")
            if(NOT target AND ("${at}${name}" IN_LIST generated OR EXISTS "${root}/${at}${name}"))
                cmake_path(SET target NORMALIZE "${at}${name}")
            endif()
        endforeach()
        look_up(directions "${file}" allowed)
        if(NOT target)
            set(${problem} "${file} includes \"${name}\", which is not in the tree" PARENT_SCOPE)
        elseif(NOT target MATCHES "${allowed}")
            set(${problem} "${file} must not include ${target}" PARENT_SCOPE)
        endif()
    elseif(line MATCHES "include[ \t]*<([^>]+)>")
        set(name "${CMAKE_MATCH_1}")
        string(REGEX REPLACE "\\.h$" "" stem "${name}")
        look_up(homes "${name}" home)
        if(home AND NOT file MATCHES "${home}")
            set(${problem} "${file} includes <${name}>, whose only home is ${home}" PARENT_SCOPE)
        elseif(NOT home AND NOT stem IN_LIST standard)
            set(${problem} "${file} includes <${name}>, which has no home in tests/test_structure.cmake" PARENT_SCOPE)
        endif()
    endif()
endfunction()

# Functions that read or print by the locale of the host program.
set(depends_on_locale "strto(d|f|ld)|atof|vs?n?f?printf|strftime|setlocale|uselocale")

# All that is wrong with the tree at `root`, a list.
function(check_tree root problems)
    set(found "")
    foreach(folder IN LISTS folders)
        file(GLOB_RECURSE files RELATIVE "${root}" "${root}/${folder}/*")
        list(FILTER files EXCLUDE REGEX "__pycache__|^tests/fuzz/seeds/")
        list(FILTER files EXCLUDE REGEX "\\.(jinja|jsonl?|txt|in|bin|safetensors|supp|md)$")
        list(SORT files)
        foreach(file IN LISTS files)
            file(READ "${root}/${file}" text)
            string(REGEX MATCHALL "\n" lines "${text}")
            list(LENGTH lines count)
            if(count GREATER max_lines AND NOT file MATCHES "\\.tsv$") # those are recorded
                list(APPEND found "${file} has ${count} lines, more than ${max_lines}")
            endif()
            if(NOT text MATCHES "SPDX-License-Identifier: Apache-2\\.0")
                list(APPEND found "${file} has no line SPDX-License-Identifier: Apache-2.0")
            endif()
            if(file MATCHES "^(models|tools)/" AND NOT file MATCHES "^models/arch/" AND text MATCHES "tx_gpt2")
                list(APPEND found "${file} names an architecture")
            endif()
            if(file MATCHES "^models/" AND NOT file MATCHES "^models/(task|job)/" AND text MATCHES "tx_causal_lm")
                list(APPEND found "${file} names a task")
            endif()
            if(file MATCHES "^(api|backends|comm|models)/" AND NOT file STREQUAL "api/base/number.c"
               AND text MATCHES "[^a-z_]((${depends_on_locale})\\(|(sn|f)?printf\\([^;]*[^%]%[-+#0-9.*]*l?[efgaEFGA])")
                list(APPEND found "${file} follows the host's locale, use api/base/number.h: ${CMAKE_MATCH_1}")
            endif()
            # At the top level of a script a name can collide with a property of the window, and nothing is drawn.
            string(REGEX MATCHALL "<script>\n" scripts "${text}")
            string(REGEX MATCHALL "<script>\n\\(\\(\\) => {\n" wrapped "${text}")
            if(NOT "${scripts}" STREQUAL "" AND file MATCHES "\\.html$")
                list(LENGTH scripts all)
                list(LENGTH wrapped good)
                if(NOT all EQUAL good)
                    list(APPEND found "${file} has a script outside a function: (() => { ... })()")
                endif()
            endif()
            file(STRINGS "${root}/${file}" includes REGEX "^[ \t]*#[ \t]*include[ \t]*[<\"]")
            foreach(line IN LISTS includes)
                check_include("${root}" "${file}" "${line}" problem)
                if(problem)
                    list(APPEND found "${problem}")
                endif()
            endforeach()
        endforeach()
    endforeach()
    set(${problems} "${found}" PARENT_SCOPE)
endfunction()

# A small tree that keeps the rules, plus one file with one line.
function(expect file line pattern)
    file(REMOVE_RECURSE "${WORK}")
    foreach(header api/tx.h api/graph/graph.h api/plan/plan.h api/ops.def backends/backend.h backends/cpu/cpu.h
            backends/opencl/runtime/cl.h comm/comm.h comm/common.h comm/report.h models/gpt2.h models/tx_train.h
            comm/topology/tx_topology.h tools/cli/options.h tools/research/a.h tests/helper.h
            backends/opencl/matrix/a.h tests/ops/conformance.h)
        file(WRITE "${WORK}/${header}" "/* SPDX-License-Identifier: Apache-2.0 */\n#include <stdio.h>\n")
    endforeach()
    file(WRITE "${WORK}/${file}" "/* SPDX-License-Identifier: Apache-2.0 */\n${line}\n")
    if(pattern MATCHES "SPDX")
        file(WRITE "${WORK}/${file}" "${line}\n")
    endif()
    check_tree("${WORK}" problems)
    if(pattern STREQUAL "" AND problems)
        message(FATAL_ERROR "the check refuses what is allowed, ${file}: ${line}: ${problems}")
    elseif(NOT problems MATCHES "${pattern}")
        message(FATAL_ERROR "the check does not see ${file}: ${line} (expected \"${pattern}\", got \"${problems}\")")
    endif()
endfunction()

expect(api/plan/a.c "#include \"backends/backend.h\"" "")
expect(api/plan/a.c "#include \"api/graph/graph.h\"" "")
expect(api/graph/a.c "#include \"api/plan/plan.h\"" "must not include api/plan/plan.h")
expect(api/base/a.c "#include \"backends/backend.h\"" "must not include backends/backend.h")
expect(api/plan/a.c "#include \"backends/cpu/cpu.h\"" "must not include backends/cpu/cpu.h")
expect(api/plan/a.c "#  include \"../../models/gpt2.h\"" "must not include models/gpt2.h")
expect(api/plan/a.c "#include \"comm/common.h\"" "must not include comm/common.h")
expect(api/plan/a.c "#include \"tests/helper.h\"" "must not include tests/helper.h")
expect(backends/cpu/a.c "#include \"tx.h\"" "")
expect(backends/cpu/a.c "#include \"backends/opencl/runtime/cl.h\"" "must not include backends/opencl/runtime/cl.h")
expect(backends/opencl/a.c "#include \"backends/cpu/cpu.h\"" "must not include backends/cpu/cpu.h")
expect(backends/opencl/gemm/a.c "#include \"backends/opencl/matrix/a.h\"" "must not include backends/opencl/matrix/a.h")
expect(backends/opencl/matrix/a.c "#include \"backends/opencl/matrix/a.h\"" "")
expect(backends/opencl/a.c "#include \"models/gpt2.h\"" "must not include models/gpt2.h")
expect(backends/cpu/a.c "#include \"api/graph/graph.h\"" "must not include api/graph/graph.h")
expect(backends/registry.c "#include \"backends/cpu/cpu.h\"" "must not include backends/cpu/cpu.h")
expect(comm/a.c "#include \"backends/backend.h\"" "must not include backends/backend.h")
expect(models/a.c "#include \"comm/comm.h\"" "")
expect(models/a.c "#include \"comm/common.h\"" "must not include comm/common.h")
expect(models/a.c "#include \"tools/cli/options.h\"" "must not include tools/cli/options.h")
expect(tools/train/a.c "#include \"tx_train.h\"" "")
expect(tools/topology/a.c "#include \"tx_topology.h\"" "")
expect(tools/train/a.c "#include \"models/gpt2.h\"" "must not include models/gpt2.h")
expect(tools/generate/a.c "#include \"api/graph/graph.h\"" "must not include api/graph/graph.h")
expect(tools/topology/a.c "#include \"comm/comm.h\"" "must not include comm/comm.h")
expect(tools/launch/a.c "#include \"comm/report.h\"" "")
expect(tools/search/a.c "#include \"comm/report.h\"" "must not include comm/report.h")
expect(tools/bench/a.c "#include \"tests/ops/conformance.h\"" "")
expect(tools/bench/a.c "#include \"tests/helper.h\"" "must not include tests/helper.h")
expect(tools/bench/a.c "#include \"gone.h\"" "not in the tree")
expect(tools/bench/a.c "#include \"tools/research/a.h\"" "must not include tools/research/a.h")
expect(tools/research/a.c "#include \"tools/research/a.h\"" "")
expect(backends/opencl/a.c "#include <CL/cl.h>" "")
expect(api/a.c "#include <CL/cl.h>" "only home")
expect(backends/cpu/a.c "#include <clblast_c.h>" "only home")
expect(api/a.c "#include <oneapi/dnnl/dnnl.h>" "only home")
expect(models/a.c "#include <omp.h>" "only home")
expect(comm/self.c "#include <mpi.h>" "only home")
expect(comm/mpi.c "#include <mpi.h>" "")
expect(comm/self.c "#include <hwloc.h>" "only home")
expect(models/a.c "#include <jansson.h>" "only home")
expect(tools/bench/a.c "#include <cmocka.h>" "only home")
expect(tools/bench/a.c "#include <curl/curl.h>" "no home")
expect(tools/bench/a.c "extern int tx_gpt2_a\;" "names an architecture")
expect(models/arch/a.c "extern int tx_gpt2_a\;" "")
expect(models/train/a.c "extern int tx_causal_lm\;" "names a task")
expect(models/task/a.c "extern int tx_causal_lm\;" "")
expect(models/a.c "double a = strtod(text, NULL)\;" "the host's locale.*strtod")
expect(comm/a.c "snprintf(text, size, \"%s\"\n\"%.3f s\", a, b)\;" "the host's locale")
expect(comm/a.c "snprintf(text, size, \"%s%d%% free\", a, b)\;" "")
expect(tools/bench/a.c "printf(\"%f\", a)\;" "")
expect(tools/bench/a.html "<script>\nconst top = 1" "a script outside a function")
expect(tools/bench/a.html "<script>\n(() => {\nconst top = 1" "")
expect(tools/bench/a.c "int a\;" "SPDX")
string(REPEAT "\n" ${max_lines} long)
expect(tools/bench/a.c "${long}" "has 502 lines")
file(REMOVE_RECURSE "${WORK}")

check_tree("${ROOT}" problems)
foreach(problem IN LISTS problems)
    message(SEND_ERROR "${problem}")
endforeach()
