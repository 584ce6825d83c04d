"""Decodes the data of a page by its description: one JSON object with threads and samples."""

import base64
import json
import re
import sys
import zlib

page = sys.stdin.read()


def element(name):
    text = re.search(rf'id="{name}">([A-Za-z0-9+/=]*)<', page).group(1)
    return zlib.decompress(base64.b64decode(text, validate=True))


data = element("profile")
size = int.from_bytes(data[:4], "little")
header = json.loads(data[4 : 4 + size])
at = 4 + size
columns = {}
for column in header["columns"]:
    end = at + column["bytes"]
    numbers, previous = [], 0
    while at < end:
        number, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if column["is_signed"]:
            previous += number >> 1 if number & 1 == 0 else -((number + 1) >> 1)
            number = previous
        numbers.append(number)
    assert (at, len(numbers)) == (end, column["count"]), column
    columns[column["name"]] = numbers
assert at == len(data)

stacks, path = [[]], []
callees, numbers, new = {}, [], iter(columns["callee.function"])
columns["node.function"] = []
for depth, number in zip(columns["node.depth"], columns["node.callee"]):
    del numbers[depth - 1 :]
    of_caller = callees.setdefault(numbers[-1] if numbers else None, [])
    if number == 0:
        of_caller.append(next(new))
    numbers.append(of_caller[number - 1])
    columns["node.function"].append(numbers[-1])
assert next(new, None) is None
lines = columns.get("node.line", [0] * len(columns["node.depth"]))
nodes = zip(columns["node.depth"], columns["node.function"], columns["node.flags"], lines)
for depth, function, flags, line in nodes:
    del path[depth - 1 :]
    it = header["functions"][function]
    mark = ["", "_[g]", "_[s]"][flags & 3]
    inlined = " inlined" if flags & 4 else ""
    place = f" {header['files'][it['file']]}:{it['line'] + line - 1}" if line > 0 else ""
    path.append(f"{it['kind']} {header['modules'][it['module']]} {it['name']}{mark}{inlined}{place}")
    assert len(path) == depth
    stacks.append(path[:])

owners = [n for n, count in enumerate(columns["thread.samples"]) for _ in range(count)]
rows = zip(
    owners,
    *(columns["sample." + name] for name in ["node", "time", "weight", "cpu", "state"]),
    strict=True,
)
samples = [
    {
        "thread": header["threads"][thread],
        "stack": stacks[node],
        "micros": time,
        "weight": weight,
        "cpu": cpu,
        "end": header["ends"][state & 31]["reason"],
        "is_off": state & 32 != 0,
        "wait": header["waits"][(state >> 6) - 1] if state >> 6 else None,
    }
    for thread, node, time, weight, cpu, state in rows
]
del header["columns"], header["ends"]
print(json.dumps({"header": header, "samples": samples, "code": json.loads(element("code"))}))
