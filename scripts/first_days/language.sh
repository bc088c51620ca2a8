# A day with language models: characters, a tokenizer, few bits, llama.cpp and Hugging Face. Sourced by first_days.sh.
block="layers.2.*"
characters() {
  run bitgrad data info mine.txt
  run bitgrad new text -o chars.yaml
  run bitgrad train chars.yaml data.train.file=mine.txt data.test.file=mine.txt "train.stop=150 steps" \
    "schedule.warmup=20 steps" --out runs/chars
  run bitgrad eval runs/chars --json
  result "loss $(value loss) (chance 4.17)"
  awk "BEGIN { exit !($(value loss) < 3) }" || fail "loss of characters: got $(value loss), expected less than 3"
  run bitgrad generate runs/chars --prompt "ROMEO:" --tokens 60 --temperature 0.8 --seed 1
  run bitgrad export runs/chars -o chars.gguf
}

own_tokenizer() {
  has tokenizers || { skip "a tokenizer and all that follows: no tokenizers in $python"; return 1; }
  cat > tokenizer.py << 'P'
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=512, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet)
tokenizer.train(["mine.txt"], trainer)
tokenizer.save("tokenizer.json")
P
  run "$python" tokenizer.py
  run bitgrad tokenize mine.txt -o set --tokenizer tokenizer.json --val 0.1
  cat > llama.yaml << 'Y'
version: 1
data:
  train: {format: tokens, stored: shard, file: set_train_*.bin, context: 64, order: random}
  test: {format: tokens, stored: shard, file: set_val_*.bin, context: 64}
model: {preset: llama, keys: {layers: 2, heads: 4, kv_heads: 2, dim: 64, ffn: 160}}
batch: {global: 12}
optim: {name: adamw, lr: 2e-3, betas: [0.9, 0.99], weight_decay: 0.1, decay: matrices, clip_norm: 1}
schedule: {name: cosine, warmup: 20 steps, final: 0.1}
train: {stop: 200 steps, best: loss, eval: {every: 100 steps, batch: 64}}
Y
  run bitgrad check llama.yaml
  run bitgrad train llama.yaml --out runs/llama
}

few_bits() {  # name rule
  run bitgrad train llama.yaml model.init_from=runs/llama "quant.rules=[{layers: '$block', $2}]" "train.stop=50 steps" \
    "schedule.warmup=5 steps" --out "runs/$1"
  run bitgrad eval "runs/$1" --json
  result "loss $(value loss) (chance 6.24)"
  awk "BEGIN { exit !($(value loss) < 5.2) }" || fail "loss of $1: got $(value loss), expected less than 5.2"
  run bitgrad generate "runs/$1" --prompt "The " --tokens 24 --temperature 0
  cp out "$1.text"
  run bitgrad export "runs/$1" -o "$1.gguf"
  run bitgrad export "runs/$1" -o "$1_hf" --format hf
  run bitgrad import "$1.gguf" -o "$1_gguf.safetensors"
  run bitgrad generate "$1_gguf.safetensors" --prompt "The " --tokens 24 --temperature 0
  equal "text of the GGUF file read back" "$(cat out)" "$(cat "$1.text")"
  run bitgrad import "$1_hf" -o "$1_back.safetensors"
  run bitgrad generate "$1_back.safetensors" --prompt "The " --tokens 24 --temperature 0
  equal "text of the folder read back" "$(cat out)" "$(cat "$1.text")"
  has xllamacpp || { skip "llama.cpp: no xllamacpp in $python"; return 0; }
  cat > llama_cpp.py << 'P'
import sys

import xllamacpp as xl

params = xl.CommonParams()
params.model.path = sys.argv[1]
answer = xl.Server(params).handle_completions({"prompt": "The ", "max_tokens": 24, "temperature": 0})
open("llama_cpp.text", "w").write("The " + answer["choices"][0]["text"])
P
  run "$python" llama_cpp.py "$1.gguf"
  local first
  first=$(head -c 12 llama_cpp.text)
  equal "the first characters of llama.cpp's text" "$first" "$(head -c 12 "$1.text")"
}

hugging_face() {
  has torch transformers peft || { skip "Hugging Face: no torch, transformers, peft in $python"; return 0; }
  cat > base.py << 'P'
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(1)
sizes = dict(hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
config = LlamaConfig(vocab_size=512, max_position_embeddings=128, bos_token_id=0, eos_token_id=0, initializer_range=0.05, **sizes)
LlamaForCausalLM(config).save_pretrained("base")
P
  run "$python" base.py
  run bitgrad import base -o base.safetensors
  sed "s/^model: .*/$(grep -o 'model: {preset.*}}, with' out | sed 's/}, with$/, init_from: base.safetensors}/')/" llama.yaml > adapters.yaml
  echo 'adapters: {layers: ["layers.2.*"], rank: 8, alpha: 16}' >> adapters.yaml
  run bitgrad train adapters.yaml "train.stop=40 steps" --out runs/adapters
  run bitgrad adapters runs/adapters -o adapters
  run bitgrad merge runs/adapters -o merged.safetensors --float
  run bitgrad export merged.safetensors -o merged --format hf
  cat > peft.check.py << 'P'
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

ids = torch.tensor([AutoTokenizer.from_pretrained("merged")("The king said to him, ")["input_ids"]])
merged = AutoModelForCausalLM.from_pretrained("merged").eval()
beside = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("base"), "adapters").eval()
with torch.no_grad():
    print(float((merged(ids).logits - beside(ids).logits).abs().max()))
P
  run "$python" peft.check.py
  awk "BEGIN { exit !($(cat out) < 1e-4) }" || fail "logits of the merged model and of PEFT differ by $(cat out)"
  result "merged model and PEFT differ by $(cat out)"
}

if [ -f "$data/text/tinyshakespeare.txt" ]; then
  cp "$data/text/tinyshakespeare.txt" mine.txt
  characters
  if own_tokenizer; then
    few_bits int8 "weights: {dtype: int8, scheme: absmax, granularity: group(32), scale_dtype: fp16}"
    few_bits ternary "weights: {dtype: ternary, scheme: ternary, granularity: group(32), scale_dtype: fp16}"
    hugging_face
  fi
else
  skip "language models: no text/tinyshakespeare.txt"
fi
