# SPDX-License-Identifier: Apache-2.0
"""Compiles the backend's programs for devices of other machines: every case of the conformance suite, and GPT-2
124M.

The compilers are clang for AMD (gfx90a) and NVIDIA (sm_90, assembled by ptxas if installed), clang to SPIR-V for
Intel and for CPUs, and Intel's ocloc if installed (Debian: intel-opencl-icd), to machine code of DG2 and PVC.
GPT-2's programs are also compiled for all other targets (targets.py).

    compile_targets.py KERNEL_TEXTS [--quick PART]    PART is `machines` (AMD and NVIDIA) or `spirv` (SPIR-V and ocloc):
                                                      a sixteenth of the suite's programs for each device, not the same,
                                                      and a quarter of the other targets. TX_TEST_TURN / 4 selects them:
                                                      tools/check runs each part at every fourth commit

All extensions of OpenCL C are off, so that double precision, half arithmetic and sub-groups do not compile. SPIR-V
needs none of their capabilities either, except those of sub-groups for DPAS. Exit status 77: no compiler is
installed."""
import os
import shutil
import sys
import tempfile

from targets import ALWAYS, AMD, DEVICE, NVIDIA, Programs, Tools, parallel, run

INTEL = {"dg2": "arc", "pvc": "intel"}
# Capabilities that OpenCL 1.2 gives to every device with 64-bit integers.
CAPABILITIES = {"Addresses", "Linkage", "Kernel", "Int64", "Int16", "Int8", "Vector16", "Float16Buffer"}
# Capabilities of drivers that have DPAS.
INTEL_CAPABILITIES = {"SubgroupDispatch", "SubgroupBufferBlockIOINTEL"}


def compile_for(tools, target, program, folder):
    """An error's text, or None."""
    out = os.path.join(folder, f"{target}-{id(program)}.s")
    status, text = run(tools.command(target, library=target in NVIDIA) +
                       ["-O1", "-S", "-o", out] + program.options.split() + [program.text])
    if not status:
        text = tools.retarget(program, out)
        status = bool(text)
    if not status and target in NVIDIA and tools.ptxas:
        status, text = tools.assemble(target, out, out + ".cubin")
        os.path.exists(out + ".cubin") and os.remove(out + ".cubin")
    os.path.exists(out) and os.remove(out)
    return text if status else None


def translate(tools, _target, program, folder):
    """To SPIR-V, which is validated where spirv-val is. An error's text, or None."""
    out, dpas = os.path.join(folder, f"spirv-{id(program)}"), "-DATOM=DPAS" in program.options
    # clang does not know options of Intel's compiler.
    options = [word for word in program.options.split() if not word.startswith("-cl-intel-")]
    # Older clang supports the core's vload_half only with the extension; the capabilities show whether the program uses
    # more of it. The translator does not know all that an optimiser may write.
    clang = [f"clang-{tools.translator}"] + ALWAYS + ["-target", "spirv64-unknown-unknown", "-Xclang"]
    status, text = run(clang + ["-cl-ext=-all,+cl_khr_fp16", "-O0", "-emit-llvm", "-c", "-o",
                                out + ".bc"] + options + [program.text])
    if not status:
        status, text = run([f"llvm-spirv-{tools.translator}",
                            "--spirv-max-version=1.2"] + (["--spirv-ext=+SPV_INTEL_subgroups"] if dpas else []) +
                           [out + ".bc", "-o", out + ".spv"])
    if not status and tools.spirv_tools:
        status, text = run(["spirv-val", "--target-env", "opencl2.2", out + ".spv"])
    if not status and tools.spirv_tools:
        words = [line.split() for line in run(["spirv-dis", "--no-header", out + ".spv"])[1].splitlines()]
        needed = {line[1] for line in words
                  if line[:1] == ["OpCapability"]} - CAPABILITIES - (INTEL_CAPABILITIES if dpas else set())
        status, text = bool(needed), "it needs " + " and ".join(sorted(needed))
    for suffix in (".bc", ".spv"):
        os.path.exists(out + suffix) and os.remove(out + suffix)
    return text if status else None


def compile_by_ocloc(tools, target, program, folder):
    """As Intel's driver builds, for DG2 or PVC. An error's text, or None."""
    out = f"{target}-{id(program)}"
    status, text = run([tools.ocloc, "compile", "-q", "-file", program.text, "-device", target, "-output", out,
                        "-output_no_suffix",
                        "-out_dir", folder, "-options", "-cl-std=CL1.2 -w " + program.options])
    made = [name for name in os.listdir(folder) if name.startswith(out)]
    for name in made:
        os.remove(os.path.join(folder, name))
    return text or "no binary" if status or not made else None


PARTS = {"machines": ("cdna2", "nvidia"), "spirv": ("arc", "intel", "cpu")}


def for_machines(device, sets, some, kernel_texts, folder):
    """Pairs (target, program) for AMD and NVIDIA."""
    work = [("gfx90a", p) for p in device["cdna2"]] + [("sm_90", p) for p in device["nvidia"]]
    others = [target for target in AMD + NVIDIA if target not in ("gfx90a", "sm_90")][some]
    programs = {name: Programs(kernel_texts, name, "gpt2", folder).list for name in {DEVICE[t] for t in others}}
    work += [(target, p) for target in others for p in programs[DEVICE[target]]]
    # Texts that no device launches must compile without options.
    on_cpus = sets["cpu"][1] if "cpu" in sets else Programs(kernel_texts, "cpu", "gpt2", folder)
    launched = {p.source for d in [on_cpus, *sets["cdna2"], *sets["nvidia"]] for p in d.list}
    rest = [p for p in sets["cdna2"][0].unlaunched() if p.source not in launched]
    return work + [(target, p) for target in ("gfx90a", "sm_90") for p in rest]


def for_spirv(tools, device):
    """Pairs (target, program) for SPIR-V, and for Intel's devices by its own compiler."""
    work = []
    if tools.translator:
        work += [("SPIR-V", p) for name in PARTS["spirv"] for p in device[name]]
    else:
        print("no clang-N and llvm-spirv-N of one version: nothing is translated to SPIR-V")
    if tools.ocloc:
        work += [(target, p) for target, name in INTEL.items() for p in device[name]]
    else:
        print("no ocloc: nothing is compiled for " + " and ".join(INTEL))
    return work


def main():
    quick = sys.argv[2:3] == ["--quick"]
    if len(sys.argv) != (4 if quick else 2) or quick and sys.argv[3] not in PARTS:
        sys.exit(__doc__)
    parts = sys.argv[3:] or list(PARTS)
    turn = int(os.environ.get("TX_TEST_TURN", "0")) // 4
    step, some = (16, slice(turn % 4, None, 4)) if quick else (1, slice(None))
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(folder, sys.argv[1])
        tools.ocloc = shutil.which("ocloc")
        tools.spirv_tools = run(["sh", "-c", "command -v spirv-val && command -v spirv-dis"])[0] == 0
        sets = {name: [Programs(sys.argv[1], name, what, folder) for what in ("ops", "gpt2")]
                for part in parts for name in PARTS[part]}
        device = {name: list({str(p): p for p in both[0].list[(i + turn) % step::step] + both[1].list}.values())
                  for i, (name, both) in enumerate(sets.items())}
        work = []
        if "machines" in parts:
            work += for_machines(device, sets, some, sys.argv[1], folder)
        if "spirv" in parts:
            work += for_spirv(tools, device)

        def one(item):
            target, program = item
            compile = translate if target == "SPIR-V" else compile_by_ocloc if target in INTEL else compile_for
            return compile(tools, target, program, folder)

        for (target, program), error in zip(work, parallel(one, work)):
            if error:
                failures += 1
                print(f"{program} does not compile for {target}:\n{error}")
        counts = ", ".join(f"{name} {len(programs)}" for name, programs in device.items())
        print(f"clang {tools.clang_version}, ptxas {tools.ptxas_version}, SPIR-V by "
              f"{'llvm-spirv-' + str(tools.translator) if tools.translator else 'nothing'}, "
              f"ocloc {'is' if tools.ocloc else 'is not'} here; programs: {counts}; "
              f"{len(work)} compiled, {failures} failed")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
