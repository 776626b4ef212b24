"""The peer of bench/gemm.ts: times torch's matrix products on request.

Reads a JSON object per line. {"threads", "batch", "m", "n", "k", "form"} makes the operands (form
"NT": the second one stored as its transpose) and answers with the seconds of one call; {"repeats"}
runs that many calls and answers with the seconds of one.
"""

import json
import sys
import time

import torch


def operand(rows, columns, transposed, batch):
    if transposed:
        return torch.randn(batch, columns, rows).transpose(1, 2)
    return torch.randn(batch, rows, columns)


def seconds(call, repeats):
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def product(request):
    torch.set_num_threads(request["threads"])
    batch, m, n, k = (request[name] for name in ("batch", "m", "n", "k"))
    a = operand(m, k, request["form"][0] == "T", batch)
    b = operand(k, n, request["form"][1] == "T", batch)
    c = torch.empty(batch, m, n)
    if batch == 1:
        return lambda: torch.mm(a[0], b[0], out=c[0])
    return lambda: torch.bmm(a, b, out=c)


call = None
for line in sys.stdin:
    request = json.loads(line)
    if "repeats" not in request:
        call = product(request)
        call()
    print(json.dumps({"seconds": seconds(call, request.get("repeats", 1))}), flush=True)
