"""usage: chat_templates.py N SEED [TOKENIZER.json]: drawn conversations, as the public chat templates render them.

Prints a JSON list of N cases for each template: {"table", "messages", "text", "prompt" (with the header of an answer to
come), "targets": [[begin, end], ...] (bytes of the text that the assistant wrote, with the mark that ends an answer)}.
With a tokenizer of the package tokenizers also "ids" of the text and "sum", how many of them begin in a target. The
templates are chat_template of Qwen2.5, Llama 3, Gemma, Phi-3 and Zephyr, without tools, dates and standard system texts;
"generation" marks what transformers' return_assistant_tokens_mask takes. tests/golden/chat.json: chat_templates.py 6 1.
Exits with 77 without a package.
"""
import json
import random
import sys

try:
    import jinja2
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    if len(sys.argv) > 3:
        from tokenizers import Tokenizer
except ImportError:
    sys.exit(77)

BEGIN, END = "\ue000", "\ue001"  # around what the assistant wrote; taken out of the text

TEMPLATES = {
    "chatml": (
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n'}}"
        "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
        "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"),
    "llama3": (
        "{% set loop_messages = messages %}{% for message in loop_messages %}"
        "{% set header = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' %}"
        "{% if loop.index0 == 0 %}{% set header = bos_token + header %}{% endif %}{{ header }}"
        "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] | trim + '<|eot_id|>' }}"
        "{% endgeneration %}{% else %}{{ message['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"),
    "gemma": (
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
        "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}"
        "{% endif %}{{ '<start_of_turn>' + role + '\\n' }}{% if role == 'model' %}{% generation %}"
        "{{ message['content'] | trim + '<end_of_turn>' }}{% endgeneration %}{% else %}"
        "{{ message['content'] | trim + '<end_of_turn>' }}{% endif %}{{ '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"),
    "phi3": (
        "{% for message in messages %}{% if message['role'] == 'system' %}"
        "{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'user' %}"
        "{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'assistant' %}"
        "{{'<|assistant|>\\n'}}{% generation %}{{ message['content'] + '<|end|>' }}{% endgeneration %}{{ '\\n' }}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"),
    "zephyr": (
        "{% for message in messages %}\n{% if message['role'] == 'user' %}\n"
        "{{ '<|user|>\\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n"
        "{{ '<|system|>\\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n"
        "{{ '<|assistant|>\\n' }}{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}{{ '\\n' }}"
        "{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"),
}
BOS = {"llama3": "<|begin_of_text|>", "gemma": "<bos>"}
EOS = {"phi3": "<|endoftext|>", "zephyr": "</s>"}
WORDS = ["Hello", " ", " ", "\n", "world", "caf\u00e9", "\u4f60\u597d", "123", "  two", "?", "\U0001f642", "x\ty", "user",
         "assistant\n", "{{ 7 }}", "{% if %}", "\\n", '"', "'"]
MARKS = ["<|im_end|>", "<|im_start|>user\n", "<|eot_id|>", "<end_of_turn>\n", "<|end|>", "</s>", "<|endoftext|>", "<bos>",
         "<|start_header_id|>"]


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

    def _marked(self, caller):
        return BEGIN + caller() + END


def raise_exception(message):
    raise jinja2.TemplateError(message)


def template(name):
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation])
    env.globals["raise_exception"] = raise_exception
    return env.from_string(TEMPLATES[name])


def content(draw):
    words = [draw.choice(WORDS) for _ in range(draw.randint(1, 12))]
    if draw.random() < 0.1:
        words.insert(draw.randint(0, len(words)), draw.choice(MARKS))
    if draw.random() < 0.08:
        words.insert(0, draw.choice([" ", "\n", "\u00a0", "\u2003"]))
    if draw.random() < 0.2:
        words.append(draw.choice([" ", "\n\n", "\u3000", "\t", "\x1f"]))
    return "".join(words)


def conversation(draw, table):
    messages = []
    if table != "gemma" and draw.random() < 0.5:
        messages.append({"role": "system", "content": content(draw)})
    for _ in range(draw.randint(1, 4)):
        messages += [{"role": "user", "content": content(draw)}, {"role": "assistant", "content": content(draw)}]
    return messages


def spans(marked):
    """The text without marks, and the bytes between them."""
    parts, out, text = marked.split(BEGIN), [], ""
    text = parts[0]
    for part in parts[1:]:
        inside, outside = part.split(END)
        begin = len(text.encode())
        text += inside
        out.append([begin, len(text.encode())])
        text += outside
    return text, out


def main():
    draw = random.Random(int(sys.argv[2]))
    tokenizer = Tokenizer.from_file(sys.argv[3]) if len(sys.argv) > 3 else None
    cases = []
    for table in TEMPLATES:
        render = template(table).render
        for _ in range(int(sys.argv[1])):
            messages = conversation(draw, table)
            keys = {"messages": messages, "bos_token": BOS.get(table, "<s>"), "eos_token": EOS.get(table, "</s>")}
            text, targets = spans(render(add_generation_prompt=False, **keys))
            prompt, _ = spans(render(add_generation_prompt=True, **keys))
            case = {"table": table, "messages": messages, "text": text, "prompt": prompt, "targets": targets}
            if tokenizer is not None:
                made = tokenizer.encode(text, add_special_tokens=False)
                begins = [len(text[:begin].encode()) for begin, _ in made.offsets]
                case["ids"] = made.ids
                case["sum"] = sum(any(a <= begin < b for a, b in targets) for begin in begins)
            cases.append(case)
    print(json.dumps(cases, ensure_ascii=False))


main()
