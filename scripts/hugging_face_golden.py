#!/usr/bin/env python3
"""Writes tests/golden/hugging_face/: tiny models of Hugging Face's library, with their logits in float64.

    pip install numpy torch transformers
    OMP_NUM_THREADS=1 python scripts/hugging_face_golden.py tests/golden/hugging_face

A folder for each: config.json and model.safetensors as save_pretrained writes them, and golden.json: "ids" of one
sequence, "logits" [positions, vocabulary]. gpt2_sharded has the numbers of gpt2 in several files, bf16 those of llama in
16 bits. bitnet has float weights; bitnet_packed ternary ones, and its logits come from the layers of the library that
round inputs to 8 bits (AutoBitLinear).
"""
import json
import pathlib
import shutil
import sys

import torch
import transformers as t

V, T = 41, 12
LLAMA = dict(vocab_size=V, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=32, bos_token_id=None, eos_token_id=None)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)


def shake(model, seed):
    """Numbers of the size that trained models have, norms and biases too."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn(p.shape) * (0.3 if p.dim() > 1 else 0.2) + (1.0 if "norm" in name or "ln_" in name else 0.0)
                    * (0.0 if name.endswith("bias") else 1.0))


def golden(model, folder):
    ids = torch.tensor([[(7 * i * i + 3 * i + 5) % V for i in range(T)]])
    with torch.no_grad():
        logits = model.double()(ids).logits[0].double()
    text = {"ids": ids[0].tolist(), "logits": [[float("%.9g" % v) for v in row] for row in logits.tolist()]}
    (folder / "golden.json").write_text(json.dumps(text))


def write(root, name, model, seed, dtype=torch.float32, **save):
    folder = root / name
    shutil.rmtree(folder, ignore_errors=True)
    shake(model.eval(), seed)
    model.to(dtype).save_pretrained(folder, **save)
    (folder / "generation_config.json").unlink(missing_ok=True)
    # Read again: to(bfloat16) rounds the angles of rope too, which no file holds.
    golden(type(model).from_pretrained(folder, dtype=torch.float64).eval(), folder)


def packed(root):
    """The library's own layers and packing; the scales are written by hand."""
    from safetensors.torch import save_file
    from transformers.integrations.bitnet import AutoBitLinear, pack_weights
    config = t.BitNetConfig(**LLAMA, tie_word_embeddings=True, hidden_act="relu2")
    model = t.BitNetForCausalLM(config).eval()
    shake(model, 6)
    state = {k: v.clone() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    for name, module in list(model.named_modules()):
        if not isinstance(module, torch.nn.Linear) or name == "lm_head":
            continue
        scale = module.weight.abs().mean()
        codes = (module.weight / scale).round().clamp(-1, 1).detach()
        state[name + ".weight"] = pack_weights(codes.clone())
        state[name + ".weight_scale"] = scale.detach().reshape(1)
        layer = AutoBitLinear(module.in_features, module.out_features, bias=False)
        layer.weight.data = codes * scale.detach()
        parent = model.get_submodule(name.rpartition(".")[0])
        setattr(parent, name.rpartition(".")[2], layer)
    folder = root / "bitnet_packed"
    shutil.rmtree(folder, ignore_errors=True)
    config.quantization_config = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}
    config.architectures = ["BitNetForCausalLM"]
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config.to_dict(), indent=2, default=str))
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    for module in model.modules():
        if isinstance(module, AutoBitLinear):
            module.online_quant = False
            module.register_forward_pre_hook(lambda m, x: (quantized(x[0]),))
            module.forward = torch.nn.Linear.forward.__get__(module)
    golden(model, folder)


def quantized(x):
    """Inputs to 8 bits, a scale for each token: ActQuant of the library."""
    scale = 127 / x.abs().max(dim=-1, keepdim=True).values.clamp_(min=1e-5)
    return (x * scale).round().clamp(-128, 127) / scale


def main():
    root = pathlib.Path(sys.argv[1])
    gpt2 = lambda: t.GPT2LMHeadModel(t.GPT2Config(vocab_size=V, n_positions=24, n_embd=32, n_layer=2, n_head=4,
                                                  bos_token_id=None, eos_token_id=None))
    write(root, "gpt2", gpt2(), 1)
    write(root, "gpt2_sharded", gpt2(), 1, max_shard_size="30KB")
    write(root, "llama", t.LlamaForCausalLM(t.LlamaConfig(**LLAMA, rope_parameters=LLAMA3)), 2)
    write(root, "bf16", t.LlamaForCausalLM(t.LlamaConfig(**LLAMA, tie_word_embeddings=True)), 3, torch.bfloat16)
    write(root, "qwen2", t.Qwen2ForCausalLM(t.Qwen2Config(**LLAMA, tie_word_embeddings=True)), 4)
    write(root, "qwen3", t.Qwen3ForCausalLM(t.Qwen3Config(**LLAMA, head_dim=16, tie_word_embeddings=True)), 7)
    write(root, "gemma3", t.Gemma3ForCausalLM(t.Gemma3TextConfig(
        **{**LLAMA, "num_hidden_layers": 3}, head_dim=8, query_pre_attn_scalar=12, sliding_window=4,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"])), 8)
    write(root, "gemma2", t.Gemma2ForCausalLM(t.Gemma2Config(
        **LLAMA, head_dim=8, query_pre_attn_scalar=8, sliding_window=4, attn_logit_softcapping=5.0,
        final_logit_softcapping=4.0)), 9)
    write(root, "granite", t.GraniteForCausalLM(t.GraniteConfig(
        **LLAMA, tie_word_embeddings=True, embedding_multiplier=3.0, attention_multiplier=0.4, residual_multiplier=0.6,
        logits_scaling=3.0)), 10)
    write(root, "smollm3", t.SmolLM3ForCausalLM(t.SmolLM3Config(**LLAMA, pad_token_id=None, no_rope_layers=[0, 1])), 11)
    write(root, "mistral", t.MistralForCausalLM(t.MistralConfig(**LLAMA, sliding_window=4)), 12)
    write(root, "olmo2", t.Olmo2ForCausalLM(t.Olmo2Config(**LLAMA, pad_token_id=None)), 13)
    write(root, "bitnet", t.BitNetForCausalLM(t.BitNetConfig(**LLAMA, tie_word_embeddings=True, hidden_act="relu2")), 5)
    packed(root)


if __name__ == "__main__":
    main()
