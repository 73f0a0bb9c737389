# SPDX-License-Identifier: Apache-2.0
#
# No list of option names outside the tables: code that means an option names its member (TX_JOB_AT), so that a renamed
# or removed option does not compile. Looks for names as whole strings. Programs name options as their users do.
#   cmake -DROOT=<source tree> -P option_names.cmake
cmake_minimum_required(VERSION 3.25)

# "file|name": a word that means something else there.
set(allowed
    "models/job/agree.c|device"            # a member of the description of a run
    "models/job/configuration.c|fsdp"      # the path of the words of --fsdp
    "models/job/listen.c|learning_rate"    # a key of the log
    "models/job/optimizer.c|weight_decay"  # a key of --optim_args
    "models/job/device.c|bf16"             # words of a note
    "models/job/device.c|fp16"
    "models/job/course.c|device"           # a member of the description of a run
    "models/job/ranks.c|bf16"              # a word of a note
    "models/job/results.c|device"          # keys of the model card
    "models/job/results.c|adapter"
    "models/job/optimizer.c|alpha" # a setting of --optim_args
    "models/job/resume.c|group_by_length") # a value of --train_sampling_strategy

file(READ "${ROOT}/models/options/options.def" table)
string(REGEX MATCHALL "\n(FLAG|WHOLE|REAL|TEXT|OPTIONAL|CHOICE|LIST|OPTION)\\((FLAG, bool, )?[a-z_0-9]+," rows "${table}")
list(LENGTH rows count)
if(count LESS 140)
    message(FATAL_ERROR "models/options/options.def has ${count} options: its rows are read wrongly")
endif()
string(REGEX REPLACE "\n[A-Z]+\\((FLAG, bool, )?([a-z_0-9]+)," "\\2" names "${rows}")

# The names that are strings in a text.
function(find_names text result)
    set(found "")
    string(REGEX MATCHALL "\"[a-z_0-9]+\"" words "${text}")
    list(REMOVE_DUPLICATES words)
    foreach(word IN LISTS words)
        string(REPLACE "\"" "" word "${word}")
        if(word IN_LIST names)
            list(APPEND found "${word}")
        endif()
    endforeach()
    set(${result} "${found}" PARENT_SCOPE)
endfunction()

find_names("static const char *const own[] = {\"output_dir\", \"other\"}" planted)
if(NOT planted STREQUAL "output_dir")
    message(FATAL_ERROR "the check does not see a planted name (\"${planted}\")")
endif()
file(GLOB files RELATIVE "${ROOT}" "${ROOT}/models/job/*.[ch]")
list(REMOVE_ITEM files models/job/settings.c models/job/settings.h) # the table itself
foreach(file IN LISTS files)
    file(READ "${ROOT}/${file}" text)
    find_names("${text}" found)
    foreach(name IN LISTS found)
        if(NOT "${file}|${name}" IN_LIST allowed)
            message(SEND_ERROR "${file} has the option name \"${name}\" as a string: use TX_JOB_AT or TX_JOB_NAME")
        endif()
    endforeach()
endforeach()
