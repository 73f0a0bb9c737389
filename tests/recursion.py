# SPDX-License-Identifier: Apache-2.0
"""Finds the functions of the library and the programs that can call themselves, directly or through others. Every
circle of calls must contain a function that bounds its depth, so that data do not decide how much of the stack is used.

    recursion.py BUILD OBJDUMP

Calls are read from the object files. A function also calls the functions whose addresses it uses, and, if it calls by
pointers, those of the tables that it uses. Pointers that come from elsewhere are not seen."""
import bisect
import collections
import glob
import os
import re
import subprocess
import sys

# How the depth of calls is bounded, and the functions that do so: FILE:FUNCTION, or the name of an external one, as
# patterns of whole names. A compiler puts some of them into their callers, which are then named, too.
BOUNDED = {
    "the depth of JSON, which tx_json_parse limits to TX_JSON_DEPTH": [
        "tx_component_read", "tx_jinja_from_json", "models/job/configuration.c:walk", "figures.c:print_members",
        "models/options/option_json.c:read_member", "state.c:compare", "request.c:check_keys"],
    "a counter of the depth, which fails beyond a constant": [
        "models/arrow/schema.c:add_(field|children)", "models/options/yaml.c:read_value",
        "models/files/(folder.c:(empty|remove_at)|splits.c:add_texts)", "models/parquet/(metadata.c:link_node|thrift.c:skip)",
        "tx_jinja_(equal|find|evaluate|evaluate_filters|execute)", "models/grammar/syntax.c:parse_(group|alternatives)",
        "models/grammar/schema_text.c:other_key", "models/jinja/text.c:write_(repr|json)",
        "models/jinja/expressions.c:parse_(unary|condition)", "models/jinja/statements.c:parse_(body|if)"],
    "the depth of a schema's columns, which TX_PQ_DEPTH limits": [
        "models/arrow/batch.c:read_column", "models/(arrow|parquet)/rows.c:write_(value|items|members|field)"],
    "halves: each call has at most half of the elements": [
        "tx_jinja_sort", "comm/layout.c:find_nodes", "comm/sum.c:sum_tree", "models/lora/lora_tokens.c:scatter",
        "models/arch/relative.c:by_distance"],
    "one level: the inner call is made with an argument that calls no further": [
        "models/gguf/gguf_export.c:list_tensor", "models/lora/lora_tokens.c:(list_of|tied_lists)",
        "models/generate/lm.c:open_assistant", "tx_lm_(open|free|drop)", "models/options/option_json.c:read_foreign",
        "tx_option_find", "usage.c:print_help", "models/data/rows.c:find_element",
        "backends/opencl/runtime/run.c:(add_times|run_command|run_watched)",
        r"comm/(multi|self).c:\w+_(close|laggard)", "models/jinja/execute.c:assign",
        "(models/gguf/gguf_file.c:)?tx_gguf_close", "models/gguf/gguf_file.c:open_(one|part)",
        "models/tokenizer/tokenizer_open.c:read_folder", "tx_chat_free"],
    "a constant: steps of a tokenizer, finders of added tokens, levels of precedence": [
        "models/tokenizer/cutter.c:(run_step|add_part)", "models/tokenizer/encoder.c:add_(rest|texts)",
        "models/jinja/expressions.c:parse_level"],
    "graphs that TX builds, with a few nodes in a chain": [
        "api/fusion/chunk.c:add_(logits|readers)", "api/parallel/repeat.c:tensor_of"],
    "devices that a model is divided among, one after another": [
        "api/plan/compile.c:create_on_all", "tx_(model|plan)_free", "tx_model_declare(_state)?"],
    "kernels that include others, and the tree of hwloc, which recurses itself": [
        "backends/opencl/runtime/text.c:write_source", "tx_hwloc_node"],
    "no call: the function only names another one or a table, or calls it after a failure": [
        r"models/arch/\w+.c:\w*(defaults\w*|t5)", r"tx_\w+_defaults", "tx_tokens_of_text", "comm.c:run",
        "child.c:exec_child", "comm/leave.c:keep_files_open", "models/grammar/syntax.c:add_complement",
        r"backends/cpu/movement_\w+.c:embedding_rows?",
        "tx_escape"],
}
LINE = re.compile(r"^[0-9a-f]+ <(?P<function>\S+)>:$|"
                  r"^ *[0-9a-f]+:\t(?P<word>\S+)(?: .*?(?:<(?P<target>[^>+]+)>|(?P<pointer>\*|%r\w+$|x\d+$)))?|"
                  r"^\t+[0-9a-f]+: R_\S+\t(?P<symbol>[^\s+-]+)(?P<addend>[+-]0x[0-9a-f]+)?")
CLONE = re.compile(r"\.(isra|part|constprop|cold|lto_priv|llvm)\b.*")


def read(objdump, *arguments):
    return subprocess.run([objdump, *arguments], stdout=subprocess.PIPE, check=True, text=True).stdout


class Object:
    """The symbols of an object file by section and address."""

    def __init__(self, path, table):
        self.path, self.at, self.local, self.functions = path, collections.defaultdict(list), set(), set()
        for line in table:
            found = re.match(r"([0-9a-f]+) (.{7}) (\S+)\t([0-9a-f]+) +(?:\.hidden )?(\S+)$", line)
            if found and found[3] not in ("*UND*", "*COM*", "*ABS*") and "d" not in found[2]:
                self.at[found[3]].append((int(found[1], 16), int(found[4], 16), found[5]))
                if found[2][0] == "l":
                    self.local.add(found[5])
                if "F" in found[2]:
                    self.functions.add(found[5])
        for symbols in self.at.values():
            symbols.sort()

    def find(self, section, address):
        symbols = self.at.get(section, [])
        index = bisect.bisect(symbols, (address, 1 << 62, "")) - 1
        if index >= 0 and address < symbols[index][0] + max(symbols[index][1], 1):
            return self.name(symbols[index][2])
        return None

    def target(self, symbol, addend):
        """The symbol that a relocation refers to, maybe by its section."""
        return self.find(symbol, addend) if symbol in self.at else self.name(symbol)

    def name(self, symbol):
        """Exported functions have one name in all files; others have their file's before it."""
        plain = CLONE.sub("", symbol)
        return f"{self.path}:{plain}" if symbol in self.local else plain


def read_tables(one, text, calls):
    """The functions and tables to which the data of an object file point."""
    section = ""
    for line in text.split("\n"):
        if line.startswith("RELOCATION RECORDS FOR ["):
            section = line[24:-2]
        found = re.match(r"([0-9a-f]{16}) R_\S+ +([^\s+-]+)([+-]0x[0-9a-f]+)?", line)
        if found and not section.startswith((".text", ".eh_frame", ".debug")):
            calls[one.find(section, int(found[1], 16))].add(one.target(found[2], int(found[3] or "0", 16)))


def read_code(one, text, calls, by_pointer):
    """The functions that functions call or name, and the tables that they name."""
    function = word = None
    for line in text.split("\n"):
        found = LINE.match(line)
        if not found:
            continue
        target = None
        if found["function"]:
            function = one.name(found["function"])
        elif found["symbol"]:  # of the instruction before; such addends count from its end
            target = one.target(found["symbol"], int(found["addend"] or "0", 16) + 4)
        else:
            word = found["word"]
            if found["target"] and word[0] in "cjb":
                target = one.name(found["target"])
            elif found["pointer"] and word in ("call", "jmp", "blr", "br", "notrack"):
                by_pointer.add(function)
        if target and not (target == function and word[0] == "j"):  # a jump to its own begin is a loop
            calls[function].add(target)


def read_objects(objdump, paths):
    """The calls {caller: {callee}}; tables count as callers, too."""
    calls, functions, by_pointer = collections.defaultdict(set), set(), set()
    for path in paths:
        text = read(objdump, "-t", "-r", path)
        one = Object(re.sub(r".*\.dir/|\.o(bj)?$", "", path), text.split("\n"))
        functions |= {one.name(symbol) for symbol in one.functions}
        read_tables(one, text, calls)
        read_code(one, read(objdump, "-d", "-r", "--no-show-raw-insn", path), calls, by_pointer)
    for name in functions - by_pointer:  # only calls by pointers lead to the functions of a table
        calls[name] &= functions
    return calls


def circles(calls):
    """The strongly connected components that have a circle (Tarjan's algorithm without recursion)."""
    index, low, stack, on, found, count = {}, {}, [], set(), [], 0
    for root in list(calls):
        work = [(root, iter(sorted(t for t in calls.get(root, ()) if t)))] if root not in index and root else []
        if work:
            index[root] = low[root] = count = count + 1
            stack.append(root)
            on.add(root)
        while work:
            node, rest = work[-1]
            target = next(rest, None)
            if target is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    circle = []
                    while not circle or circle[-1] != node:
                        circle.append(stack.pop())
                        on.discard(circle[-1])
                    if len(circle) > 1 or node in calls.get(node, ()):
                        found.append(circle)
            elif target not in index:
                index[target] = low[target] = count = count + 1
                stack.append(target)
                on.add(target)
                work.append((target, iter(sorted(t for t in calls.get(target, ()) if t))))
            elif target in on:
                low[node] = min(low[node], index[target])
    return found


def main():
    build, objdump = sys.argv[1:]
    paths = [path for pattern in ("CMakeFiles/tx_objects.dir/**/*.o", "tools/**/*.o")
             for path in sorted(glob.glob(os.path.join(build, pattern), recursive=True))]
    calls, wrong = read_objects(objdump, paths), 0
    assert len(calls) > 3000 and "tx_jinja_execute" in calls, f"{objdump} reads no calls of {build}"
    patterns = [re.compile(pattern) for patterns in BOUNDED.values() for pattern in patterns]
    bounded = {name for name in calls if name and any(pattern.fullmatch(name) for pattern in patterns)}
    before = circles(calls)
    assert any({"tx_jinja_evaluate", "tx_jinja_execute"} <= set(circle) for circle in before), "a circle is not found"
    for circle in circles({name: called for name, called in calls.items() if name not in bounded}):
        print(f"FAIL: nothing in tests/recursion.py bounds these calls: {' '.join(sorted(circle))}")
        wrong += 1
    print(f"{len(before)} circles of calls, {len(bounded)} functions that bound them")
    sys.exit(wrong > 0)


main()
