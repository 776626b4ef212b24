"""The peer of bench/block.ts: times a decoder block in torch, with torch.utils.checkpoint.

Reads a JSON object per line. {"threads", "model", "length", "hidden", "heads", "keyHeads", "inner"}
makes the block and answers with the seconds of one forward pass, recomputation and backward pass;
{"repeats"} runs that many and answers with the seconds of one.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def parameter(*shape):
    return (torch.randn(*shape) * 0.02).requires_grad_()


def heads_of(x, batch, length, heads):
    return x.view(batch, length, heads, -1).transpose(1, 2)


def rows_of(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


class Gpt2Block:
    """transformers' GPT2Block without dropout; Conv1D weights are [in, out]."""

    def __init__(self, hidden, heads, inner, **_):
        self.heads = heads
        self.hidden = hidden
        self.norms = [(parameter(hidden), parameter(hidden)) for _ in range(2)]
        self.qkv = (parameter(3 * hidden), parameter(hidden, 3 * hidden))
        self.out = (parameter(hidden), parameter(hidden, hidden))
        self.up = (parameter(inner), parameter(hidden, inner))
        self.down = (parameter(hidden), parameter(inner, hidden))
        self.parameters = [
            tensor
            for pair in (*self.norms, self.qkv, self.out, self.up, self.down)
            for tensor in pair
        ]

    def norm(self, x, index):
        weight, bias = self.norms[index]
        return F.layer_norm(x, (self.hidden,), weight, bias, 1e-5)

    @staticmethod
    def conv1d(x, pair):
        bias, weight = pair
        rows = torch.addmm(bias, x.reshape(-1, x.shape[-1]), weight)
        return rows.view(*x.shape[:-1], -1)

    def __call__(self, x):
        batch, length, _ = x.shape
        joined = self.conv1d(self.norm(x, 0), self.qkv)
        q, k, v = (heads_of(part, batch, length, self.heads) for part in joined.split(self.hidden, 2))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.conv1d(rows_of(attended), self.out)
        inner = F.gelu(self.conv1d(self.norm(x, 1), self.up), approximate="tanh")
        return x + self.conv1d(inner, self.down)


class LlamaBlock:
    """transformers' LlamaDecoderLayer; Linear weights are [out, in]."""

    def __init__(self, hidden, heads, keyHeads, inner, length, **_):
        width = hidden // heads
        self.heads, self.key_heads, self.hidden = heads, keyHeads, hidden
        self.norms = [parameter(hidden) for _ in range(2)]
        self.q = parameter(hidden, hidden)
        self.k = parameter(keyHeads * width, hidden)
        self.v = parameter(keyHeads * width, hidden)
        self.o = parameter(hidden, hidden)
        self.gate, self.up = (parameter(inner, hidden) for _ in range(2))
        self.down = parameter(hidden, inner)
        self.parameters = [*self.norms, self.q, self.k, self.v, self.o, self.gate, self.up, self.down]
        frequencies = 10000.0 ** (-torch.arange(0, width, 2) / width)
        angles = torch.outer(torch.arange(length).float(), frequencies)
        self.cos = torch.cat((angles, angles), -1).cos()
        self.sin = torch.cat((angles, angles), -1).sin()

    def rotate(self, x):
        first, second = x.chunk(2, -1)
        return x * self.cos + torch.cat((-second, first), -1) * self.sin

    def __call__(self, x):
        batch, length, _ = x.shape
        h = F.rms_norm(x, (self.hidden,), self.norms[0], 1e-5)
        q = self.rotate(heads_of(F.linear(h, self.q), batch, length, self.heads))
        k = self.rotate(heads_of(F.linear(h, self.k), batch, length, self.key_heads))
        v = heads_of(F.linear(h, self.v), batch, length, self.key_heads)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + F.linear(rows_of(attended), self.o)
        h = F.rms_norm(x, (self.hidden,), self.norms[1], 1e-5)
        return x + F.linear(F.silu(F.linear(h, self.gate)) * F.linear(h, self.up), self.down)


def make(request):
    torch.set_num_threads(request["threads"])
    kind = {"gpt2": Gpt2Block, "llama": LlamaBlock}[request["model"]]
    block = kind(**{key: value for key, value in request.items() if key not in ("threads", "model")})
    x = torch.randn(1, request["length"], request["hidden"], requires_grad=True)
    dy = torch.randn_like(x)

    def run():
        for tensor in (x, *block.parameters):
            tensor.grad = None
        checkpoint(block, x, use_reentrant=False).backward(dy)

    return run


run = None
for line in sys.stdin:
    request = json.loads(line)
    if "repeats" not in request:
        run = make(request)
        run()
    repeats = request.get("repeats", 1)
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    print(json.dumps({"seconds": (time.perf_counter() - start) / repeats}), flush=True)
