"""What one GPU does under PyTorch: the measurements from which rates by shape are fitted, and training steps to try them on.

usage: torch_sweep.py OUT.csv [SECONDS]     SECONDS: time limit (240); each part has a share of it, and rows are kept as they come
columns: part, name, a, b, c, d, e, dtype, median_us, spread, bytes
  product    name: form (nt: forward, nn: gradient of the input, tn: gradient of the weight); a, b, c: m, n, k
  attention  name: forward | backward, causal or full; a..e: sequences, heads, key-value heads, positions, features of a head
  memory     name: operation; a, b: rows, features
  issue      name: what is issued; a: how many in a row; median_us: of one
  clock      name: what runs; a: SM MHz, b: power in W; median_us: of one call
  train      name: mode; a..e: width, blocks, sequences, positions, features of the feed-forward part; bytes: most memory
Times of the GPU by events (median; spread: half the distance of the quartiles as a share of it); issue and train by the host's clock.
"""
import csv
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

BF16, FP16, FP32, FP8 = torch.bfloat16, torch.float16, torch.float32, getattr(torch, "float8_e4m3fn", None)
NAMES = {BF16: "bf16", FP16: "fp16", FP32: "fp32", FP8: "fp8"}
VOCABULARY = 32000


class Out:
    def __init__(self, path):
        self.file = open(path, "w", newline="")
        self.rows = csv.writer(self.file, lineterminator="\n")
        self.rows.writerow("part name a b c d e dtype median_us spread bytes".split())

    def row(self, part, name, dims, dtype, times, nbytes=""):
        times = sorted(times)
        n = len(times)
        median = times[n // 2]
        spread = (times[(3 * n) // 4] - times[n // 4]) / 2 / median if n > 3 else ""
        dims = (list(dims) + [""] * 5)[:5]
        self.rows.writerow([part, name, *dims, dtype, f"{median:.3f}", f"{spread:.4f}" if spread != "" else "", nbytes])
        self.file.flush()


def timed(run, flops_s=0.0, least=8, most=40, budget_us=20000):
    """Times of `run` in us by events, after warming up; what fits the cache is measured in it."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    run()
    end.record()
    end.synchronize()
    once = begin.elapsed_time(end) * 1e3
    n = int(min(most, max(least, budget_us / max(once, 1))))
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(n)]
    for b, e in marks:
        b.record()
        run()
        e.record()
    torch.cuda.synchronize()
    return [b.elapsed_time(e) * 1e3 for b, e in marks]


def operand(form, left, rows, columns, dtype):
    """rows x columns as the product of a form finds it in memory."""
    turned = (form == "nt" and not left) or (form == "tn" and left)
    x = torch.randn((columns, rows) if turned else (rows, columns), device="cuda", dtype=torch.float32).to(dtype)
    return x.t() if turned else x


def products(out, until):
    shapes = []
    for width in (1024, 2048, 4096, 8192):
        for tokens in (1024, 4096, 16384):
            for n, k in ((3 * width, width), (width, width), (4 * width, width), (width, 4 * width)):
                shapes.append(("nt", tokens, n, k))
    for width in (2048, 4096, 8192):  # the two gradients
        for n, k in ((width, width), (4 * width, width), (width, 4 * width)):
            shapes.append(("nn", 4096, k, n))
            shapes.append(("tn", n, k, 4096))
    for width in (4096, 8192, 12288):  # shares of tensor parallelism
        for share in (2, 4, 8, 16):
            shapes.append(("nt", 4096, 4 * width // share, width))
            shapes.append(("nt", 4096, width, 4 * width // share))
    for n in (512, 1000, 1024, 1152, 1280, 1536, 1920, 2112, 2304, 2560, 3072, 3328, 3584, 4224, 5120, 6144, 6400, 7168):  # tiles and waves
        shapes.append(("nt", 4096, n, 4096))
    for m in (16, 32, 64, 128, 256, 384, 512, 768):
        shapes.append(("nt", m, 4096, 4096))
    for k in (64, 128, 256, 512, 1024):
        shapes.append(("nt", 8192, 8192, k))
    for tokens, width in ((4096, 768), (8192, 4096)):  # vocabularies
        for words in (32000, 50257, 50304, 128256):
            shapes.append(("nt", tokens, words, width))
    done = set()
    work = [(s, BF16) for s in shapes]
    work += [(s, FP16) for s in shapes[::7]] + [(s, FP32) for s in shapes[::9]]
    for shape, dtype in work:
        if time.time() > until:
            return
        if (shape, dtype) in done:
            continue
        done.add((shape, dtype))
        form, m, n, k = shape
        a, b = operand(form, True, m, k, dtype), operand(form, False, k, n, dtype)
        if dtype == FP32:
            for high, name in ((False, "fp32"), (True, "tf32")):
                torch.backends.cuda.matmul.allow_tf32 = high
                out.row("product", form, (m, n, k), name, timed(lambda: torch.mm(a, b)))
            torch.backends.cuda.matmul.allow_tf32 = False
        else:
            c = torch.empty(m, n, device="cuda", dtype=dtype)
            out.row("product", form, (m, n, k), NAMES[dtype], timed(lambda: torch.mm(a, b, out=c)))
    for form, m, n, k in shapes:
        if time.time() > until or FP8 is None:
            return
        if form != "nt" or n % 16 or k % 16 or m < 128:
            continue
        a, b = operand("nt", True, m, k, BF16).to(FP8), operand("nt", False, k, n, BF16)
        b = b.t().contiguous().to(FP8).t()
        one = torch.ones((), device="cuda")
        out.row("product", "nt", (m, n, k), "fp8", timed(lambda: torch._scaled_mm(a, b, one, one, out_dtype=BF16)))
        if (m, n, k) in ((4096, 4096, 4096), (16384, 16384, 4096), (4096, 32768, 8192)):
            rows, columns = torch.ones(m, 1, device="cuda"), torch.ones(1, n, device="cuda")
            out.row("product", "nt-rowwise", (m, n, k), "fp8", timed(lambda: torch._scaled_mm(a, b, rows, columns, out_dtype=BF16)))


def attention(out, until):
    shapes = []
    for features, heads in ((64, 16), (64, 32), (128, 8), (128, 32), (128, 64)):
        for positions in (512, 1024, 2048, 4096, 8192):
            shapes.append((max(1, 8192 // positions), heads, heads, positions, features))
    shapes += [(1, 32, 8, 4096, 128), (2, 32, 8, 4096, 128), (1, 8, 2, 16384, 128), (1, 8, 8, 32768, 128), (1, 4, 4, 65536, 128), (16, 12, 12, 1024, 64)]
    for b, h, g, t, d in shapes:
        for causal in (True, False):
            if time.time() > until:
                return
            if not causal and (g != h or t > 16384):
                continue
            q = torch.randn(b, h, t, d, device="cuda", dtype=BF16, requires_grad=True)
            k = torch.randn(b, g, t, d, device="cuda", dtype=BF16, requires_grad=True)
            v = torch.randn(b, g, t, d, device="cuda", dtype=BF16, requires_grad=True)
            what = "causal" if causal else "full"
            call = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=g != h)
            with torch.no_grad():
                out.row("attention", f"forward {what}", (b, h, g, t, d), "bf16", timed(call, budget_us=15000))
            y = call()
            dy = torch.randn_like(y)
            out.row("attention", f"backward {what}", (b, h, g, t, d), "bf16",
                    timed(lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True), budget_us=15000))
            if b * h * t <= 8192 * 32 and t in (2048, 4096) and g == h:
                from torch.nn.attention import SDPBackend, sdpa_kernel
                with torch.no_grad(), sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                    out.row("attention", f"forward {what} cudnn", (b, h, g, t, d), "bf16", timed(call, budget_us=15000))
            del q, k, v, y, dy


def memory(out, until):
    for features in (1024, 4096, 8192):
        for rows in (16, 256, 1024, 4096, 16384, 65536):
            if time.time() > until:
                return
            if rows * features > 1 << 29:
                continue
            x = torch.randn(rows, features, device="cuda", dtype=BF16)
            y, z = torch.randn_like(x), torch.empty_like(x)
            w = torch.ones(features, device="cuda", dtype=BF16)
            for name, run in (
                ("copy", lambda: z.copy_(x)),
                ("add", lambda: torch.add(x, y, out=z)),
                ("gelu", lambda: F.gelu(x, approximate="tanh")),
                ("silu times", lambda: F.silu(x) * y),
                ("rmsnorm", lambda: F.rms_norm(x, (features,), w)),
                ("layernorm", lambda: F.layer_norm(x, (features,), w, w)),
                ("softmax", lambda: F.softmax(x, -1)),
                ("cast to fp32", lambda: x.float()),
            ):
                out.row("memory", name, (rows, features), "bf16", timed(run, budget_us=5000))
    for rows in (1024, 4096, 8192):
        logits = torch.randn(rows, VOCABULARY, device="cuda", dtype=BF16)
        targets = torch.randint(VOCABULARY, (rows,), device="cuda")
        out.row("memory", "cross entropy", (rows, VOCABULARY), "bf16", timed(lambda: F.cross_entropy(logits, targets), budget_us=5000))
    for n in (1 << 14, 1 << 18, 1 << 22, 1 << 26, 1 << 28):
        p = torch.nn.Parameter(torch.randn(n, device="cuda"))
        p.grad = torch.randn(n, device="cuda")
        adam = torch.optim.AdamW([p], fused=True)
        out.row("memory", "adamw fused", (n,), "fp32", timed(adam.step, budget_us=5000))
        del p, adam
    for n in (1 << 10, 1 << 16, 1 << 20, 1 << 26):
        here, there = torch.empty(n, dtype=torch.uint8, pin_memory=True), torch.empty(n, dtype=torch.uint8, device="cuda")
        out.row("memory", "host to device", (n,), "bytes", timed(lambda: there.copy_(here, non_blocking=True), budget_us=5000))
        out.row("memory", "device to host", (n,), "bytes", timed(lambda: here.copy_(there, non_blocking=True), budget_us=5000))


def issue(out, until):
    x = torch.randn(64, 64, device="cuda", dtype=BF16)
    y, w = torch.empty_like(x), torch.ones(64, device="cuda", dtype=BF16)
    linear = nn.Linear(64, 64, device="cuda", dtype=BF16)
    g = x.clone().requires_grad_()
    for name, run in (("add into", lambda: torch.add(x, x, out=y)), ("add", lambda: x + x), ("mm", lambda: torch.mm(x, x)), ("linear", lambda: linear(x)),
                      ("linear with gradient", lambda: linear(g)), ("layernorm", lambda: F.layer_norm(x, (64,), w, w))):
        times = []
        for _ in range(9):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(300):
                run()
            issued = time.perf_counter() - begin
            torch.cuda.synchronize()
            times.append(issued / 300 * 1e6)
        out.row("issue", name, (300,), "host", times)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.add(x, x, out=y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(300):
            torch.add(x, x, out=y)
    times = []
    for _ in range(9):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / 300 * 1e6)
    out.row("issue", "add in a graph, until done", (300,), "host", times)


def clocks(out, until):
    import pynvml

    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    a, b = torch.randn(8192, 8192, device="cuda", dtype=BF16), torch.randn(8192, 8192, device="cuda", dtype=BF16)
    zero = torch.zeros_like(a)
    big, to = torch.empty(1 << 30, dtype=torch.uint8, device="cuda"), torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    f8 = a.to(FP8)
    one = torch.ones((), device="cuda")
    for name, run in (("product bf16", lambda: torch.mm(a, b)), ("product bf16 of zeros", lambda: torch.mm(zero, zero)), ("copy", lambda: to.copy_(big)),
                      ("product fp8", lambda: torch._scaled_mm(f8, f8.t(), one, one, out_dtype=BF16))):
        for _ in range(20):
            run()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        n = 0
        mhz, watts = [], []
        while time.perf_counter() - begin < 2.5:
            for _ in range(100):
                run()
            n += 100
            if time.perf_counter() - begin > 1.0:
                mhz.append(pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM))
                watts.append(pynvml.nvmlDeviceGetPowerUsage(gpu) / 1e3)
            torch.cuda.synchronize()
        us = (time.perf_counter() - begin) / n * 1e6
        out.row("clock", name, (sorted(mhz)[len(mhz) // 2], round(sorted(watts)[len(watts) // 2])), "host", [us])


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Block(nn.Module):
    def __init__(self, width, heads, groups, features):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, n * self.size, bias=False) for n in (heads, groups, groups))
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = nn.Linear(width, features, bias=False), nn.Linear(width, features, bias=False), nn.Linear(features, width, bias=False)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        y = self.norm1(x)
        q = rotate(self.q(y).view(b, t, self.heads, self.size).transpose(1, 2), cos, sin)
        k = rotate(self.k(y).view(b, t, self.groups, self.size).transpose(1, 2), cos, sin)
        v = self.v(y).view(b, t, self.groups, self.size).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.groups != self.heads)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, width, heads, groups, features, blocks):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, heads, groups, features) for _ in range(blocks))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.size, self.recompute = width // heads, False

    def forward(self, ids, targets):
        x = self.tokens(ids)
        t = torch.arange(ids.shape[1], device=ids.device, dtype=torch.float32)
        angle = t[:, None] / 1e4 ** (torch.arange(0, self.size, 2, device=ids.device) / self.size)
        cos, sin = angle.cos().to(BF16), angle.sin().to(BF16)
        x = x.to(BF16)
        for block in self.blocks:
            x = checkpoint(block, x, cos, sin, use_reentrant=False) if self.recompute else block(x, cos, sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, VOCABULARY).float(), targets.reshape(-1))


def train(out, until):
    """Llama-like models, parameters and arithmetic in bf16, AdamW fused; "compiled" compiles every block, as trainers do."""
    work = []
    for width, heads, groups, features, blocks, sequences, positions in (
        (4096, 32, 8, 14336, 4, 2, 4096), (2048, 32, 8, 8192, 8, 4, 2048), (8192, 64, 8, 28672, 2, 1, 4096), (1024, 16, 16, 4096, 12, 8, 1024),
        (4096, 32, 8, 14336, 4, 1, 8192), (3072, 24, 8, 8192, 6, 4, 2048), (768, 12, 12, 3072, 12, 2, 512)):
        for mode in ("eager", "eager recompute", "compiled", "compiled recompute"):
            work.append((mode, width, heads, groups, features, blocks, sequences, positions))
    work.sort(key=lambda w: w[0].startswith("compiled"))
    for mode, width, heads, groups, features, blocks, sequences, positions in work:
        if time.time() > until:
            return
        try:
            torch.manual_seed(1)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            with torch.device("cuda"):
                torch.set_default_dtype(BF16)
                model = Llama(width, heads, groups, features, blocks)
                torch.set_default_dtype(FP32)
            model.recompute = mode.endswith("recompute")
            if mode.startswith("compiled"):
                torch._dynamo.reset()
                for block in model.blocks:
                    block.compile()
            adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
            ids = torch.randint(VOCABULARY, (sequences, positions + 1), device="cuda")
            times = []
            for step in range(16):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                model(ids[:, :-1], ids[:, 1:]).backward()
                adam.step()
                adam.zero_grad(set_to_none=True)
                torch.cuda.synchronize()
                if step >= 4:
                    times.append((time.perf_counter() - begin) * 1e6)
            out.row("train", mode, (width, blocks, sequences, positions, features), "bf16", times, torch.cuda.max_memory_allocated())
            if mode == "eager":  # forward alone, forward and backward: what the parts take
                parts = {"eager forward": [], "eager backward": []}
                for step in range(8):
                    torch.cuda.synchronize()
                    begin = time.perf_counter()
                    loss = model(ids[:, :-1], ids[:, 1:])
                    torch.cuda.synchronize()
                    middle = time.perf_counter()
                    loss.backward()
                    torch.cuda.synchronize()
                    parts["eager forward"].append((middle - begin) * 1e6)
                    parts["eager backward"].append((time.perf_counter() - middle) * 1e6)
                    adam.zero_grad(set_to_none=True)
                for name, t in parts.items():
                    out.row("train", name, (width, blocks, sequences, positions, features), "bf16", t[1:])
            del model, adam
        except Exception as error:
            torch.set_default_dtype(FP32)
            print(f"train {mode} {width}: {type(error).__name__}: {str(error)[:300]}", flush=True)


def main():
    path, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 240.0
    out, begin = Out(path), time.time()
    print(torch.cuda.get_device_name(0), torch.__version__, torch.version.cuda, flush=True)
    for part, share in ((clocks, 0.06), (products, 0.3), (attention, 0.45), (memory, 0.55), (issue, 0.58), (train, 1.0)):
        try:
            part(out, begin + seconds * share)
        except Exception as error:
            print(f"{part.__name__}: {type(error).__name__}: {str(error)[:400]}", flush=True)
        print(f"{part.__name__}: {time.time() - begin:.1f} s so far", flush=True)


main()
