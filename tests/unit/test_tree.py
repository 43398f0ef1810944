"""A folder of files changes at once, and only what is new in it is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.files import write_both
from reports.names import file_name, version_name
from reports.tree import Tree


def _build(folder: Path, files: dict[str, str]) -> int:
    with Tree(folder) as tree:
        for path, content in files.items():
            tree.text(path, content)
    return tree.written


def test_what_has_not_changed_is_not_written(tmp_path: Path) -> None:
    """The same file, with its time and its place on the disk; what changed is new; what is gone is gone."""
    folder = tmp_path / "site"
    assert _build(folder, {"a.html": "a", "b/b.html": "b", "c.html": "c"}) == 3
    os.utime(folder / "a.html", (1, 1))
    before = (folder / "a.html").stat()
    assert _build(folder, {"a.html": "a", "b/b.html": "B"}) == 1
    after = (folder / "a.html").stat()
    assert (after.st_ino, after.st_mtime) == (before.st_ino, 1)
    assert (folder / "b/b.html").read_text() == "B"
    assert not (folder / "c.html").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_what_fails_half_way_changes_nothing(tmp_path: Path) -> None:
    """An error while it is built leaves the old folder as it was, and nothing beside it."""
    folder = tmp_path / "site"
    _build(folder, {"a.html": "old"})
    with pytest.raises(RuntimeError), Tree(folder) as tree:
        tree.text("a.html", "new")
        raise RuntimeError
    assert (folder / "a.html").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_reader_never_sees_two_builds_at_once(tmp_path: Path) -> None:
    """While another process builds again and again, both files of the folder are always of one build, or of none."""
    folder = tmp_path / "site"
    _build(folder, {"a": "0", "b": "0"})
    code = f"""
from pathlib import Path
from reports.tree import Tree
for number in range(300):
    with Tree(Path({str(folder)!r})) as tree:
        tree.text("a", str(number))
        tree.text("b", str(number))
"""
    builder = subprocess.Popen([sys.executable, "-c", code])
    seen = 0
    while builder.poll() is None:
        held = os.open(folder, os.O_RDONLY)  # a folder that was swapped out while we look is whole, too
        try:
            texts = [_read(held, name) for name in "ab"]
        finally:
            os.close(held)
        if None not in texts:
            assert texts[0] == texts[1]
            seen += 1
    assert builder.returncode == 0
    assert seen
    assert (folder / "a").read_text() == "299"


def _read(folder: int, name: str) -> str | None:
    try:
        file = os.open(name, os.O_RDONLY, dir_fd=folder)
    except FileNotFoundError:
        return None  # the folder was swapped out and is being removed
    try:
        return os.read(file, 10).decode()
    finally:
        os.close(file)


def test_a_killed_build_is_cleared_away(tmp_path: Path) -> None:
    """What lies beside the folder after a kill is gone after the next build."""
    (tmp_path / ".site.new").mkdir()
    (tmp_path / ".site.new" / "half").write_text("x")
    _build(tmp_path / "site", {"a": "1"})
    assert sorted(path.name for path in (tmp_path / "site").iterdir()) == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_link_in_the_old_folder_is_not_kept(tmp_path: Path) -> None:
    """A file that somebody turned into a link elsewhere becomes a file again."""
    folder = tmp_path / "site"
    _build(folder, {"a": "1"})
    (tmp_path / "elsewhere").write_text("1")
    (folder / "a").unlink()
    (folder / "a").symlink_to(tmp_path / "elsewhere")
    _build(folder, {"a": "1"})
    assert not (folder / "a").is_symlink()


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a\0b"])
def test_no_path_leaves_the_folder(tmp_path: Path, path: str) -> None:
    """Whatever a name from outside holds."""
    with pytest.raises(ValueError, match="is no path below"), Tree(tmp_path / "site") as tree:
        tree.text(path, "x")
    assert [path.name for path in tmp_path.iterdir()] == []


@given(st.text())
def test_any_text_has_a_name_that_is_one(text: str) -> None:
    """Short, of harmless characters, the same each time; a harmless text is its own name."""
    name = file_name(text)
    assert 0 < len(name) <= 64
    assert all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in name)
    assert file_name(name) == name
    version = version_name(text)
    assert 0 < len(version) <= 64
    assert ".." not in version and version[0] != "."
    assert all(letter.isascii() and (letter.isalnum() or letter in "-_.") for letter in version)


@given(
    st.recursive(
        st.none() | st.text() | st.integers(-9, 9), lambda inner: st.dictionaries(st.text(), inner), max_leaves=4
    )
)
def test_a_script_is_json_in_a_string(value: object) -> None:
    """Whatever the data hold, the script is one call with two strings, and no character of it is more than ASCII."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        with Tree(Path(folder) / "site") as tree:
            write_both(tree, "x", value)
        script = (Path(folder) / "site/data/x.js").read_bytes().decode("ascii")
        assert script.startswith('MM.put("x",') and script.endswith(");\n")
        assert json.loads(json.loads(script[len('MM.put("x",') : -3])) == value
        assert json.loads((Path(folder) / "site/api/v1/x.json").read_bytes()) == value
