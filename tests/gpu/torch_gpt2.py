"""GPT-2 trained by PyTorch on the GPU at hand, to stand beside musher's own step: same shapes, same optimizer, bf16 with
fp32 parameters (autocast), fused AdamW, causal attention by scaled_dot_product_attention. Random tokens; nothing is loaded.

usage: torch_gpt2.py MODEL SEQUENCES LENGTH STEPS      MODEL: 124m | 350m
prints one line a mode: torch MODE MODEL tokens_per_s loss version bytes (most that its tensors had)
"""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"124m": (768, 12, 12), "350m": (1024, 16, 24)}  # width, heads, blocks
VOCABULARY = 50257


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, width, heads, blocks, length):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))


def measure(name, compiled, sequences, length, steps):
    torch.manual_seed(1)
    torch.cuda.reset_peak_memory_stats()
    model = Gpt2(*SIZES[name], length).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    run = torch.compile(model) if compiled else model
    ids = torch.randint(VOCABULARY, (sequences, length + 1), device="cuda")
    took = []
    for step in range(steps + 5):  # the first ones compile and warm up
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = run(ids[:, :-1], ids[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if step >= 5:
            took.append(time.perf_counter() - begin)
    took.sort()
    mode = "compile" if compiled else "eager"
    rate = sequences * length / took[len(took) // 2]
    print(f"torch {mode} {name} {rate:.0f} {loss.item():.4f} {torch.__version__} {torch.cuda.max_memory_allocated()}", flush=True)


def main():
    name, sequences, length, steps = sys.argv[1], *map(int, sys.argv[2:5])
    torch.set_float32_matmul_precision("high")
    for compiled in (False, True):
        measure(name, compiled, sequences, length, steps)


main()
