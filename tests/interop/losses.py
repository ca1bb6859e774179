# tests/interop/losses.py MUSHER FOLDER [FAMILY...] - one line "ok NAME …" or "not ok NAME …" a comparison; exit code 1 if one fails.
#
# A file of one sample longer than the sequence by one token has one sample, so every sequence of every step is the same, known text. bert masks
# one of eight positions in each of the two sequences, which ones is musher's choice: the loss has to be the mean of two of the eight. An image is one record of CIFAR-10.
import json, os, subprocess, sys

import torch
import transformers

musher, folder = sys.argv[1], sys.argv[2]
LENGTH, BERT_LENGTH, VOCABULARY, STEPS = 24, 8, 320, 3
llama = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
             max_position_embeddings=64, rms_norm_eps=1e-5)
encoder = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
moe = dict(num_experts_per_tok=2, router_aux_loss_coef=0.0)
families = {
    "gpt2": dict(model_type="gpt2", n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=VOCABULARY),
    "llama": dict(model_type="llama", **llama),
    "llama-tied": dict(model_type="llama", tie_word_embeddings=True, attention_bias=True, mlp_bias=True, **llama),
    "llama3-rope": dict(model_type="llama", rope_theta=500000.0, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16), **llama),
    "mistral": dict(model_type="mistral", sliding_window=8, **llama),
    "qwen2": dict(model_type="qwen2", **llama),
    "qwen3": dict(model_type="qwen3", head_dim=16, **llama),
    "mixtral": dict(model_type="mixtral", num_local_experts=4, sliding_window=None, **moe, **llama),
    "qwen3_moe": dict(model_type="qwen3_moe", num_experts=4, moe_intermediate_size=24, head_dim=16, norm_topk_prob=True, decoder_sparse_step=1,
                      mlp_only_layers=[0], **moe, **llama),
    "gemma2": dict(model_type="gemma2", head_dim=16, query_pre_attn_scalar=12, attn_logit_softcapping=5.0, final_logit_softcapping=3.0,
                   sliding_window=8, **llama),
    "gemma3": dict(model_type="gemma3_text", head_dim=16, query_pre_attn_scalar=16, sliding_window=8, sliding_window_pattern=2, rope_theta=1e5,
                   rope_local_base_freq=1e4, rope_scaling=dict(rope_type="linear", factor=8.0), **llama),
    "phi3": dict(model_type="phi3", sliding_window=None, **llama),
    "olmo2": dict(model_type="olmo2", **llama),
    "glm4": dict(model_type="glm4", head_dim=16, **llama),
    "bert": dict(model_type="bert", max_position_embeddings=64, type_vocab_size=2, vocab_size=VOCABULARY, **encoder),
    "vit": dict(model_type="vit", image_size=32, patch_size=8, num_channels=3, num_labels=10, hidden_act="gelu", **encoder),
}
# What transformers computes in fp32 whatever the dtype: norms, rotary angles, the router's softmax.
in_fp32 = {"llama", "llama-tied", "llama3-rope", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe", "gemma2", "gemma3", "phi3", "olmo2", "glm4"}
classes = dict(bert=transformers.BertForMaskedLM, vit=transformers.ViTForImageClassification)
wrong = 0


def report(name, right, text):
    global wrong
    print(("ok " if right else "not ok ") + name + ": " + text, flush=True)
    wrong += not right


def path(*names):
    return os.path.join(folder, *names)


def run(*words):
    done = subprocess.run([musher, *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"not ok {' '.join(words)}: exit code {done.returncode}: {done.stderr[-400:]}")
    return json.loads(done.stdout) if "--json" in words else done.stdout


def write(name, text):
    with open(path(name), "w") as f:
        f.write(text)
    return path(name)


def data_of(family):
    generator = torch.Generator().manual_seed(5)
    if family == "vit":
        image = torch.randint(0, 256, (3 * 32 * 32,), generator=generator, dtype=torch.uint8)
        with open(path("image.bin"), "wb") as f:
            f.write(bytes([7]) + image.numpy().tobytes())
        x = image.double()
        x = (x - x.mean()) / max(1.0, float(x.std(unbiased=False)))
        return path("image.bin"), "cifar10", (x.reshape(1, 3, 32, 32), torch.tensor([7]))
    length = BERT_LENGTH if family == "bert" else LENGTH
    tokens = torch.randint(1, 256, (length + 1,), generator=generator)
    with open(path("text"), "wb") as f:
        f.write(bytes(tokens.tolist()))
    return path("text"), "bytes", tokens


def plan_of(family, config):
    lines = [f"version: 1\nmodel: {json.dumps(config)}\nglobal_batch: 2\nmicrobatch: 1\nprecision: fp64\nseed: 3\noptimizer: {{kind: adamw, lr: 1e-2}}\n"]
    if family != "vit":
        lines.append(f"sequence_length: {BERT_LENGTH if family == 'bert' else LENGTH}\n")
    job = write("job.yaml", "".join(lines))
    team = write("team.yaml", """version: 1
name: team
device_types: [{name: cpu, device: host, slowdown: 3, memory: 64 MiB}]
nodes: [{name: n, host: localhost, devices: [{type: cpu}, {type: cpu}]}]
links: [{name: bus, between: [n], bandwidth: 1 GB/s, latency: 10 us}]
""")
    run("plan", job, team, "--evaluations", "20", "-q", "-o", path("plan.yaml"))
    return path("plan.yaml")


def losses_of(family, model, data):
    model = model.double().eval()
    model.config._experts_implementation = "eager"  # torch has no grouped_mm of doubles
    with torch.no_grad():
        if family == "vit":
            logits = model(pixel_values=data[0]).logits
            return [float(torch.nn.functional.cross_entropy(logits, data[1]))]
        if family != "bert":
            logits = model(input_ids=data[None, :-1]).logits[0]
            return [float(torch.nn.functional.cross_entropy(logits, data[1:]))]
        found = []
        for at in range(BERT_LENGTH):
            masked = data[:-1].clone()
            masked[at] = 256
            logits = model(input_ids=masked[None]).logits[0]
            found.append(float(torch.nn.functional.cross_entropy(logits[at:at + 1], data[at:at + 1])))
        return [(x + y) / 2 for x in found for y in found]


def compare(name, family, theirs, ours):
    difference = min(abs(x - ours) / abs(ours) for x in theirs)
    limit = 2e-6 if family in in_fp32 else 1e-10
    nearest = min(theirs, key=lambda x: abs(x - ours))
    report(name, difference <= limit, f"loss {ours:.12f} by musher, {nearest:.12f} by transformers, relative difference {difference:.1e} (limit {limit:.0e})")


def class_of(family):
    return classes.get(family, transformers.AutoModelForCausalLM)


transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.manual_seed(11)
print(f"transformers {transformers.__version__}, torch {torch.__version__}", flush=True)
for family, config in families.items():
    if len(sys.argv) > 3 and family not in sys.argv[3:]:
        continue
    data, form, values = data_of(family)
    plan = plan_of(family, config)
    options = ["--data", data, "--data-form", form, "-q"]
    saved = path(family + ".ck")
    run("run", plan, *options, "--steps", str(STEPS), "--save", saved)
    generation = os.path.join(saved, f"step-{STEPS:08d}")
    ours = run("run", plan, *options, "--steps", "1", "--resume", saved, "--json")["losses"][0]
    model, info = class_of(family).from_pretrained(generation, dtype=torch.float64, output_loading_info=True)
    odd = {k: sorted(v) for k, v in info.items() if v and k != "error_msgs"}
    report(f"{family}: from_pretrained of a checkpoint", not odd and not info.get("error_msgs"), str(odd or "every tensor is used"))
    compare(f"{family}: a checkpoint in transformers", family, losses_of(family, model, values), ours)
    again = run("run", plan, *options, "--steps", "1", "--init", generation, "--json")["losses"][0]
    report(f"{family}: init from the checkpoint", family == "bert" or again == ours, f"loss {again!r}, resumed {ours!r}")
    # The other way: weights that transformers makes and writes, in one file and in several.
    theirs = class_of(family).from_config(model.config) if family not in classes else classes[family](model.config)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    theirs = theirs.double()
    expected = losses_of(family, theirs, values)
    for shards, size in (("one file", "1GB"), ("several files", "50KB")):
        theirs.save_pretrained(path(f"{family}-{size}"), max_shard_size=size)
        ours = run("run", plan, *options, "--steps", "1", "--init", path(f"{family}-{size}"), "--json")["losses"][0]
        compare(f"{family}: weights of transformers, {shards}", family, expected, ours)
    # Converted: the same values rounded to bf16 by both.
    run("checkpoint", "convert", saved, "-o", path(family + "-bf16"), "--dtype", "bf16", "--max-shard", "30kB")
    rounded = class_of(family).from_pretrained(path(family + "-bf16"), dtype=torch.bfloat16)
    same = all(torch.equal(a.to(torch.float32).to(torch.bfloat16), b) for a, b in
               zip(class_of(family).from_pretrained(generation, dtype=torch.float64).parameters(), rounded.parameters()))
    report(f"{family}: converted to bf16", same, "each value is the one that torch rounds to")
sys.exit(1 if wrong else 0)
