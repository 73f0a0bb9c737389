# SPDX-License-Identifier: Apache-2.0
"""Helpers of the checks for devices of other machines: the compilers, the targets, and the backend's programs."""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

SKIPPED = 77
LIBRARY = "/usr/lib/clc/"
AMD = ("gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
NVIDIA = ("sm_70", "sm_90")
# The device of kernel_texts that a target is.
DEVICE = {"gfx906": "gcn", "gfx90a": "cdna2", "gfx942": "cdna3", "gfx1030": "gcn", "gfx1100": "rdna3",
          "gfx1201": "rdna4",
          "sm_70": "volta", "sm_90": "nvidia"}
# native_exp2, which libclc lacks for NVIDIA.
NATIVE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/ptx/native.h")
# Options of program.c, and macros that drivers define.
ALWAYS = ["-x", "cl", "-cl-std=CL1.2", "-D__OPENCL_VERSION__=120", "-Wall", "-Wno-unused-function",
          "-Wno-constant-logical-operand", "-Werror"]


def skip(text):
    print("skipped: " + text)
    sys.exit(SKIPPED)


def run(command):
    """Returns status and output."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def parallel(function, items):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


class Program:
    """One program that the backend builds for a device, and its kernels: {name: [(work-group, bytes in arguments)]}."""

    def __init__(self, text, source, options):
        self.text, self.source, self.options, self.kernels = text, source, options, {}

    def __str__(self):
        return f"kernels/{self.source}.cl {self.options}"


class Programs:
    """The programs that kernel_texts records for `device` (see there)."""

    def __init__(self, kernel_texts, device, what, folder):
        folder = os.path.join(folder, device + "-" + what)
        os.makedirs(folder)
        status, text = run([kernel_texts, device, what, folder])
        if status == SKIPPED:
            skip(text.strip())
        if status:
            sys.exit(f"{device}: {text}")
        self.sources = sorted(name[:-3] for name in os.listdir(folder) if name.endswith(".cl"))
        found = {}
        with open(os.path.join(folder, "launches.tsv")) as file:
            for line in file:
                source, kernel, group, local, options = line.rstrip("\n").split("\t")
                key = (source, options)
                if key not in found:
                    found[key] = Program(os.path.join(folder, source + ".cl"), source, options)
                launches = found[key].kernels.setdefault(kernel, [])
                launches.append((group, int(local)))
        self.list = [found[key] for key in sorted(found)]
        self.folder = folder

    def unlaunched(self):
        """Returns programs that no launch names, without options. Texts without kernels are parts of others."""
        named = {program.source for program in self.list}
        programs = [Program(os.path.join(self.folder, s + ".cl"), s, "") for s in self.sources if s not in named]
        return [program for program in programs if self.has_kernel(program.text)]

    @staticmethod
    def has_kernel(path):
        with open(path) as file:
            return re.search(r"^__kernel", file.read(), flags=re.M) is not None


class Tools:
    """The newest clang that knows all targets and reads libclc; ptxas and llvm-spirv if they are installed."""

    def __init__(self, folder, kernel_texts):
        self.folder, self.kernel_texts = folder, kernel_texts
        self.empty = os.path.join(folder, "empty.cl")
        with open(self.empty, "w") as file:
            file.write("__kernel void empty(__global float *x) { x[get_global_id(0)] = exp(*x); }\n")
        self.clang = next((f"clang-{n}" for n in range(30, 18, -1) if self.complete(f"clang-{n}")), None)
        if not self.clang:
            skip("no clang with amdgcn (gfx1201) and nvptx64, and libclc that it reads (clang-19 libclc-19)")
        self.llvm = self.clang.split("-")[1]
        self.clang_version = re.search(r"version (\d[\w.]*)", run([self.clang, "--version"])[1])[1]
        self.ptxas = shutil.which("ptxas") or shutil.which("/usr/local/cuda/bin/ptxas")
        version = self.ptxas and re.search(r"V(\d[\w.]*)", run([self.ptxas, "--version"])[1])
        self.ptxas_version = version[1] if version else "none"
        # SPIR-V by the translator, which reads the bitcode of its own clang.
        both = [n for n in range(30, 13, -1) if shutil.which(f"clang-{n}") and shutil.which(f"llvm-spirv-{n}")]
        self.translator = both[0] if both else None

    def complete(self, clang):
        if not shutil.which(clang):
            return False
        self.clang = clang
        return all(run(self.command(target) + ["-S", "-o", os.devnull, self.empty])[0] == 0
                   for target in ("gfx1201", "sm_90"))

    def command(self, target, library=True):
        """Returns the command of clang for a target of AMD or NVIDIA, as drivers call it, without extensions."""
        if target in AMD:
            return amd_command(self.clang, target, library)
        machine = ["-target", "nvptx64-unknown-nvidiacl", "-Xclang", "-target-cpu", "-Xclang", target, "-nogpulib",
                   "-include", NATIVE]
        linked = ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", LIBRARY + "nvptx64--nvidiacl.bc"] if library else []
        return [self.clang] + ALWAYS + ["-Xclang", "-cl-ext=-all"] + machine + linked

    def versions(self, target):
        """Returns the versions of the compilers to machine code for the target."""
        return f"clang {self.clang_version}" + ("" if target in AMD else f", ptxas {self.ptxas_version}")

    def assembly(self, target, program, path):
        """The program's assembly in file `path`, built as drivers build. An error's text, or None."""
        status, text = run(self.command(target) + ["-O3", "-S", "-o", path] + program.options.split() + [program.text])
        return text or "failed" if status else self.retarget(program, path)

    def retarget(self, program, path):
        """Changes the assembly in file `path` as the backend does before assembling it. Returns an error, or None."""
        status, text = run([self.kernel_texts, "retarget", path]) if "-DATOM=WGMMA" in program.options else (0, "")
        return text if status else None

    def assemble(self, target, path, out):
        """Runs ptxas. Returns status and the report on registers. If ptxas is too new for the target, it uses the
        oldest known one. It assembles programs with more than 48 KiB of local memory only for sm_90a; drivers accept
        them. Warnings C75xx (serialized wgmma, ignored options) count as failures."""
        for arch in (target, target + "a", "sm_75"):
            status, text = run([self.ptxas, "-v", "-arch=" + arch, "-o", out, path])
            if not re.search("is not defined for option|uses too much shared data|cannot be compiled for architecture",
                             text):
                break
        return status or int("(C75" in text), text


def newest_clang():
    """The newest clang-N that knows all targets of AMD, and N."""
    for n in range(30, 18, -1):
        if shutil.which(f"clang-{n}"):
            return f"clang-{n}", n
    skip("no clang-19 or newer")


def amd_command(clang, target, library=True):
    """Returns the command of clang for a target of AMD, as drivers call it, without extensions."""
    linked = ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", LIBRARY + "amdgcn--amdhsa.bc"] if library else []
    return ([clang] + ALWAYS + ["-Xclang", "-cl-ext=-all", "-target", "amdgcn-unknown-amdhsa", "-mcpu=" + target,
                                "-nogpulib"] + linked)


def table_of(rows):
    """Rows of words as text, in columns."""
    width = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(str(word).ljust(n) for word, n in zip(row, width)).rstrip() for row in rows)
