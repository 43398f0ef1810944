"""Which text do the tiny encoders read? Vocabularies of CLIP and T5, in the oldest layouts that every version still loads."""

from __future__ import annotations

__all__ = ["clip_files", "t5_files"]

Files = dict[str, object]
"""Path below the checkpoint's folder -> a JSON object, or text."""

_MERGES = (("l", "o"), ("lo", "w</w>"), ("e", "r</w>"))
_SPECIAL = ("<|startoftext|>", "<|endoftext|>")


def _byte_letters() -> list[str]:
    """The printable stand-ins that GPT-2's byte-level BPE uses, in CLIP's order."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(256 + index) for index in range(len(others))]


def clip_files(folder: str, pad: str = _SPECIAL[1]) -> Files:
    """A byte-level BPE of 517 tokens: 256 letters, the same 256 at a word's end, three merges, start and end of text.

    `folder` is the tokenizer's; `pad` the token that fills a prompt up.
    """
    letters = _byte_letters()
    words = letters + [f"{letter}</w>" for letter in letters] + ["".join(pair) for pair in _MERGES] + list(_SPECIAL)
    start, end = _SPECIAL

    def token(text: str) -> dict[str, object]:
        return {"content": text, "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}

    files: Files = {
        "vocab.json": {word: index for index, word in enumerate(words)},
        "merges.txt": "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in _MERGES),
        "special_tokens_map.json": {
            "bos_token": token(start),
            "eos_token": token(end),
            "pad_token": pad,
            "unk_token": token(end),
        },
        "tokenizer_config.json": {
            "add_prefix_space": False,
            "bos_token": {"__type": "AddedToken", **token(start)},
            "do_lower_case": True,
            "eos_token": {"__type": "AddedToken", **token(end)},
            "errors": "replace",
            "model_max_length": 77,
            "pad_token": pad,
            "tokenizer_class": "CLIPTokenizer",
            "unk_token": {"__type": "AddedToken", **token(end)},
        },
    }
    return _below(folder, files)


_SPACE = "▁"
_T5_SPECIAL = ("<pad>", "</s>", "<unk>")
_PIECES = ("a", "the", "low", "flower", "of", "and", "s", "f", "b", "c")
_SYLLABLES = ("lo", "er", "ow", "fl", "in", "an", "th", "ing")


def t5_files(folder: str) -> Files:
    """A Unigram model of 64 tokens: special ones, letters, digits, signs, some words and syllables.

    As `tokenizer.json` alone: the file of sentencepiece would need that package in every environment.
    """
    letters = [_SPACE, *"abcdefghijklmnopqrstuvwxyz", *"0123456789", *".,!?'-"]
    words = [_SPACE + piece for piece in _PIECES]
    # Longer pieces cost less than their letters together, so that they are what a text becomes.
    scores = [(token, 0.0) for token in _T5_SPECIAL] + [(letter, -4.0) for letter in letters]
    scores += [(piece, -5.0) for piece in (*words, *_SYLLABLES)]
    end = _T5_SPECIAL[1]
    space = {"type": "Metaspace", "replacement": _SPACE, "add_prefix_space": True}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    stop = {"SpecialToken": {"id": end, "type_id": 0}}
    added = [
        {
            "id": index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for index, token in enumerate(_T5_SPECIAL)
    ]
    files: Files = {
        "tokenizer.json": {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": space,
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [first, stop],
                "pair": [first, stop, second, stop],
                "special_tokens": {end: {"id": end, "ids": [1], "tokens": [end]}},
            },
            "decoder": space,
            "model": {"type": "Unigram", "unk_id": 2, "vocab": [list(pair) for pair in scores]},
        },
        "special_tokens_map.json": {"eos_token": end, "pad_token": _T5_SPECIAL[0], "unk_token": _T5_SPECIAL[2]},
        "tokenizer_config.json": {
            "additional_special_tokens": [],
            "eos_token": end,
            "extra_ids": 0,
            "model_max_length": 512,
            "pad_token": _T5_SPECIAL[0],
            "tokenizer_class": "T5Tokenizer",
            "unk_token": _T5_SPECIAL[2],
        },
    }
    return _below(folder, files)


def _below(folder: str, files: Files) -> Files:
    return {f"{folder}/{name}": content for name, content in files.items()}
