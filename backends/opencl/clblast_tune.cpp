/* SPDX-License-Identifier: Apache-2.0
 * CLBlast's tuner has no C API: these are the two calls that TX makes of it. */
#include "backends/opencl/clblast_tune.h"

#include <clblast.h>

#include <cstdio>
#include <exception>
#include <string>
#include <unordered_map>

namespace
{
/* Writes "NAME=VALUE NAME=VALUE ..", with the parameter of the routine that is in use; -1 where `room` is too small. */
int write(cl_device_id device, std::unordered_map<std::string, size_t> parameters, char *text, size_t room)
{
    std::unordered_map<std::string, size_t> routine;
    const auto code = clblast::RetrieveParameters(device, "GemmRoutine", clblast::Precision::kSingle, routine);
    if (code != clblast::StatusCode::kSuccess)
        return static_cast<int>(code);
    parameters.insert(routine.begin(), routine.end());
    std::string joined;
    for (const auto &p : parameters)
        joined += (joined.empty() ? "" : " ") + p.first + "=" + std::to_string(p.second);
    if (joined.size() >= room)
        return -1;
    std::snprintf(text, room, "%s", joined.c_str());
    return 0;
}
} // namespace

extern "C" int tx_clblast_tune(cl_device_id device, cl_command_queue queue, size_t size, double fraction, char *text,
                               size_t room)
{
    try {
        std::unordered_map<std::string, size_t> parameters;
        const auto code = clblast::TuneXgemm<float>(&queue, size, size, size, fraction, parameters);
        return code == clblast::StatusCode::kSuccess ? write(device, parameters, text, room) : static_cast<int>(code);
    } catch (const std::exception &) {
        return -1;
    }
}

extern "C" int tx_clblast_present(cl_device_id device, char *text, size_t room)
{
    try {
        std::unordered_map<std::string, size_t> parameters;
        const auto code = clblast::RetrieveParameters(device, "Xgemm", clblast::Precision::kSingle, parameters);
        return code == clblast::StatusCode::kSuccess ? write(device, parameters, text, room) : static_cast<int>(code);
    } catch (const std::exception &) {
        return -1;
    }
}
