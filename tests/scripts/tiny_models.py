"""Small models with random weights of Hugging Face's program (pip packages transformers and torch), and their logits.

  python tiny_models.py OUT FAMILY...

OUT/FAMILY: config.json, model.safetensors, logits.json {"ids": [[id, ...], ...], "logits": [of each list [after each of its
ids [of each id]]], "client": the same with GELU as llama.cpp has it, a table of fp16 numbers}, in fp32. Exit status 77: a
package is missing.
"""
import json
import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1")
try:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
except ImportError:
    sys.exit(77)

VOCABULARY, IDS = 96, 40
SHAPE = dict(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=6, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=None, pad_token_id=None)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
# What a family has beside SHAPE, where its own standards would hide a part of it.
FAMILIES = {
    "llama": dict(rope_parameters=LLAMA3, head_dim=32),
    "qwen2": {},
    "qwen3": dict(head_dim=32),
    "gemma2": dict(head_dim=32, sliding_window=8, query_pre_attn_scalar=32, attn_logit_softcapping=5.0,
                   final_logit_softcapping=4.0),
    "granite": dict(tie_word_embeddings=True, embedding_multiplier=3.0, attention_multiplier=0.4, residual_multiplier=0.6,
                    logits_scaling=3.0),
    "smollm3": dict(num_hidden_layers=5),
    "smollm2": dict(model_type="llama", tie_word_embeddings=True),
    "mistral": dict(sliding_window=8, head_dim=32),
    "mistral_wide": dict(model_type="mistral", sliding_window=64, head_dim=32),
    "olmo2": {},
    "bitnet": dict(hidden_act="silu", tie_word_embeddings=True),  # as llama.cpp computes it
    "bitnet_relu2": dict(model_type="bitnet", hidden_act="relu2", tie_word_embeddings=True),
    "gemma3": dict(model_type="gemma3_text", head_dim=32, sliding_window=8, query_pre_attn_scalar=32),
}


def shake(model):
    """Norms about 1, so that neither an offset nor a missing norm is hidden."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, p in model.named_parameters():
            middle = 1.0 if "norm" in name and abs(p.mean().item() - 1) < 0.5 else 0.0
            p.copy_(torch.randn(p.shape) * (0.2 if p.dim() > 1 else 0.1) + middle)


class Table(torch.nn.Module):
    """GELU of ggml (ggml_vec_geglu_f32): of the input in fp16, rounded to fp16."""

    def forward(self, x):
        y = torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()
        return torch.where(x <= -10, torch.zeros_like(x), torch.where(x >= 10, x, y))


def client_logits(model, ids):
    if "gelu" in getattr(model.config, "hidden_activation", ""):
        for module in list(model.modules()):
            if hasattr(module, "act_fn"):
                module.act_fn = Table()
    return model(ids).logits.tolist()


def main():
    torch.set_num_threads(1)
    ids = torch.tensor([[(7 * i * i + 5 * i + 11 * sample) % VOCABULARY for i in range(IDS)] for sample in range(3)])
    for family in sys.argv[2:]:
        kind = dict(FAMILIES[family])
        config = AutoConfig.for_model(kind.pop("model_type", family), **{**SHAPE, **kind})
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        shake(model)
        folder = os.path.join(sys.argv[1], family)
        model.save_pretrained(folder)
        with torch.no_grad():
            logits = model.float()(ids).logits.tolist()
            client = client_logits(model, ids)
        with open(os.path.join(folder, "logits.json"), "w") as file:
            json.dump({"ids": ids.tolist(), "logits": logits, "client": client}, file)


main()
