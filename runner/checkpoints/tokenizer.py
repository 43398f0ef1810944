"""Which text does a tiny CLIP read? A byte-level BPE vocabulary in the oldest layout that still loads."""

from __future__ import annotations

__all__ = ["clip_files"]

_MERGES = (("l", "o"), ("lo", "w</w>"), ("e", "r</w>"))
_SPECIAL = ("<|startoftext|>", "<|endoftext|>")


def _byte_letters() -> list[str]:
    """The printable stand-ins that GPT-2's byte-level BPE uses, in CLIP's order."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(256 + index) for index in range(len(others))]


def clip_files() -> dict[str, object]:
    """File name -> content: `vocab.json` and configurations as objects, `merges.txt` as text.

    517 tokens: 256 letters, the same 256 at a word's end, three merges, start and end of text.
    """
    letters = _byte_letters()
    words = letters + [f"{letter}</w>" for letter in letters] + ["".join(pair) for pair in _MERGES] + list(_SPECIAL)
    start, end = _SPECIAL

    def token(text: str) -> dict[str, object]:
        return {"content": text, "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}

    return {
        "vocab.json": {word: index for index, word in enumerate(words)},
        "merges.txt": "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in _MERGES),
        "special_tokens_map.json": {
            "bos_token": token(start),
            "eos_token": token(end),
            "pad_token": end,
            "unk_token": token(end),
        },
        "tokenizer_config.json": {
            "add_prefix_space": False,
            "bos_token": {"__type": "AddedToken", **token(start)},
            "do_lower_case": True,
            "eos_token": {"__type": "AddedToken", **token(end)},
            "errors": "replace",
            "model_max_length": 77,
            "pad_token": end,
            "tokenizer_class": "CLIPTokenizer",
            "unk_token": {"__type": "AddedToken", **token(end)},
        },
    }
